"""Every limit of an episode ends it with its own outcome, in time, and hurts nobody else."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_api.types import Outcome, ResetItem, StepItem

from sandbox_server.cgroups import usable_controllers
from tests.server.conftest import COUNTER, Sandbox, stepping

pytestmark = pytest.mark.nsjail

_MIB = 1024 * 1024

needs_meters = pytest.mark.skipif(
    "cpuacct" not in usable_controllers(), reason="needs the cpuacct controller, and root"
)


async def test_a_long_observation_is_cut_and_says_by_how_much(sandbox: Sandbox) -> None:
    source = stepping("return 'ä' * 1000, 0.5, False, False, {}")
    result = await sandbox.play_one(source, max_observation_bytes=101)
    assert result.ok
    assert result.observation == "ä" * 50
    assert result.observation_cut_bytes == 2000 - 100
    assert result.reward == 0.5


async def test_a_long_action_is_refused_and_the_episode_goes_on(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, max_action_bytes=10)
    refused = await sandbox.step(episode, 0, "ä" * 6)
    assert refused.error is not None
    assert "max_action_bytes" in str(refused.error)
    assert (await sandbox.step(episode, 0, "ä" * 5)).ok


async def test_max_steps_truncates(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, max_steps=2)
    assert not (await sandbox.step(episode, 0, "-")).done
    assert (await sandbox.step(episode, 1, "-")).truncated


@pytest.mark.parametrize("limit", ["idle_timeout_s", "lifetime_s"])
async def test_an_episode_ends_when_it_is_idle_or_old(sandbox: Sandbox, limit: str) -> None:
    await sandbox.start(COUNTER, **{limit: 0.5})
    other = await sandbox.start(COUNTER)
    await asyncio.sleep(3)
    info = await sandbox.client.server_info()
    assert info.ended_total.get(limit.split("_")[0], 0) >= 1
    assert (await sandbox.step(other, 0)).ok


async def test_an_items_own_timeout_wins(sandbox: Sandbox) -> None:
    episode = await sandbox.start(stepping("time.sleep(30)"))
    started = time.monotonic()
    item = StepItem(episode.episode_id, 0, "x", timeout_s=0.3)
    result = (await sandbox.client.step([item]))[0]
    assert result.outcome is Outcome.TIME_LIMIT
    assert time.monotonic() - started < 5


async def test_loading_and_resetting_have_deadlines(sandbox: Sandbox) -> None:
    program = await sandbox.register("while True: pass", load_timeout_s=0.5)
    assert program.outcome is Outcome.TIME_LIMIT
    assert program.diagnostic is not None
    assert program.diagnostic.limit == "load_timeout_s"
    source = COUNTER.replace('return f"count', 'time.sleep(30)\n        return f"count')
    program = await sandbox.register(source, step_timeout_s=0.5)
    episode = (await sandbox.reset([ResetItem(program.program_id)]))[0]
    assert episode.outcome is Outcome.TIME_LIMIT
    assert not episode.episode_id
    await sandbox.still_works()


# Each of its processes is far below the limit of one.
SERIAL = (
    "while True:\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        end = time.process_time() + 0.3\n"
    "        while time.process_time() < end: pass\n"
    "        os._exit(0)\n"
    "    os.waitpid(pid, 0)"
)
# The step is answered, and what it forked goes on.
BEHIND = (
    "if action == 'go' and os.fork() == 0:\n"
    "    while True:\n"
    "        if os.fork(): os._exit(0)\n"
    "        end = time.process_time() + 0.3\n"
    "        while time.process_time() < end: pass"
)


@needs_meters
@pytest.mark.parametrize("body", [SERIAL, BEHIND], ids=["one after another", "behind its back"])
async def test_cpu_time_is_that_of_all_processes_of_an_episode(jailed: Sandbox, body: str) -> None:
    episode = await jailed.start(stepping(body), cpu_time_s=1, step_timeout_s=40, max_processes=4)
    started, index = time.monotonic(), 0
    result = await jailed.step(episode, index, "go")
    while result.ok and time.monotonic() - started < 40:
        await asyncio.sleep(0.2)
        index += 1
        result = await jailed.step(episode, index, "look")
    assert result.outcome is Outcome.TIME_LIMIT
    assert result.diagnostic is not None
    assert result.diagnostic.limit == "cpu_time_s"
    await jailed.nothing_left()
    await jailed.still_works()


@needs_meters
async def test_meters_of_cpu_time_go_with_their_episodes(jailed: Sandbox) -> None:
    meters = jailed.cpu_meters()
    episode = await jailed.start(COUNTER, max_processes=2)
    made = jailed.cpu_meters() - meters
    assert made
    await jailed.client.close_episodes([episode.episode_id])
    for _ in range(100):
        if not any(folder.exists() for folder in made):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"left behind: {made}")
