"""`spadework play` over the process backend."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import LocalServer
from spadework.cli import main
from tests.cli.programs import BROKEN, DOOR, RAISES


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalServer(backend="process") as server:
        yield server.address


@pytest.fixture
def door(tmp_path: Path) -> str:
    path = tmp_path / "door.py"
    path.write_text(DOOR)
    return str(path)


def transcript(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_given_actions_give_a_transcript(address, door, capsys):
    assert main(["play", door, "--server", address, "--json", "--actions", *["left"] * 3]) == 0
    played = transcript(capsys)
    assert [t["reward"] for t in played["turns"]] == [0.0, 0.0, 1.0]
    assert played["terminated"]
    assert played["episode_return"] == 1.0
    assert played["observation"] == "The door is on the left."


def test_the_seed_reaches_the_program(address, door, capsys):
    assert main(["play", door, "--server", address, "--json", "--policy=oracle", "--seed=1"]) == 0
    played = transcript(capsys)
    assert [t["action"] for t in played["turns"]] == ["right"] * 3
    assert played["episode_return"] == 1.0


def test_random_plays_what_the_environment_lists_and_repeats(address, door, capsys):
    seen = []
    for _ in range(2):
        assert main(["play", door, "--server", address, "--json", "--policy", "random"]) == 0
        seen.append(transcript(capsys))
    assert seen[0] == seen[1]
    assert {t["action"] for t in seen[0]["turns"]} <= {"left", "right"}


def test_a_hint_follows_the_first_observation(address, door, capsys):
    arguments = ["--hint", "doors open", "--json", "--actions", "left"]
    assert main(["play", door, "--server", address, *arguments]) == 0
    played = transcript(capsys)
    assert played["observation"] == "The door is on the left.\n\nHINT: doors open"
    assert played["episode_return"] is None  # it was left in the middle


def test_a_person_plays_at_the_prompt(address, door, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("left\nleft\nleft\n"))
    assert main(["play", door, "--server", address]) == 0
    shown = capsys.readouterr().out
    assert "actions: left right" in shown
    assert "episode return 1" in shown


def test_end_of_input_ends_the_play(address, door, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("left\n"))
    assert main(["play", door, "--server", address]) == 0
    assert "episode return" not in capsys.readouterr().out


@pytest.mark.parametrize(("source", "outcome"), [(RAISES, "step"), (BROKEN, "compile")])
def test_a_program_that_fails_exits_with_1(address, tmp_path, capsys, source, outcome):
    path = tmp_path / "bad.py"
    path.write_text(source)
    assert main(["play", str(path), "--server", address, "--actions", "a"]) == 1
    error = capsys.readouterr().err
    assert outcome in error
    assert "Traceback" not in error


def test_random_without_listed_actions_says_what_to_do(address, tmp_path, capsys):
    path = tmp_path / "raises.py"
    path.write_text(RAISES)
    assert main(["play", str(path), "--server", address, "--policy", "random"]) == 3
    assert "--actions" in capsys.readouterr().err


def test_json_by_hand_is_a_usage_error(door, capsys):
    assert main(["play", door, "--json"]) == 2
    assert "--policy" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_sentence(capsys):
    assert main(["play", "nowhere.py", "--actions", "a"]) == 3
    error = capsys.readouterr().err
    assert "nowhere.py" in error
    assert error.count("\n") == 1


def test_it_starts_a_server_of_its_own(door, capsys):
    arguments = ["--backend", "process", "--json", "--policy", "oracle"]
    assert main(["play", door, *arguments]) == 0
    assert transcript(capsys)["episode_return"] == 1.0
