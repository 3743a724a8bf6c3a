"""The client across a real server's death: an episode that cannot be rebuilt says why.

That all others live on, tests/chaos shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_api import EpisodeLostError, ResetItem, SandboxClient, StepItem

UNREPEATABLE = """
import os

class NoiseEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        return os.urandom(8).hex(), 0.0, False, False, {}
"""


class Restartable:
    """A server on a fixed Unix socket that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix:{folder / 'socket'}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sandbox_server", "--exit-with-stdin"]
        command += ["--backend", "process", "--address", self.address, "--log-level", "ERROR"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restartable]:
    running = Restartable(tmp_path)
    running.start()
    yield running
    running.kill()


def test_an_episode_that_cannot_be_repeated_is_lost_and_the_next_works(server: Restartable):
    with SandboxClient(server.address) as client:
        program = client.register_program(UNREPEATABLE)
        (episode,) = client.reset([ResetItem(program.program_id)])
        client.step([StepItem(episode.episode_id, 0, "a")])
        server.kill()
        server.start()
        (result,) = client.step([StepItem(episode.episode_id, 1, "a")])
        assert isinstance(result.error, EpisodeLostError)
        assert "not deterministic" in str(result.error)
        (episode,) = client.reset([ResetItem(program.program_id)])
        (result,) = client.step([StepItem(episode.episode_id, 0, "a")])
        assert result.ok
