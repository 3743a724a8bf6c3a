"""Episodes that tell whether anything was lost or made up: each sees its whole past.

Played twice with the same seeds, undisturbed and disturbed, they must give the same
transcripts, step by step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, ResetItem, StepItem, StepResult

SEEDS = tuple(range(16))
# Episodes end after 4 to 7 steps.
TURNS = 7

# A reward or an observation depends on all actions before, and on the seed.
_WALK = """
import random, time

class WalkEnv:
    def reset(self, seed=None):
        self.random = random.Random(seed)
        self.turn = 0
        self.turns = 4 + seed % 4
        self.place = self.random.randrange(1000)
        return f"at {self.place}", {}

    def step(self, action):
        time.sleep(PAUSE_S)
        self.turn += 1
        self.place = (self.place * 31 + int(action) * self.random.randrange(1, 1000)) % 10007
        seen = f"turn {self.turn}, at {self.place}"
        return seen, self.place / 10007, self.turn == self.turns, False, {}
"""

Transcript = list[tuple[str, str, float | None, bool, bool]]
Disturb = Callable[[int], Coroutine[None, None, None]]


def walk(pause_s: float = 0.0) -> str:
    """The program, its steps as long as told. How long they are is nothing that it sees."""
    return _WALK.replace("PAUSE_S", repr(pause_s))


def action(seed: int, turn: int) -> str:
    return str((seed * 7 + turn * 3) % 11)


def entry(result: StepResult) -> tuple[str, str, float | None, bool, bool]:
    said = result.outcome.name if result.outcome else repr(result.error)
    return said, result.observation, result.reward, result.terminated, result.truncated


async def play(
    client: AsyncSandboxClient,
    *,
    pause_s: float = 0.0,
    seeds: Iterable[int] = SEEDS,
    disturb: Disturb | None = None,
    limits: Limits | None = None,
    call_within_s: float = 90.0,
) -> dict[int, Transcript]:
    """Play one episode a seed to its end, all in step, and close them.

    Args:
        client: Whose episodes they are.
        pause_s: How long each step takes.
        seeds: Of the episodes.
        disturb: Started beside each turn's call, with the turn's number.
        limits: Of the program.
        call_within_s: What no call may take longer than, retries included.

    Returns:
        Transcripts by seed, the first observation as their first entry.
    """
    program = await client.register_program(walk(pause_s), limits=limits)
    seeds = list(seeds)
    async with asyncio.timeout(call_within_s):
        episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in seeds])
    transcripts: dict[int, Transcript] = {}
    ids = {}
    for seed, episode in zip(seeds, episodes, strict=True):
        assert episode.ok, (episode.error, episode.diagnostic)
        ids[seed] = episode.episode_id
        transcripts[seed] = [("reset", episode.observation, None, False, False)]
    going = list(seeds)
    for turn in range(TURNS):
        items = [StepItem(ids[seed], turn, action(seed, turn)) for seed in going]
        async with asyncio.timeout(call_within_s), _beside(disturb, turn):
            results = await client.step(items)
        for seed, result in zip(going, results, strict=True):
            transcripts[seed].append(entry(result))
        going = [seed for seed, r in zip(going, results, strict=True) if r.ok and not r.done]
    await client.close_episodes(list(ids.values()))
    return transcripts


@contextlib.asynccontextmanager
async def _beside(disturb: Disturb | None, turn: int) -> AsyncIterator[None]:
    """Run a disturbance beside the block; both have ended when this has."""
    async with asyncio.TaskGroup() as group:
        if disturb is not None:
            group.create_task(disturb(turn))
        yield


async def none_live(client: AsyncSandboxClient, within_s: float = 10.0, besides: int = 0) -> None:
    """The server comes to have no live episode, or just so many."""
    async with asyncio.timeout(within_s):
        while (await client.server_info()).live_episodes != besides:
            await asyncio.sleep(0.05)
