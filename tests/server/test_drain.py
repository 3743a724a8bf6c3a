"""A server that is told to end takes nothing new, and ends no episode before its time is up."""

from __future__ import annotations

import asyncio
import signal
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import UnavailableError
from sandbox_api.types import Limits, ResetItem, StepItem

from tests.server.conftest import COUNTER
from tests.server.processes import ServerProcess, serving

# Far more than any of it takes, on a machine that is busy with other tests.
_SOON_S = 80.0

SLOW = """
import time

class SlowEnv:
    def reset(self, seed=None):
        self.count = 0
        return "ready", {}

    def step(self, action):
        time.sleep(0.05)
        self.count += 1
        return f"at {self.count}", float(self.count), self.count == 20, False, {}
"""


def _end(server: ServerProcess) -> None:
    """Wait for the server to end by itself with status 0, far before a drain of 300 s is over."""
    assert server.process.wait(timeout=_SOON_S) == 0, server.log()


async def _draining(server: ServerProcess) -> None:
    """Tell the server to end, and wait until it says that it drains."""
    server.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _SOON_S
    while not any("draining:" in line for line in server.log()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def _health(server: ServerProcess) -> int:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest())).status


async def test_a_server_without_episodes_ends_at_once() -> None:
    with serving("--drain-timeout-s", "300") as server:
        assert await _health(server) == health_pb2.HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        _end(server)


async def test_live_episodes_are_stepped_verified_and_closed_while_nothing_new_is_taken() -> None:
    with serving("--drain-timeout-s", "300") as server:
        async with AsyncSandboxClient(server.address, max_retries=0) as client:
            program = await client.register_program(COUNTER, limits=Limits(max_processes=4))
            items = [ResetItem(program.program_id, seed=i) for i in range(8)]
            ids = [episode.episode_id for episode in await client.reset(items)]
            await _draining(server)
            assert await _health(server) == health_pb2.HealthCheckResponse.NOT_SERVING
            for refused in (
                client.register_program(COUNTER + "\n# another"),
                client.fork(ids[0], 1),
            ):
                with pytest.raises(UnavailableError, match="draining"):
                    await refused
            (late,) = await client.reset(items[:1])
            assert isinstance(late.error, UnavailableError)
            assert "draining" in str(late.error)
            stepped = await client.step([StepItem(i, 0, "+") for i in ids])
            assert [r.observation for r in stepped] == ["at 1"] * 8
            assert all(v.reproduced for v in await client.verify(ids))
            assert server.process.poll() is None
            await client.close_episodes(ids)
            _end(server)


async def test_no_step_of_a_server_that_drains_under_load_is_lost_or_made_up() -> None:
    """32 episodes of 20 steps each, stepped all the while; the server is told at the start."""
    with serving("--drain-timeout-s", "120") as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(SLOW)
            items = [ResetItem(program.program_id, seed=i) for i in range(32)]
            ids = [episode.episode_id for episode in await client.reset(items)]
            rewards: list[list[float | None]] = [[] for _ in ids]

            async def play(number: int) -> None:
                for index in range(20):
                    (result,) = await client.step([StepItem(ids[number], index, "a")])
                    assert result.ok, (index, result.error)
                    rewards[number].append(result.reward)

            plays = asyncio.gather(*(play(number) for number in range(len(ids))))
            await asyncio.sleep(0.2)
            await _draining(server)
            await plays
            _end(server)
    assert rewards == [[float(step) for step in range(1, 21)]] * 32


async def test_what_the_drain_cuts_off_is_rebuilt_on_the_next_server() -> None:
    """The client cannot tell, but for the time it takes: results are those of one whole play."""
    with serving("--drain-timeout-s", "0.5") as server:
        port = server.address.rpartition(":")[2]
        async with AsyncSandboxClient(server.address, max_retries=50) as client:
            program = await client.register_program(SLOW)
            ids = [e.episode_id for e in await client.reset([ResetItem(program.program_id)])]
            rewards = []

            async def play() -> None:
                for index in range(20):
                    (result,) = await client.step([StepItem(ids[0], index, "a")])
                    assert result.ok, (index, result.error)
                    rewards.append(result.reward)
                    await asyncio.sleep(0.4)

            playing = asyncio.create_task(play())
            await asyncio.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(_end, server)
            assert not playing.done()
            with serving("--address", f"127.0.0.1:{port}"):
                await asyncio.wait_for(playing, _SOON_S)
    assert rewards == [float(step) for step in range(1, 21)]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_wait(second: signal.Signals) -> None:
    with serving("--drain-timeout-s", "300") as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(SLOW)
            await client.reset([ResetItem(program.program_id)])
            await _draining(server)
            server.process.send_signal(second)
            _end(server)


async def test_an_idle_episode_holds_the_end_up_for_the_drain_timeout_and_no_longer() -> None:
    with serving("--drain-timeout-s", "1") as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(SLOW)
            await client.reset([ResetItem(program.program_id)])
            started = time.monotonic()
            await _draining(server)
            await asyncio.to_thread(_end, server)
            assert 0.9 < time.monotonic() - started < _SOON_S
            assert any("1 episodes are live, and end now" in line for line in server.log())
