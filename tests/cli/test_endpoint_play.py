"""`spadework eval` and `spadework play` with a model behind a server of OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_server import LocalServer
from spadework.cli import main
from tests.cli.programs import DOOR
from tests.protocol_server import Fault, ProtocolServer, protocol_server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalServer(backend="process") as server:
        yield server.address


@pytest.fixture
def model() -> Iterator[ProtocolServer]:
    with protocol_server() as running:
        yield running


@pytest.fixture
def door(tmp_path: Path) -> str:
    file = tmp_path / "door.py"
    file.write_text(DOOR)
    return str(file)


def finds_the_door(body: dict[str, Any]) -> str:
    """A model that remembers; another that is named `left` does not."""
    if body["model"] == "left":
        return "left"
    return f"<think>hm</think>{body['messages'][0]['content'].split()[-1].rstrip('.')}"


def test_models_of_a_server_are_measured_beside_others(address, model, door, tmp_path, capsys):
    model.write = finds_the_door
    out = str(tmp_path / "out")
    command = ["eval", "endpoint", "endpoint:left", "oracle", "--suite", door, "--json"]
    server = ["--endpoint", model.url, "--endpoint-model", "wise", "--server", address]
    assert main([*command, *server, "--seeds", "4", "--out", out]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)["models"]
    assert found["endpoint"]["success"] == 1.0
    assert found["endpoint:left"]["success"] == 0.5
    assert found["endpoint"]["tokens"] > 0
    assert "endpoints, up to endpoint:left: 20 requests" in output.err
    asked = len(model.asked)
    # Once more: all answers are in the folder.
    assert main([*command, *server, "--seeds", "4", "--out", out]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == found
    assert len(model.asked) == asked


def test_a_server_plays_one_episode_for_people(address, model, door, capsys):
    model.write = finds_the_door
    command = ["play", door, "--policy", "endpoint", "--seed", "1", "--server", address]
    assert main([*command, "--endpoint", model.url, "--endpoint-model", "wise", "--json"]) == 0
    output = capsys.readouterr()
    transcript = json.loads(output.out)
    assert [turn["action"] for turn in transcript["turns"]] == ["right"] * 3
    assert transcript["episode_return"] == 1.0
    assert "endpoint: 3 requests" in output.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["eval", "endpoint"], 2, "endpoint needs --endpoint and --endpoint-model"),
        (["eval", "endpoint", "--endpoint", "URL"], 2, "--endpoint-model"),
        (
            [*"eval endpoint --constrain-actions --endpoint URL --endpoint-model m".split()],
            2,
            "--endpoint-structured-outputs",
        ),
        (["play", "--policy", "endpoint"], 2, "--policy endpoint needs --endpoint"),
        ([*"eval endpoint --endpoint URL --endpoint-model m".split()], 3, "401"),
        ([*"play --policy endpoint --endpoint URL --endpoint-model m".split()], 3, "401"),
        (
            [*"eval endpoint --endpoint URL --endpoint-model m --endpoint-extra 1".split()],
            2,
            "--endpoint-extra",
        ),
    ],
)
def test_what_no_server_can_play_is_one_sentence(
    address, model, door, capsys, arguments: list[str], code: int, words: str
):
    model.faults = [Fault(401) for _ in range(64)]
    command, *rest = [model.url if argument == "URL" else argument for argument in arguments]
    what = ["--suite", door] if command == "eval" else [door]
    assert main([command, *rest, *what, "--server", address]) == code
    assert words in capsys.readouterr().err
