"""kill -9 of each part: no episode's result is lost or made up, and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import EpisodeLostError
from sandbox_api.types import Limits, Outcome, ResetItem, StepItem

from sandbox_server import host_process, owner
from tests.chaos.conftest import StartServer
from tests.chaos.playing import SEEDS, Transcript, none_live, play, walk
from tests.chaos.server import ChaosServer, kill_all
from tests.server.conftest import descendants
from tests.server.test_limits import stepping

# While a step takes that long, a kill in the middle of it hits it.
_STEP_S = 0.3


def _kill(victim: str, server: ChaosServer) -> None:
    if victim == "some episodes":
        kill_all(server.episodes()[::3])
    elif victim == "all episodes":
        kill_all(server.episodes())
    elif victim == "zygotes":
        kill_all(server.zygotes())
    elif victim == "jails":
        server.kill_jails()
    else:
        server.kill()
        server.start()


@pytest.mark.parametrize("victim", ["some episodes", "zygotes", "jails", "server"])
async def test_killed_during_steps_no_episode_is_lost_or_made_up(
    server: ChaosServer, undisturbed: dict[int, Transcript], victim: str
) -> None:
    async def disturb(turn: int) -> None:
        if turn in (1, 3):
            await asyncio.sleep(_STEP_S / 2)
            await asyncio.to_thread(_kill, victim, server)

    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        played = await play(client, pause_s=_STEP_S, disturb=disturb)
        assert played == undisturbed
        await none_live(client)


@pytest.mark.nsjail
@pytest.mark.parametrize("victim", ["all episodes", "zygotes", "jails", "server"])
async def test_killed_between_steps_no_episode_is_lost_or_made_up(
    start_server: StartServer, undisturbed: dict[int, Transcript], victim: str
) -> None:
    server = start_server("nsjail")

    async def disturb(turn: int) -> None:
        if turn in (1, 3):
            # Before this task waits, the step has not been sent.
            _kill(victim, server)

    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        assert await play(client, disturb=disturb) == undisturbed
        await none_live(client)


@pytest.mark.nsjail
async def test_a_server_restarted_in_a_run_loses_no_episode(
    start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    """As in an update: it drains for a while, ends what lives then, and is back."""
    server = start_server("nsjail", drain_timeout_s=0.5)

    async def disturb(turn: int) -> None:
        if turn in (1, 3):
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)

    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        assert await play(client, pause_s=_STEP_S, disturb=disturb) == undisturbed
        await none_live(client)


@pytest.mark.parametrize("victim", ["zygotes", "server"])
async def test_killed_during_a_reset_every_episode_starts_once(
    server: ChaosServer, victim: str
) -> None:
    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        program = await client.register_program(walk())
        items = [ResetItem(program.program_id, seed=seed) for seed in range(150)]
        reset = asyncio.create_task(client.reset(items))
        while not server.episodes():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(_kill, victim, server)
        episodes = await reset
        assert [repr(e.error) for e in episodes if not e.ok] == []
        ids = {episode.episode_id for episode in episodes}
        assert len(ids) == len(items)
        # What was started for a result that never arrived is gone, too.
        assert (await client.server_info()).live_episodes <= len(items)
        results = await client.step([StepItem(e.episode_id, 0, "1") for e in episodes])
        assert [repr(r.error) for r in results if not r.ok] == []
        assert (await client.server_info()).live_episodes == len(items)
        await client.close_episodes(list(ids))
        await none_live(client)


@pytest.mark.parametrize("victim", ["jails", "server"])
async def test_a_killed_part_keeps_no_call_past_its_deadline(
    server: ChaosServer, victim: str
) -> None:
    """An episode that hangs is answered in its time, whatever dies meanwhile."""
    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        hang = await client.register_program(walk(3600.0), limits=Limits(step_timeout_s=2.0))
        episodes = await client.reset([ResetItem(hang.program_id, seed=s) for s in SEEDS[:4]])
        items = [StepItem(episode.episode_id, 0, "1") for episode in episodes]
        async with asyncio.timeout(30):
            step = asyncio.create_task(client.step(items))
            await asyncio.sleep(1.0)
            await asyncio.to_thread(_kill, victim, server)
            results = await step
        # Replayed, they hang again; nothing else may be said of them.
        assert [r.outcome for r in results] == [Outcome.TIME_LIMIT] * 4
        assert [r.reward for r in results] == [None] * 4


async def test_a_zygote_that_is_stuck_keeps_no_call_past_its_deadline_and_is_replaced(
    backend: str, start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    """It neither kills nor forks any more, and does not end either."""
    server = start_server(backend, spawn_timeout_s=3.0, kill_timeout_s=1.0)
    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        hang = await client.register_program(walk(3600.0), limits=Limits(step_timeout_s=2.0))
        episodes = await client.reset([ResetItem(hang.program_id, seed=s) for s in SEEDS[:4]])
        hanging = {pid: Path(f"/proc/{pid}").stat().st_uid for pid in server.episodes()}
        for zygote in server.zygotes():
            os.kill(zygote, signal.SIGSTOP)
        async with asyncio.timeout(30):
            results = await client.step([StepItem(e.episode_id, 0, "1") for e in episodes])
        assert [r.outcome for r in results] == [Outcome.TIME_LIMIT] * 4
        # Killed all the same: by the server itself. On a busy machine they may have to wait for
        # a processor to end on.
        async with asyncio.timeout(10):
            while not all(host_process.is_ending(pid, user) for pid, user in hanging.items()):
                await asyncio.sleep(0.01)
        assert await play(client) == undisturbed
        await none_live(client)
        assert "its zygote does not answer" in server.log_file.read_text()


async def test_a_replay_that_breaks_off_is_done_again_and_orphans_no_episode(
    server: ChaosServer,
) -> None:
    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        program = await client.register_program(walk(_STEP_S))
        episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in SEEDS[:4]])
        for turn in range(2):
            await client.step([StepItem(e.episode_id, turn, "1") for e in episodes])
        (replaying,) = [zygote for zygote in server.zygotes() if not descendants(zygote)]
        verify = asyncio.create_task(client.verify([e.episode_id for e in episodes]))
        while not descendants(replaying):
            await asyncio.sleep(0.01)
        await asyncio.sleep(_STEP_S / 2)
        kill_all([replaying])
        verdicts = await verify
        assert [(v.reproduced, v.error) for v in verdicts] == [(True, None)] * 4
        await none_live(client, besides=4)
        results = await client.step([StepItem(e.episode_id, 2, "1") for e in episodes])
        assert all(result.ok for result in results)
        await client.close_episodes([e.episode_id for e in episodes])
        await none_live(client)


async def test_without_rebuilding_a_lost_episode_is_an_error_and_no_result(
    server: ChaosServer,
) -> None:
    async with AsyncSandboxClient(server.address, rebuild_lost=False) as client:
        program = await client.register_program(walk())
        (episode,) = await client.reset([ResetItem(program.program_id)])
        kill_all(server.zygotes())
        await asyncio.sleep(0.5)
        (result,) = await client.step([StepItem(episode.episode_id, 0, "1")])
        assert isinstance(result.error, EpisodeLostError)
        assert result.outcome is None
        assert result.reward is None


async def test_a_server_killed_again_and_again_leaves_nothing(server: ChaosServer) -> None:
    """Nor at once: its jails end with it; and its successor takes the rest."""
    for _ in range(2):
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(walk())
            await client.reset([ResetItem(program.program_id, seed=seed) for seed in SEEDS])
            assert len(server.episodes()) == len(SEEDS)
        server.kill()
        server.assert_no_process_left()
        server.start()
        server.assert_no_predecessor()


@pytest.mark.parametrize(
    ("body", "outcome"),
    [("os._exit(3)", Outcome.EXITED), ("os.abort()", Outcome.SIGNALED)],
    ids=["exits", "crashes"],
)
async def test_an_end_that_is_reported_late_keeps_its_outcome(
    server: ChaosServer, body: str, outcome: Outcome
) -> None:
    """As on a machine too busy to run the zygote: what is seen first is a closed socket."""
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(stepping(body))
        (episode,) = await client.reset([ResetItem(program.program_id)])
        zygotes = server.zygotes()
        for zygote in zygotes:
            os.kill(zygote, signal.SIGSTOP)
        step = asyncio.create_task(client.step([StepItem(episode.episode_id, 0, "")]))
        try:
            await asyncio.sleep(1.5)
            assert not step.done()
        finally:
            for zygote in zygotes:
                os.kill(zygote, signal.SIGCONT)
        (result,) = await step
        assert result.outcome is outcome
        assert result.reward is None


async def test_a_successor_ends_jails_that_outlived_a_killed_server(server: ChaosServer) -> None:
    """Stopped, a zygote does not see its server go; its episodes have lost theirs alike."""
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(walk())
        await client.reset([ResetItem(program.program_id, seed=seed) for seed in SEEDS])
    zygotes = server.zygotes()
    for zygote in zygotes:
        os.kill(zygote, signal.SIGSTOP)
    names = [owner.name(pid) for pid in zygotes]
    server.kill()
    await asyncio.sleep(0.5)
    assert not any(owner.is_dead(name) for name in names)
    server.start()
    server.assert_no_predecessor()
    assert all(owner.is_dead(name) for name in names)


@pytest.mark.nsjail
async def test_servers_side_by_side_reap_nothing_of_one_another(
    start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    server, other = start_server("nsjail"), start_server("nsjail")
    zygotes = server.zygotes()

    async def disturb(turn: int) -> None:
        if turn in (1, 3):
            await asyncio.to_thread(_kill, "server", other)

    async with AsyncSandboxClient(server.address, rebuild_lost=False) as client:
        assert await play(client, pause_s=0.2, disturb=disturb) == undisturbed
    assert server.zygotes() == zygotes
