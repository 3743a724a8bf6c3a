"""The service as it is on the wire: for what the package's own client would never ask."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc


class Wire:
    """A bare stub, with the few verbs that tests need.

    Attributes:
        started: Ids of all episodes that came of `reset` and `fork`.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.started: list[str] = []
        self.channel = channel
        self.stub: Any = sandbox_pb2_grpc.SandboxServiceStub(channel)

    async def describe(self, source: str, **limits: float) -> pb.RegisterProgramResponse:
        """Register a program, whatever comes of it."""
        request = pb.RegisterProgramRequest(source=source, limits=pb.Limits(**limits))
        return await self.stub.RegisterProgram(request, timeout=60)

    async def register(self, source: str, **limits: float) -> str:
        """Register a program that loads; returns its id."""
        program = await self.describe(source, **limits)
        assert program.outcome == pb.OUTCOME_COMPLETED, program.diagnostic
        return program.program_id

    async def reset(self, *items: pb.ResetItem) -> list[pb.ResetResult]:
        call = self.stub.Reset(pb.ResetRequest(items=items), timeout=60)
        found = [result async for response in call for result in response.results]
        self.started += [result.episode_id for result in found if result.episode_id]
        return sorted(found, key=lambda result: result.index)

    async def start(self, source: str, count: int = 1, **limits: float) -> list[str]:
        """Ids of new episodes of a program."""
        item = pb.ResetItem(program_id=await self.register(source, **limits))
        results = await self.reset(*[item] * count)
        assert all(result.episode_id for result in results), results
        return [result.episode_id for result in results]

    async def step(self, *items: pb.StepItem) -> list[pb.StepResult]:
        call = self.stub.Step(pb.StepRequest(items=items), timeout=60)
        found = [result async for response in call for result in response.results]
        return sorted(found, key=lambda result: result.index)

    async def act(self, *acts: tuple[str, int, str]) -> list[pb.StepResult]:
        """Results of (episode, index, action), in their order."""
        return await self.step(
            *[pb.StepItem(episode_id=e, step_index=i, action=a) for e, i, a in acts]
        )

    async def verify(self, episode_id: str) -> pb.Verdict:
        request = pb.VerifyRequest(items=[pb.VerifyItem(episode_id=episode_id, run_oracle=True)])
        call = self.stub.Verify(request, timeout=60)
        (verdict,) = [result async for response in call for result in response.results]
        return verdict

    async def fork(self, episode_id: str, copies: int) -> list[str]:
        """The copies; none where the episode was closed, stepped or ended meanwhile."""
        request = pb.ForkRequest(episode_id=episode_id, copies=copies)
        try:
            copies = list((await self.stub.Fork(request, timeout=60)).episode_ids)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:
                raise
            return []
        self.started += copies
        return copies

    async def close(self, *episode_ids: str) -> None:
        await self.stub.Close(pb.CloseRequest(episode_ids=episode_ids), timeout=10)

    async def info(self) -> pb.GetServerInfoResponse:
        return await self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=10)

    async def load(self) -> pb.Load:
        return (await self.info()).load

    async def live_episodes(self, expected: int) -> int:
        """How many there are, once that is what is expected or five seconds have passed."""
        for _ in range(100):
            if (await self.load()).live_episodes == expected:
                break
            await asyncio.sleep(0.05)
        return (await self.load()).live_episodes
