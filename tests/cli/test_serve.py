"""`spadework serve`: ready line, service, orderly end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sandbox_api import SandboxClient

from spadework.cli import main

SERVE = (sys.executable, "-m", "spadework", "serve", "--backend", "process")


@contextmanager
def served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [*SERVE, "--address", "127.0.0.1:0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"], server
        finally:
            server.kill()


def test_it_says_where_it_listens_serves_and_ends_on_sigterm():
    with served() as (address, server):
        with SandboxClient(address) as client:
            assert client.server_info().backend == "process"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0


def test_a_taken_port_is_one_sentence_and_exits_with_3():
    with served() as (address, _):
        done = subprocess.run(
            [*SERVE, "--address", address, "--log-level", "error"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert address.rpartition(":")[2] in done.stderr


def test_no_episodes_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--max-episodes", "0"])
    assert "--max-episodes" in capsys.readouterr().err
