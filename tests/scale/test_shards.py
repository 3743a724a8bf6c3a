"""`--shards N`: several real servers behind one address, one of which may die at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from sandbox_api import (
    Access,
    AsyncSandboxClient,
    Limits,
    ResetItem,
    SandboxClient,
    StepItem,
    UnauthenticatedError,
)
from sandbox_api.errors import REASON_METADATA_KEY
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc as pb_grpc

from sandbox_server import LocalServer, owner
from tests.chaos.playing import SEEDS, none_live, play, walk
from tests.server.conftest import COUNTER, descendants
from tests.server.processes import serving
from tests.server.test_access import TOKENS, tenants_file

# Far more than any of it takes, on a machine that is busy with other tests.
_SOON_S = 60.0


def shards_of(pid: int) -> list[int]:
    """Processes of a server's shards."""
    found = []
    for below in descendants(pid):
        try:
            command = Path(f"/proc/{below}/cmdline").read_bytes()
        except OSError:
            continue
        if b"sandbox_server.shards.child" in command:
            found.append(below)
    return found


async def all_back(client: AsyncSandboxClient, count: int = 2) -> None:
    """All shards run."""
    async with asyncio.timeout(_SOON_S):
        while len((await client.server_info()).shards) < count:
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(backend="process", options=["--shards", "2"]) as running:
        yield running


@pytest.fixture
async def client(server: LocalServer) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient(server.address) as client:
        await all_back(client)
        yield client
        await none_live(client)


async def test_shards_are_as_one_server(client: AsyncSandboxClient) -> None:
    program = await client.register_program(COUNTER, limits=Limits(max_processes=2))
    episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in range(8)])
    ids = [episode.episode_id for episode in episodes]
    assert [sum(i.endswith(name) for i in ids) for name in (".0", ".1")] == [4, 4]
    results = await client.step([StepItem(i, 0, "+") for i in ids])
    assert [result.observation for result in results] == ["at 1"] * 8
    assert all([verdict.reproduced for verdict in await client.verify(ids)])
    (copy,) = await client.fork(ids[0], 1)
    (result,) = await client.step([StepItem(copy, 1, "+")])
    assert result.observation == "at 2"
    # What has replayed for the verdicts takes a moment to be gone.
    await none_live(client, besides=9)
    assert (await client.server_info()).max_episodes == 6_000
    assert await client.close_episodes([*ids, copy]) == 9


@pytest.mark.parametrize("backend", ["process", pytest.param("nsjail", marks=pytest.mark.nsjail)])
async def test_a_shard_killed_in_the_middle_of_a_batch_costs_nothing(backend: str) -> None:
    with LocalServer(backend=backend, options=["--shards", "2"]) as server:
        async with AsyncSandboxClient(server.address) as client:
            quiet = await play(client)
            victim, other = shards_of(server.process.pid)
            dead = owner.name(victim)

            async def kill(turn: int) -> None:
                if turn == 2:
                    await asyncio.sleep(0.1)
                    os.kill(victim, signal.SIGKILL)

            assert await play(client, pause_s=0.3, disturb=kill) == quiet
            await all_back(client)
            assert victim not in shards_of(server.process.pid)
            assert other in shards_of(server.process.pid)
            # The new one is as good as the old, and nothing of that is left.
            assert await play(client) == quiet
            await none_live(client)
            assert list(Path("/run/spadework").glob(dead)) == []
            assert list(Path("/sys/fs/cgroup").glob(f"*/spadework/{dead}")) == []


async def test_a_shard_that_was_replaced_between_two_steps_costs_nothing(
    server: LocalServer, client: AsyncSandboxClient
) -> None:
    program = await client.register_program(walk())
    episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in SEEDS])
    ids = [episode.episode_id for episode in episodes]
    first = await client.step([StepItem(i, 0, "1") for i in ids])
    os.kill(shards_of(server.process.pid)[0], signal.SIGKILL)
    await asyncio.sleep(0.5)
    await all_back(client)
    await client.step([StepItem(i, 1, "1") for i in ids])
    assert all([verdict.reproduced for verdict in await client.verify(ids)])
    again = await client.reset(
        [ResetItem(program.program_id, seed=s, prefix_actions=("1",)) for s in SEEDS]
    )
    assert [e.observation for e in again] == [result.observation for result in first]
    await client.close_episodes([*ids, *(episode.episode_id for episode in again)])


async def test_the_book_says_where_to_go_instead(server: LocalServer) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = pb_grpc.SandboxServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="one of the shards") as refused:
            async for _ in stub.Step(pb.StepRequest()):
                pass
        reason = dict(refused.value.trailing_metadata())[REASON_METADATA_KEY]
        assert int(reason) == pb.ERROR_REASON_INVALID_REQUEST
        info = await stub.GetServerInfo(pb.GetServerInfoRequest())
        assert sorted(shard.name for shard in info.shards) == ["0", "1"]


def test_sigterm_drains_all_shards_and_ends_with_0() -> None:
    with serving("--shards", "2", "--drain-timeout-s", "300") as server:
        shards = shards_of(server.process.pid)
        assert len(shards) == 2
        with SandboxClient(server.address) as client:
            program = client.register_program(walk(0.05))
            items = [ResetItem(program.program_id, seed=s) for s in SEEDS]
            ids = [episode.episode_id for episode in client.reset(items)]
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            turn = 0
            while ids:
                results = client.step([StepItem(i, turn, "1") for i in ids])
                assert all(result.ok for result in results)
                ids = [r.episode_id for r in results if not r.done]
                turn += 1
        assert server.process.wait(timeout=_SOON_S) == 0, server.log()
        assert not any(Path(f"/proc/{pid}").exists() for pid in shards)


def test_a_parent_that_is_killed_leaves_no_shard_behind() -> None:
    with serving("--shards", "2") as server:
        shards = shards_of(server.process.pid)
        names = [owner.name(pid) for pid in shards]
        server.process.kill()
        deadline = time.monotonic() + _SOON_S
        while not all(map(owner.is_dead, names)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_one_token_opens_the_book_and_its_shards(tmp_path: Path) -> None:
    with serving("--shards", "2", "--tenants", str(tenants_file(tmp_path))) as server:
        with SandboxClient(server.address, access=Access(TOKENS["trainer"])) as client:
            program = client.register_program(COUNTER)
            episodes = client.reset([ResetItem(program.program_id, seed=s) for s in range(4)])
            assert all(episode.ok for episode in episodes)
        with (
            SandboxClient(server.address, access=Access("x" * 43), max_retries=0) as stranger,
            pytest.raises(UnauthenticatedError),
        ):
            stranger.server_info()


def test_what_a_shard_refuses_is_told_once_and_ends_the_start() -> None:
    command = [sys.executable, "-m", "sandbox_server", "--shards", "2", "--backend", "process"]
    done = subprocess.run(
        [*command, "--address", "127.0.0.1:0", "--metrics-address", "nowhere:9464"],
        capture_output=True,
        text=True,
        timeout=_SOON_S,
        check=False,
    )
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "Traceback" not in done.stderr
