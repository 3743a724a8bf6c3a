"""Fork copies a running episode, state included."""

from __future__ import annotations

import asyncio

import pytest
from sandbox_api.errors import CapacityError, EpisodeEndedError, InvalidRequestError
from sandbox_api.types import Episode, StepItem

from tests.server.conftest import COUNTER, Sandbox, stepping
from tests.server.small import serving

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


async def test_copies_that_are_refused_leave_none_behind(jailed: Sandbox) -> None:
    episode = await _forked(jailed, max_processes=20)
    copies = await jailed.client.fork(episode.episode_id, 5)
    with pytest.raises(CapacityError, match="max_processes"):
        await jailed.client.fork(copies[0], 19)
    # What the refused ones were is gone, and there is room for as many as before.
    for _ in range(100):
        if len(jailed.episode_processes()) == 6:
            break
        await asyncio.sleep(0.05)
    assert len(jailed.episode_processes()) == 6
    copies += await jailed.client.fork(copies[0], 14)
    assert await _step(jailed, copies[-1], 0, "+") == "at 1"
    assert await jailed.client.close_episodes(copies) == 19


async def test_a_hundred_copies_of_one_call_step_together(sandbox: Sandbox) -> None:
    episode = await sandbox.start(DICE, max_processes=128)
    past = await _step(sandbox, episode.episode_id, 0, "a")
    copies = await sandbox.client.fork(episode.episode_id, 100)
    assert len({*copies, episode.episode_id}) == 101
    results = await sandbox.client.step([StepItem(c, 1, str(n)) for n, c in enumerate(copies)])
    assert all(result.ok for result in results)
    assert [result.observation.rpartition(":")[0] for result in results] == [
        f"{past} {n}" for n in range(100)
    ]
    assert await sandbox.client.close_episodes(copies) == 100


async def test_a_tree_of_copies_grows_level_by_level(sandbox: Sandbox) -> None:
    root = await sandbox.start(COUNTER, max_processes=64, seed=3)
    leaves, everyone = [root.episode_id], []
    for depth in range(3):
        forked = [await sandbox.client.fork(leaf, 3) for leaf in leaves]
        leaves = [copy for copies in forked for copy in copies]
        everyone += leaves
        steps = [StepItem(leaf, depth, "+-"[n % 2]) for n, leaf in enumerate(leaves)]
        assert all(result.ok for result in await sandbox.client.step(steps))
    assert len(set(everyone)) == 3 + 9 + 27
    # Each has the actions of its own branch, and no others.
    verdicts = await sandbox.client.verify(leaves[::9])
    assert all(verdict.reproduced for verdict in verdicts)
    assert await sandbox.client.close_episodes(everyone) == 39


async def test_a_program_with_threads_is_copied_with_its_generator(sandbox: Sandbox) -> None:
    source = DICE.replace(
        "self.seen = []",
        "self.seen = []\n        import threading, time\n"
        "        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
    )
    episode = await sandbox.start(source, max_processes=16)
    copies = await sandbox.client.fork(episode.episode_id, 3)
    rolls = {await _step(sandbox, who, 0, "a") for who in [*copies, episode.episode_id]}
    assert len(rolls) == 1
    await sandbox.client.close_episodes(copies)


async def test_a_copy_holds_no_descriptor_but_its_own(sandbox: Sandbox) -> None:
    source = stepping(
        "def is_open(fd):\n    try:\n        os.fstat(fd)\n    except OSError:\n"
        "        return False\n    return True\n"
        "return str([fd for fd in range(64) if is_open(fd)]), 0.0, False, False, {}"
    )
    episode = await sandbox.start(source, max_processes=32)
    before = await _step(sandbox, episode.episode_id, 0, "x")
    copies = await sandbox.client.fork(episode.episode_id, 20)
    found = await sandbox.client.step([StepItem(copy, 1, "x") for copy in copies])
    assert {result.observation for result in found} == {before}
    assert await _step(sandbox, episode.episode_id, 1, "x") == before
    await sandbox.client.close_episodes(copies)


async def test_copies_that_the_server_has_no_room_for_are_not_begun() -> None:
    async with serving(max_episodes=8) as small:
        (episode,) = await small.start(COUNTER, max_processes=64)
        # What loaded the program has to be gone first.
        assert await small.live_episodes(1) == 1
        assert await small.fork(episode, 8) == []
        assert (await small.load()).live_episodes == 1
        copies = await small.fork(episode, 7)
        assert len(copies) == 7
        await small.close(episode, *copies)


async def test_an_ended_episode_cannot_be_copied(sandbox: Sandbox) -> None:
    episode = await _forked(sandbox, max_processes=4, max_steps=1)
    await _step(sandbox, episode.episode_id, 0, "-")
    with pytest.raises(EpisodeEndedError):
        await sandbox.client.fork(episode.episode_id, 1)
