"""Thousands of episodes in one process: bounded places, gathered calls, no waiting for others."""

from __future__ import annotations

import asyncio
import random
import resource
import time

import pytest
from sandbox_api.client import AsyncSandboxClient

from sandbox_server import LocalServer
from tests.trainer.fakes import FakeSandboxClient, grid_source
from trainer.policies import Policy, RunningEpisode
from trainer.rollouts import play_all
from trainer.trajectories import Play

TURNS = 5


class Thinking(Policy):
    """Takes a while over each action, some longer than others.

    Attributes:
        slow: Seeds whose episodes wait for `let_go`. The first actions wait until so many
            episodes are there as `together` says.
        most: Episodes that were thought over at once.
    """

    def __init__(self, think_s: float, slow: set[int] | None = None, together: int = 0) -> None:
        self._think_s = think_s
        self._rng = random.Random(0)
        self.slow = slow or set()
        self._together = together
        self._all_there = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ended: list[int] = []
        self.running: set[str] = set()
        self.most = 0

    async def start(self, episode: RunningEpisode) -> None:
        self.running.add(episode.episode_id)
        self.most = max(self.most, len(self.running))
        if self.most >= self._together:
            self._all_there.set()

    async def act(self, episode: RunningEpisode) -> str:
        await self._all_there.wait()
        if episode.trajectory.play.seed in self.slow:
            await self.let_go.wait()
        await asyncio.sleep(self._think_s * self._rng.random())
        return "NSEW"[episode.trajectory.play.seed % 4]

    def end(self, episode: RunningEpisode) -> None:
        self.running.discard(episode.episode_id)
        self.ended.append(episode.trajectory.play.seed)


async def sandbox() -> tuple[FakeSandboxClient, str]:
    client = FakeSandboxClient()
    program = await client.register_program(grid_source(9))
    return client, program.program_id


async def test_thousands_are_in_flight_and_their_calls_are_gathered() -> None:
    client, program_id = await sandbox()
    policy = Thinking(0.2)
    plays = [Play("grid", program_id, seed, max_turns=TURNS) for seed in range(6_000)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    trajectories, count = await play_all(client, policy, plays, max_concurrent=4_000, cohorts=0)
    took = time.perf_counter() - started
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    assert [t.play.seed for t in trajectories] == list(range(6_000))
    assert not any(t.lost for t in trajectories)
    assert policy.most == 4_000
    assert not client.live
    # Each step by itself would be a call of its own.
    assert sum(client.step_batches) == count.steps
    assert len(client.step_batches) < count.steps / 20
    # What an episode costs here: no more than a millisecond a step and 100 KiB.
    assert took < count.steps / 1000
    assert grown_mib < 400


async def test_a_slow_episode_holds_up_nobody_and_places_are_used_again() -> None:
    client, program_id = await sandbox()
    policy = Thinking(0.001, slow={0})
    plays = [Play("grid", program_id, seed, max_turns=TURNS) for seed in range(200)]

    async def let_go_at_last() -> None:
        while len(policy.ended) < 199:
            await asyncio.sleep(0.01)
        policy.let_go.set()

    async with asyncio.timeout(30):
        (trajectories, _), _ = await asyncio.gather(
            play_all(client, policy, plays, max_concurrent=4, cohorts=0), let_go_at_last()
        )
    assert policy.ended[-1] == 0
    assert policy.most == 4
    assert all(t.episode_return is not None for t in trajectories)


@pytest.mark.slow
async def test_hundreds_are_in_flight_at_a_real_server() -> None:
    policy = Thinking(0.05, together=300)
    # Our own program: no jail is needed.
    with LocalServer(backend="process") as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(grid_source(9))
            plays = [Play("grid", program.program_id, s, max_turns=TURNS) for s in range(400)]
            trajectories, count = await play_all(
                client, policy, plays, max_concurrent=300, cohorts=0
            )
    assert policy.most == 300
    assert not any(t.lost for t in trajectories)
    assert count.steps == sum(len(t.turns) for t in trajectories)
