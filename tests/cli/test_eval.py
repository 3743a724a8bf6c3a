"""`spadework eval`: policies on the same worlds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_server import LocalServer
from spadework.cli import main
from tests.cli.programs import DOOR


@pytest.fixture(scope="module")
def address():
    with LocalServer(backend="process") as server:
        yield server.address


@pytest.fixture
def door(tmp_path: Path) -> Path:
    (tmp_path / "doors").mkdir()
    (tmp_path / "doors" / "door.py").write_text(DOOR)
    (tmp_path / "left.txt").write_text("left\n")
    return tmp_path


def test_policies_are_compared_on_the_same_worlds(address, door: Path, capsys) -> None:
    command = ["eval", "oracle", f"scripted:{door / 'left.txt'}", "--suite", str(door / "doors")]
    out = door / "out"
    options = ["--seeds", "4", "--samples", "2", "--server", address, "--out", str(out)]
    assert main([*command, *options, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["environments"], summary["episodes"]) == (1, 8)
    oracle, left = summary["models"].values()
    assert oracle["success"] == 1.0
    # The door is on the left with every other seed; a wall ends the episode with -1.
    assert left["success"] == 0.5
    assert left["difference"]["mean"] == pytest.approx(-1.0)
    transcripts = [json.loads(line) for line in (out / "oracle.jsonl").read_text().splitlines()]
    assert len(transcripts) == 8
    assert [turn["action"] for turn in transcripts[0]["turns"]] == ["left"] * 3
    assert json.loads((out / "summary.json").read_text()) == summary


def test_a_model_plays_too_and_people_get_a_table(address, door: Path, capsys) -> None:
    command = ["eval", "random", "tiny", "--suite", str(door / "doors" / "door.py")]
    options = ["--seeds", "2", "--max-action-tokens", "4", "--constrain-actions"]
    assert main([*command, *options, "--server", address]) == 0
    shown = capsys.readouterr().out
    assert "tiny" in shown
    assert "gain" in shown
    assert "Environments: 1; episodes a model: 2" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["random", "--seeds", "0"], 2, "--seeds"),
        (["random", "random"], 2, "twice"),
        (["random", "--suite", "nowhere"], 3, "no suite 'nowhere'"),
        (["scripted:nowhere"], 3, "cannot read the script"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    address, door: Path, capsys, arguments: list[str], code: int, words: str
) -> None:
    suite = [] if "--suite" in arguments else ["--suite", str(door / "doors")]
    assert main(["eval", *arguments, *suite, "--server", address]) == code
    assert words in capsys.readouterr().err
