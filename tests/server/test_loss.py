"""What is lost is rebuilt by the client, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import EpisodeLostError
from sandbox_api.types import ResetItem, StepItem
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import LocalServer, runtime
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.jail_pool import PLAY_HASH_SEED
from tests.server.conftest import COUNTER, Sandbox, descendants

pytestmark = pytest.mark.nsjail


def _zygotes(server: LocalServer) -> list[int]:
    return [
        pid
        for pid in descendants(server.process.pid)
        if b"worker.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and Path(f"/proc/{pid}").stat().st_uid == 1_500_000_000
    ]


async def test_a_killed_jail_loses_no_episode() -> None:
    with LocalServer(backend="nsjail") as server:
        async with AsyncSandboxClient(server.address) as client:
            sandbox = Sandbox(client, "nsjail", server)
            program = await sandbox.register(COUNTER)
            items = [ResetItem(program.program_id, seed=i) for i in range(20)]
            episodes = await sandbox.reset(items)
            steps = [StepItem(e.episode_id, 0, "+") for e in episodes]
            before = await client.step(steps)
            for zygote in _zygotes(server):
                os.kill(zygote, signal.SIGKILL)
            after = await client.step([StepItem(e.episode_id, 1, "+") for e in episodes])
            assert [r.observation for r in before] == ["at 1"] * 20
            assert [r.observation for r in after] == ["at 2"] * 20
            await sandbox.nothing_left()


async def test_a_copy_of_an_episode_whose_jail_is_gone_harms_no_episode_of_the_new_one() -> None:
    """The new jail gives the old one's user ids to others: none may be swept or given twice."""
    engine = Engine(ServerConfig(), {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        request = pb.RegisterProgramRequest(source=COUNTER, limits=pb.Limits(max_processes=4))
        item = pb.ResetItem(program_id=(await engine.register(request)).program_id)
        lost = await engine.reset(0, item)
        old = engine.jails._jails["stdlib", PLAY_HASH_SEED]
        old._process.kill()
        while engine.jails._jails.get(("stdlib", PLAY_HASH_SEED), old) is old:
            await asyncio.sleep(0.05)
        new = engine.jails._jails["stdlib", PLAY_HASH_SEED]
        episode = await engine.reset(0, item)
        free = sorted(new._free_users)
        with pytest.raises(EpisodeLostError):
            await engine.fork(pb.ForkRequest(episode_id=lost.episode_id, copies=1))
        await asyncio.sleep(0.2)
        assert sorted(new._free_users) == free
        answered: asyncio.Future[pb.StepResult] = asyncio.get_running_loop().create_future()
        step = pb.StepItem(episode_id=episode.episode_id, action="+")
        engine.step(0, step, answered.set_result)
        assert (await answered).observation == "at 1"
    finally:
        await engine.close()


async def test_an_episode_killed_from_outside_is_rebuilt(jailed: Sandbox) -> None:
    episode = await jailed.start(COUNTER, seed=3)
    assert (await jailed.step(episode, 0)).observation == "at 1"
    (process,) = jailed.episode_processes()
    os.kill(process, signal.SIGKILL)
    assert (await jailed.step(episode, 1)).observation == "at 2"


async def test_without_rebuilding_a_lost_episode_is_an_error_and_no_result() -> None:
    with LocalServer(backend="nsjail") as server:
        async with AsyncSandboxClient(server.address, rebuild_lost=False) as client:
            sandbox = Sandbox(client, "nsjail", server)
            episode = await sandbox.start(COUNTER)
            for zygote in _zygotes(server):
                os.kill(zygote, signal.SIGKILL)
            await asyncio.sleep(0.5)
            result = await sandbox.step(episode, 0)
            assert isinstance(result.error, EpisodeLostError)
            assert result.outcome is None
            assert result.reward is None


async def test_a_killed_server_leaves_no_process_and_no_cgroup() -> None:
    server = LocalServer(backend="nsjail")
    async with AsyncSandboxClient(server.address) as client:
        sandbox = Sandbox(client, "nsjail", server)
        program = await sandbox.register(COUNTER)
        await sandbox.reset([ResetItem(program.program_id, seed=i) for i in range(20)])
        everything = descendants(server.process.pid)
        assert len(everything) > 20
        server.process.kill()
        server.close()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in everything):
        assert time.monotonic() < deadline, "processes outlived the server"
        await asyncio.sleep(0.05)
