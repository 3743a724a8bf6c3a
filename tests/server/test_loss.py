"""What is lost is rebuilt by the client, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest
from sandbox_api.errors import EpisodeLostError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import probe, runtime
from sandbox_server.backends import BackendError, JailProcess
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.jail import Jail
from sandbox_server.jail_pool import PLAY_HASH_SEED
from tests.server.conftest import COUNTER, Sandbox

pytestmark = pytest.mark.nsjail


async def test_a_copy_of_an_episode_whose_jail_is_gone_harms_no_episode_of_the_new_one() -> None:
    """The new jail gives the old one's user ids to others: none may be swept or given twice."""
    engine = Engine(ServerConfig(), {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        request = pb.RegisterProgramRequest(source=COUNTER, limits=pb.Limits(max_processes=4))
        item = pb.ResetItem(program_id=(await engine.register(request)).program_id)
        lost = await engine.reset(0, item)
        old = engine.jails._jails["stdlib", PLAY_HASH_SEED]
        # The registration's process has been swept up: that must not have made the zygote one
        # that outlives its nsjail.
        old._process.handle.end(0.0)
        while engine.jails._jails.get(("stdlib", PLAY_HASH_SEED), old) is old:
            await asyncio.sleep(0.05)
        new = engine.jails._jails["stdlib", PLAY_HASH_SEED]
        episode = await engine.reset(0, item)
        free = sorted(new._free_users)
        with pytest.raises(EpisodeLostError):
            await engine.fork(pb.ForkRequest(episode_id=lost.episode_id, copies=1))
        await asyncio.sleep(0.2)
        assert sorted(new._free_users) == free
        answer = probe.Answer()
        engine.steps([pb.StepItem(episode_id=episode.episode_id, action="+")], 0, answer)
        assert (await answer.result).observation == "at 1"
    finally:
        await engine.close()


@pytest.mark.parametrize("restarted", [False, True], ids=["start", "restart"])
async def test_a_jail_that_is_not_up_yet_goes_with_its_server(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(ServerConfig(backend="process"), {"stdlib": runtime.ensure("stdlib")})
    if restarted:
        await engine.start()
    waiting = []

    async def never(jail: Jail) -> None:
        waiting.append(jail)
        await asyncio.Event().wait()

    monkeypatch.setattr(Jail, "ready", never)
    if restarted:
        engine.jails._jails["stdlib", PLAY_HASH_SEED]._process.handle.end(0.0)
        while not waiting:
            await asyncio.sleep(0.01)
        await engine.close()
    else:
        start = asyncio.create_task(engine.start())
        while len(waiting) < 2:
            await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
    assert all(jail.dead for jail in waiting)


async def test_a_jail_that_does_not_come_up_holds_up_nobody_while_it_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandbox_server.jail._READY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(Jail, "_take", lambda self, message, ancillary: None)
    ended_by = []
    kill = JailProcess.kill

    def note(process: JailProcess) -> None:
        ended_by.append(threading.current_thread())
        kill(process)

    monkeypatch.setattr(JailProcess, "kill", note)
    engine = Engine(ServerConfig(backend="process"), {"stdlib": runtime.ensure("stdlib")})
    with pytest.raises(BackendError, match=r"not ready within 0\.1 s; run"):
        await engine.start()
    while len(ended_by) < 2:
        await asyncio.sleep(0.01)
    assert threading.current_thread() not in ended_by


async def test_an_episode_killed_from_outside_is_rebuilt(jailed: Sandbox) -> None:
    episode = await jailed.start(COUNTER, seed=3)
    assert (await jailed.step(episode, 0)).observation == "at 1"
    (process,) = jailed.episode_processes()
    os.kill(process, signal.SIGKILL)
    assert (await jailed.step(episode, 1)).observation == "at 2"
