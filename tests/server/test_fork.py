"""Fork copies a running episode, state included."""

from __future__ import annotations

import pytest
from sandbox_api.errors import CapacityError, EpisodeEndedError, InvalidRequestError
from sandbox_api.types import Episode, StepItem

from tests.server.conftest import COUNTER, Sandbox

DICE = """
class DiceEnv:
    def reset(self, seed=None):
        self.seen = []
        return "roll", {}
    def step(self, action):
        self.seen.append(action + ":" + str(random.randint(0, 10**9)))
        return " ".join(self.seen), 0.0, False, False, {}
"""


async def _step(sandbox: Sandbox, episode_id: str, index: int, action: str) -> str:
    result = (await sandbox.client.step([StepItem(episode_id, index, action)]))[0]
    assert result.ok, (result.error, result.diagnostic)
    return result.observation


async def test_copies_share_the_past_and_not_the_future(sandbox: Sandbox) -> None:
    episode = await sandbox.start(DICE, max_processes=8)
    past = await _step(sandbox, episode.episode_id, 0, "a")
    copies = await sandbox.client.fork(episode.episode_id, 3)
    assert len(set(copies)) == 3
    everyone = [*copies, episode.episode_id]
    futures = [
        await _step(sandbox, who, 1, name) for who, name in zip(everyone, "bcde", strict=True)
    ]
    assert all(future.startswith(past + " ") for future in futures)
    assert len(set(futures)) == 4
    # The generators were copied too: all four roll the same number.
    assert len({future.rpartition(":")[2] for future in futures}) == 1
    assert await sandbox.client.close_episodes(copies) == 3


async def test_a_copy_outlives_its_original_and_can_be_copied(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, max_processes=8, seed=1)
    (copy,) = await sandbox.client.fork(episode.episode_id, 1)
    await sandbox.client.close_episodes([episode.episode_id])
    assert await _step(sandbox, copy, 0, "+") == "at 1"
    (second,) = await sandbox.client.fork(copy, 1)
    assert await _step(sandbox, second, 1, "-") == "at 1"
    verdict = (await sandbox.client.verify([second]))[0]
    assert verdict.reproduced
    await sandbox.client.close_episodes([copy, second])


async def test_a_copy_that_dies_hurts_nobody_else(sandbox: Sandbox) -> None:
    source = COUNTER.replace(
        "won = self.count",
        "__import__('os')._exit(1) if action == 'x' else 0\n        won = self.count",
    )
    episode = await sandbox.start(source, max_processes=8)
    copies = await sandbox.client.fork(episode.episode_id, 2)
    result = (await sandbox.client.step([StepItem(copies[0], 0, "x")]))[0]
    assert not result.ok
    assert result.reward is None
    assert await _step(sandbox, copies[1], 0, "-") == "at 0"
    assert await _step(sandbox, episode.episode_id, 0, "-") == "at 0"
    await sandbox.client.close_episodes(copies)


async def _forked(sandbox: Sandbox, **limits: float) -> Episode:
    return await sandbox.start(COUNTER, **limits)


async def test_forking_needs_processes_to_be_allowed(sandbox: Sandbox) -> None:
    episode = await _forked(sandbox)
    with pytest.raises(InvalidRequestError, match="max_processes"):
        await sandbox.client.fork(episode.episode_id, 1)


async def test_copies_of_copies_stay_within_the_limit(jailed: Sandbox) -> None:
    episode = await _forked(jailed, max_processes=3)
    copies = await jailed.client.fork(episode.episode_id, 2)
    with pytest.raises(CapacityError, match="max_processes"):
        await jailed.client.fork(copies[0], 2)
    await jailed.client.close_episodes(copies)


async def test_an_ended_episode_cannot_be_copied(sandbox: Sandbox) -> None:
    episode = await _forked(sandbox, max_processes=4, max_steps=1)
    await _step(sandbox, episode.episode_id, 0, "-")
    with pytest.raises(EpisodeEndedError):
        await sandbox.client.fork(episode.episode_id, 1)
