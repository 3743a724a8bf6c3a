"""Thousands of calls at once, and clients that do not read what they asked for."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, ResetItem, StepItem
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

from tests.chaos.conftest import StartServer
from tests.chaos.playing import Transcript, action, none_live, play, walk
from tests.chaos.server import ChaosServer

_MIB = 1 << 20
_CALLS = 4_000


@pytest.mark.nsjail
async def test_4000_calls_in_flight_are_all_answered(start_server: StartServer) -> None:
    """Each of 100 episodes is asked for the same step 40 times, by a call each.

    gRPC's own bounds would cancel most of them without a word. Idempotent steps: all 40 get
    the one result.
    """
    server = start_server("nsjail")
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(walk(2.0))
        items = [ResetItem(program.program_id, seed=seed) for seed in range(100)]
        episodes = await client.reset(items)
        info = await client.server_info()
        assert info.live_episodes == 100
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = sandbox_pb2_grpc.SandboxServiceStub(channel)

            async def step(number: int) -> pb.StepResult:
                seed = number % 100
                item = pb.StepItem(episode_id=episodes[seed].episode_id, action=action(seed, 0))
                request = pb.StepRequest(items=[item])
                found = []
                async for response in stub.Step(request, timeout=60):
                    found += response.results
                (result,) = found
                return result

            results = await asyncio.gather(*(step(number) for number in range(_CALLS)))
        seen: dict[int, set[tuple[str, float]]] = {}
        for number, result in enumerate(results):
            assert result.outcome == pb.OUTCOME_COMPLETED, result
            seen.setdefault(number % 100, set()).add((result.observation, result.reward))
        assert [len(answers) for answers in seen.values()] == [1] * 100
        assert (await client.server_info()).steps_total - info.steps_total == 100
        # The client's own bound on calls: the rest of them wait, and none is cancelled.
        again = [StepItem(e.episode_id, 1, action(s, 1)) for s, e in enumerate(episodes)]
        answers = await asyncio.gather(*(client.step([again[n % 100]]) for n in range(_CALLS)))
        assert all(answer[0].ok for answer in answers)
        await client.close_episodes([episode.episode_id for episode in episodes])
        await none_live(client)


_LARGE = """
class LargeEnv:
    def reset(self, seed=None):
        return "go", {}
    def step(self, action):
        return "x" * (1 << 20), 0.0, False, False, {}
"""
_EPISODES = 16


@pytest.mark.nsjail
async def test_a_client_that_reads_nothing_fills_no_memory_and_delays_nobody(
    start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    """It asks for 16 MiB a call, up to 1 GiB, and reads none of it."""
    server = start_server("nsjail", max_unread_bytes=64 * _MIB, unread_timeout_s=5.0)
    limits = Limits(max_observation_bytes=2 * _MIB)
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(_LARGE, limits=limits)
        resets = [ResetItem(program.program_id) for _ in range(_EPISODES)]
        episodes = await client.reset(resets)
        before = server.memory_bytes()
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
            unread = []
            taken = (await client.server_info()).steps_total
            for index in range(64):
                items = [pb.StepItem(episode_id=e.episode_id, step_index=index) for e in episodes]
                # Not awaited: nothing is read of what comes.
                unread.append(stub.Step(pb.StepRequest(items=items)))
                try:
                    async with asyncio.timeout(3):
                        while (await client.server_info()).steps_total < taken + _EPISODES:
                            await asyncio.sleep(0.01)
                except TimeoutError:
                    # This call was refused, and so would be all others.
                    break
                taken += _EPISODES
            assert index > 3
            started = time.monotonic()
            assert await play(client, seeds=[1]) == {1: undisturbed[1]}
            assert time.monotonic() - started < 20
            assert server.memory_bytes() - before < 384 * _MIB
            # In the end the server gives such calls up, and others have the room again.
            async with asyncio.timeout(60):
                while True:
                    results = await client.step([StepItem(episodes[0].episode_id, 999, "x")])
                    if "unread" not in str(results[0].error):
                        break
                    await asyncio.sleep(0.2)
            del unread
        await client.close_episodes([e.episode_id for e in episodes])
        await none_live(client)


@pytest.mark.nsjail
async def test_a_slow_reader_gets_every_result(server: ChaosServer) -> None:
    """Slower than the server sends, and faster than it gives up."""
    limits = Limits(max_observation_bytes=2 * _MIB)
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(_LARGE, limits=limits)
        episodes = await client.reset([ResetItem(program.program_id) for _ in range(48)])
        items = [pb.StepItem(episode_id=e.episode_id) for e in episodes]
        options = [("grpc.max_receive_message_length", 64 * _MIB)]
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
            found = []
            async for response in stub.Step(pb.StepRequest(items=items), timeout=60):
                found += [(result.index, len(result.observation)) for result in response.results]
                await asyncio.sleep(0.5)
        assert sorted(found) == [(index, _MIB) for index in range(48)]
        await client.close_episodes([e.episode_id for e in episodes])
