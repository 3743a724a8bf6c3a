"""The verbs of the contract: batches in, streams of results out.

`reception.py` makes gRPC's handlers of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

import grpc
from sandbox_api.errors import InvalidRequestError, UnavailableError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.audit import AuditLog
from sandbox_server.chunks import Chunks, gather, messages
from sandbox_server.engine import Engine
from sandbox_server.step_stream import ITEMS_AT_ONCE, StepStream
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.metrics import outcome_name, result_name

# Of what a client calls a program; a right id is no longer.
_MAX_AUDITED_CHARACTERS = 64


def _counter() -> Callable[[list[Any]], None]:
    """What counts the results of the call in work."""
    call = calls.current()
    assert call is not None, "the reception puts one around every call"
    return call.observer()


class Caller(NamedTuple):
    """Who makes a call: a tenant, and its engine."""

    tenant: str
    engine: Engine


class SandboxService:
    """See proto/sandbox_api/v1/sandbox.proto.

    Args:
        engines: By the tenant's name.
        audit: Is told what is done.
    """

    def __init__(self, engines: Mapping[str, Engine], audit: AuditLog) -> None:
        self._engines = engines
        self._audit = audit
        self._streams: defaultdict[str, set[StepStream]] = defaultdict(set)
        self._ending = False

    def caller(self, tenant: str) -> Caller:
        """A tenant as one who calls."""
        return Caller(tenant, self._engines[tenant])

    def open_streams(self, tenant: str) -> int:
        """How many streams of a tenant are open."""
        return len(self._streams[tenant])

    def end_streams(self) -> None:
        """Let open streams end when what is in work is answered, and open no more."""
        self._ending = True
        for streams in self._streams.values():
            for stream in streams:
                stream.finish()

    @staticmethod
    def _check_batch(engine: Engine, items: Any) -> None:
        engine.unread.admit()
        most = engine.config.max_batch_items
        if not items:
            raise InvalidRequestError("the request has no items")
        if len(items) > most:
            raise InvalidRequestError(
                f"the request has {len(items)} items; this server takes {most} in one call"
            )

    async def RegisterProgram(self, caller: Caller, request: pb.RegisterProgramRequest) -> Any:
        caller.engine.check_open()
        response = await caller.engine.register(request)
        _counter()([response])
        self._audit.record(
            "register",
            caller.tenant,
            program=response.program_id,
            outcome=outcome_name(response.outcome),
        )
        return response

    async def Reset(
        self, caller: Caller, request: pb.ResetRequest
    ) -> AsyncGenerator[pb.ResetResponse, None]:
        engine = caller.engine
        self._check_batch(engine, request.items)
        engine.check_open()
        started: set[str] = set()

        async def reset(index: int, item: pb.ResetItem) -> pb.ResetResult:
            result = await engine.reset(index, item)
            started.add(result.episode_id)
            self._audit.record(
                "reset",
                caller.tenant,
                program=item.program_id[:_MAX_AUDITED_CHARACTERS],
                episode=result.episode_id,
                outcome=result_name(result),
            )
            return result

        finished = False
        try:
            async with contextlib.aclosing(
                gather(reset, request.items, _counter(), engine.unread)
            ) as chunks:
                async for results in chunks:
                    for message in messages(pb.ResetResponse, results):
                        yield message
            finished = True
        finally:
            if not finished:
                # The client went away. What it has read of these it rebuilds if it is still
                # there; what it has not read nobody would ever close.
                engine.close_episodes(list(started))

    async def Step(
        self, caller: Caller, request: pb.StepRequest
    ) -> AsyncGenerator[pb.StepResponse, None]:
        items = request.items
        self._check_batch(caller.engine, items)
        with contextlib.closing(Chunks(len(items), _counter(), caller.engine.unread)) as chunks:
            for first in range(0, len(items), ITEMS_AT_ONCE):
                if first:
                    # Let others in: a batch of thousands takes a while to start.
                    await asyncio.sleep(0)
                caller.engine.steps(items[first : first + ITEMS_AT_ONCE], first, chunks)
            async with contextlib.aclosing(aiter(chunks)) as ready:
                async for results in ready:
                    for message in messages(pb.StepResponse, results):
                        yield message

    async def Play(
        self, caller: Caller, call: calls.Call, context: grpc.aio.ServicerContext
    ) -> None:
        """Serve one stream of steps; it writes its results itself."""
        streams, config = self._streams[caller.tenant], caller.engine.config
        if self._ending:
            raise UnavailableError("the server ends; use another", config.retry_delay_s)
        if len(streams) >= config.max_streams:
            raise config.full(f"{len(streams)} streams are open, the bound; close some")
        stream = StepStream(caller.engine, call, context)
        streams.add(stream)
        try:
            await stream.run()
        finally:
            streams.discard(stream)

    async def Verify(
        self, caller: Caller, request: pb.VerifyRequest
    ) -> AsyncGenerator[pb.VerifyResponse, None]:
        self._check_batch(caller.engine, request.items)

        async def verify(index: int, item: pb.VerifyItem) -> pb.Verdict:
            verdict = await caller.engine.verify(index, item)
            self._audit.record(
                "verify",
                caller.tenant,
                episode=item.episode_id,
                outcome=result_name(verdict),
            )
            return verdict

        async with contextlib.aclosing(
            gather(verify, request.items, _counter(), caller.engine.unread)
        ) as chunks:
            async for results in chunks:
                for message in messages(pb.VerifyResponse, results):
                    yield message

    async def Fork(self, caller: Caller, request: pb.ForkRequest) -> pb.ForkResponse:
        caller.engine.check_open()
        calls.about(request)
        response = pb.ForkResponse(episode_ids=await caller.engine.fork(request))
        _counter()([response])
        for copy in response.episode_ids:
            self._audit.record(
                "fork",
                caller.tenant,
                original=request.episode_id[: calls.SHOWN_ID_CHARACTERS],
                episode=copy,
            )
        return response

    async def Close(self, caller: Caller, request: pb.CloseRequest) -> pb.CloseResponse:
        return pb.CloseResponse(closed=caller.engine.close_episodes(list(request.episode_ids)))

    async def GetServerInfo(
        self, caller: Caller, request: pb.GetServerInfoRequest
    ) -> pb.GetServerInfoResponse:
        return caller.engine.info()
