"""The client across a real server's death: episodes live on, or say why they cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_api import EpisodeLostError, ResetItem, SandboxClient, StepItem

COUNT = """
import random

class CountEnv:
    def reset(self, seed=None):
        self.random = random.Random(seed)
        self.total = 0
        return "0", {}

    def step(self, action):
        self.total += int(action) * self.random.randrange(10)
        return str(self.total), 0.0, False, False, {}
"""

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


def test_episodes_survive_a_killed_server(server: Restartable):
    with SandboxClient(server.address) as client:
        program = client.register_program(COUNT)
        episodes = client.reset([ResetItem(program.program_id, seed=n) for n in range(5)])
        ids = [episode.episode_id for episode in episodes]
        seen = [
            [r.observation for r in client.step([StepItem(i, turn, "3") for i in ids])]
            for turn in range(4)
        ]
        replayed = client.reset([ResetItem(program.program_id, seed=n) for n in range(5)])
        server.kill()
        server.start()
        results = client.step([StepItem(i, 4, "3") for i in ids])
        assert [r.episode_id for r in results] == ids
        assert all(r.ok for r in results)
        # The same episodes played without a break see the same.
        whole = [e.episode_id for e in replayed]
        for turn in range(4):
            again = client.step([StepItem(i, turn, "3") for i in whole])
            assert [r.observation for r in again] == seen[turn]
        again = client.step([StepItem(i, 4, "3") for i in whole])
        assert [r.observation for r in again] == [r.observation for r in results]
        assert client.close_episodes(ids + whole) == 10


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
