"""`spadework design` over a server of others that speaks the protocol, with a model behind it.

`transformers serve`, and the tiny model that the trainer makes: what it writes is noise, but
it counts tokens, samples by the seed and reads the messages by its chat template.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from spadework.cli import main
from tests.cli.programs import DOOR
from trainer.budget import most_prompt_tokens
from trainer.config import ModelConfig
from trainer.models import load_model

pytestmark = pytest.mark.timeout(600)

START_S = 240.0
SMALL = ModelConfig(hidden_size=32, layers=2, heads=2, intermediate_size=64)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The base URL of a running server, and its model's name."""
    folder = tmp_path_factory.mktemp("model")
    model, tokenizer = load_model(SMALL, context_tokens=8192, seed=0)
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    log = folder / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while not _healthy(f"http://127.0.0.1:{port}/health"):
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        running.terminate()
        running.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=5.0).status_code == 200
    except httpx2.TransportError:
        return False


def design(server: tuple[str, str], out: Path, *arguments: str) -> int:
    url, model = server
    endpoint = ["--endpoint", url, "--endpoint-model", model, "--endpoint-concurrency", "2"]
    limits = ["--max-tokens", "24", "--repair-rounds", "0", "--prompt-style", "compact"]
    return main(["design", "--out", str(out), *endpoint, *limits, *arguments])


def ledger(out: Path) -> dict[str, dict]:
    lines = (out / "endpoint.jsonl").read_text().splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


@pytest.mark.slow
@pytest.mark.nsjail
def test_a_model_behind_a_server_of_others_writes_and_is_judged(server, tmp_path, capsys):
    # One at a time: the server seeds the sampling of all its requests together.
    arguments = ("-n", "3", "--json", "--endpoint-concurrency", "1")
    assert design(server, tmp_path / "a", *arguments) in (0, 1)
    output = capsys.readouterr()
    rows = json.loads(output.out)
    assert len(rows) == 3
    assert "endpoint: 3 requests" in output.err
    first = ledger(tmp_path / "a")
    assert all(row["text"] and not row["assumed"] for row in first.values())
    assert all(0 < row["tokens_out"] <= 24 for row in first.values())
    # The same seed asks, and the server samples, the same.
    design(server, tmp_path / "b", *arguments)
    assert ledger(tmp_path / "b") == first


@pytest.mark.slow
@pytest.mark.nsjail
def test_the_bound_of_a_prompt_holds_for_a_tokenizer_of_single_characters(
    server, tmp_path, capsys
):
    arguments = ("-n", "2", "--prompt-style", "chat", "--json")
    assert design(server, tmp_path, *arguments, "--dry-run") == 0
    prompts = json.loads(capsys.readouterr().out)["prompts"]
    most = sorted(most_prompt_tokens(prompt["messages"]) for prompt in prompts)
    design(server, tmp_path, *arguments, "--backend", "nsjail")
    counted = sorted(row["tokens_in"] for row in ledger(tmp_path).values())
    assert all(0.8 * bound < tokens <= bound for tokens, bound in zip(counted, most, strict=True))


@pytest.mark.slow
@pytest.mark.nsjail
def test_a_model_behind_a_server_of_others_plays_and_is_measured(server, tmp_path, capsys):
    url, model = server
    door = tmp_path / "door.py"
    door.write_text(DOOR)
    endpoint = ["--endpoint", url, "--endpoint-model", model, "--endpoint-concurrency", "2"]
    command = ["eval", "endpoint", "oracle", "--suite", str(door), "--seeds", "2", "--json"]
    options = ["--max-action-tokens", "8", "--out", str(tmp_path / "out"), *endpoint]
    assert main([*command, *options]) == 0
    measured = json.loads(capsys.readouterr().out)["models"]
    # Noise opens no door; it is counted, and the server tells its tokens.
    assert measured["endpoint"]["n"] == 2
    assert 0 < measured["endpoint"]["tokens"] <= 8 * measured["endpoint"]["turns"]
    assert measured["oracle"]["success"] == 1.0
    assert (
        main(["play", str(door), "--policy", "endpoint", "--json", *options[:2], *endpoint]) == 0
    )
    assert json.loads(capsys.readouterr().out)["turns"]
