"""The gRPC face of the engine: batches in, streams of results out, errors mapped once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, NamedTuple

import grpc
from sandbox_api.errors import InvalidRequestError, SandboxError, UnauthenticatedError
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

from sandbox_server.audit import AuditLog
from sandbox_server.authentication import Authenticator
from sandbox_server.engine import Engine
from sandbox_server.failures import internal_error
from sandbox_server.refusal import refuse
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.metrics import outcome_name, result_name
from sandbox_server.unread import Unread

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name

# A chunk goes out when it has this many results, or when its first one has waited so
# long: small enough to delay nobody, long enough to spare a message per result.
_CHUNK_ITEMS = 256
_CHUNK_DELAY_S = 0.002
# Of results that are large, fewer go into one message. No single result is over 48 MiB.
_MESSAGE_BYTES = 16 * 1024 * 1024

# Items of a batch that are started before other calls get a turn: some milliseconds of work.
_ITEMS_AT_ONCE = 256
_TASKS_AT_ONCE = 16
# Of what a client calls a program; a right id is no longer.
_MAX_AUDITED_CHARACTERS = 64


class _Chunks:
    """Results of one streamed call, gathered into chunks as they become ready.

    Args:
        expected: How many results there will be.
        count: Called with the results of each chunk, for the metrics.
        unread: Where they count until the client has taken them, or the call is over.
    """

    def __init__(self, expected: int, count: Callable[[list[Any]], None], unread: Unread) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = expected
        self._count = count
        self._unread = unread
        self._unread_bytes = 0
        self._closed = False
        self._error: Exception | None = None
        self._results: list[Any] = []
        self._ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, result: Any) -> None:
        """Take one result."""
        self.put_all([result], result.ByteSize())

    def put_all(self, results: list[Any], size: int) -> None:
        """Take many, of about so many bytes together."""
        if self._closed:
            return
        self._unread_bytes += size
        self._unread.total_bytes += size
        self._results += results
        self._left -= len(results)
        if self._left == 0 or len(self._results) >= _CHUNK_ITEMS:
            self._ready.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(_CHUNK_DELAY_S, self._ready.set)

    def fail(self, error: Exception) -> None:
        """A result will never come: the call ends, and does not wait for it."""
        self._error = error
        self._ready.set()

    async def __aiter__(self) -> AsyncGenerator[list[Any], None]:
        while self._left or self._results:
            await self._ready.wait()
            if self._error is not None:
                raise self._error
            self._ready.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            results, self._results = self._results, []
            # Before it is read, more may come: that counts from then on.
            size, self._unread_bytes = self._unread_bytes, 0
            try:
                if results:
                    self._count(results)
                    yield results
            finally:
                self._unread.total_bytes -= size

    def close(self) -> None:
        """The call is over: what nobody has taken goes, and so does what is still to come."""
        self._closed = True
        self._results.clear()
        self._unread.total_bytes -= self._unread_bytes
        self._unread_bytes = 0


def _messages(kind: Callable[..., Any], results: list[Any]) -> Iterator[Any]:
    """Put results into as few messages as may be: one over gRPC's bound ends the whole call."""
    message = kind(results=results)
    if len(results) == 1 or message.ByteSize() <= _MESSAGE_BYTES:
        yield message
        return
    middle = len(results) // 2
    yield from _messages(kind, results[:middle])
    yield from _messages(kind, results[middle:])


def _counter() -> Callable[[list[Any]], None]:
    """What counts the results of the call in work."""
    call = calls.current()
    assert call is not None, "CallInterceptor puts one around every call"
    return call.observer()


async def _fail(context: grpc.aio.ServicerContext, error: Exception) -> None:
    if not isinstance(error, SandboxError):
        error = internal_error("a call", error)
    await refuse(context, error)


def _unary(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await method(self, self.caller(context), request)
        except Exception as error:
            await _fail(context, error)

    return call


def _streaming(
    method: Callable[..., AsyncGenerator[Any, None]],
) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(method)
    async def call(
        self: Any, request: Any, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        task = asyncio.current_task()
        assert task is not None
        try:
            caller = self.caller(context)
            timeout_s = caller.engine.config.unread_timeout_s
            async with contextlib.aclosing(method(self, caller, request)) as responses:
                async for response in responses:
                    # Nothing but a cancellation ends the wait for a client that does not read.
                    late = task.get_loop().call_later(timeout_s, task.cancel)
                    try:
                        yield response
                    finally:
                        late.cancel()
        except Exception as error:
            await _fail(context, error)

    return call


class _Caller(NamedTuple):
    """Who makes a call: a tenant, and its engine."""

    tenant: str
    engine: Engine


class SandboxService(sandbox_pb2_grpc.SandboxServiceServicer):
    """See proto/sandbox_api/v1/sandbox.proto."""

    def __init__(
        self, engines: Mapping[str, Engine], authenticator: Authenticator, audit: AuditLog
    ) -> None:
        self._engines = engines
        self._authenticator = authenticator
        self._audit = audit

    def caller(self, context: grpc.aio.ServicerContext) -> _Caller:
        """Tell who calls.

        Raises:
            UnauthenticatedError: If it is nobody who may.
        """
        tenant = ""
        try:
            tenant = self._authenticator.tenant(context)
        except UnauthenticatedError:
            self._audit.refused()
            raise
        finally:
            if call := calls.current():
                call.tenant = tenant
        return _Caller(tenant, self._engines[tenant])

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

    @_unary
    async def RegisterProgram(self, caller: _Caller, request: pb.RegisterProgramRequest) -> Any:
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

    @_streaming
    async def Reset(
        self, caller: _Caller, request: pb.ResetRequest
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
                _gather(reset, request.items, _counter(), engine.unread)
            ) as chunks:
                async for results in chunks:
                    for message in _messages(pb.ResetResponse, results):
                        yield message
            finished = True
        finally:
            if not finished:
                # The client went away. What it has read of these it rebuilds if it is still
                # there; what it has not read nobody would ever close.
                engine.close_episodes(list(started))

    @_streaming
    async def Step(
        self, caller: _Caller, request: pb.StepRequest
    ) -> AsyncGenerator[pb.StepResponse, None]:
        items = request.items
        self._check_batch(caller.engine, items)
        with contextlib.closing(_Chunks(len(items), _counter(), caller.engine.unread)) as chunks:
            for first in range(0, len(items), _ITEMS_AT_ONCE):
                if first:
                    # Let others in: a batch of thousands takes a while to start.
                    await asyncio.sleep(0)
                caller.engine.steps(items[first : first + _ITEMS_AT_ONCE], first, chunks)
            async with contextlib.aclosing(aiter(chunks)) as ready:
                async for results in ready:
                    for message in _messages(pb.StepResponse, results):
                        yield message

    @_streaming
    async def Verify(
        self, caller: _Caller, request: pb.VerifyRequest
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
            _gather(verify, request.items, _counter(), caller.engine.unread)
        ) as chunks:
            async for results in chunks:
                for message in _messages(pb.VerifyResponse, results):
                    yield message

    @_unary
    async def Fork(self, caller: _Caller, request: pb.ForkRequest) -> pb.ForkResponse:
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

    @_unary
    async def Close(self, caller: _Caller, request: pb.CloseRequest) -> pb.CloseResponse:
        return pb.CloseResponse(closed=caller.engine.close_episodes(list(request.episode_ids)))

    @_unary
    async def GetServerInfo(
        self, caller: _Caller, request: pb.GetServerInfoRequest
    ) -> pb.GetServerInfoResponse:
        return caller.engine.info()


async def _gather(
    work: Callable[[int, Any], Awaitable[Any]],
    items: Iterable[Any],
    count: Callable[[list[Any]], None],
    unread: Unread,
) -> AsyncGenerator[list[Any]]:
    """Run `work(index, item)` for all items side by side, and yield results in chunks.

    A client that goes away cancels what is still to do.
    """
    tasks: list[asyncio.Task[None]] = []
    wanted = list(items)
    chunks = _Chunks(len(wanted), count, unread)

    async def one(index: int, item: Any) -> None:
        calls.about(item, index)
        try:
            chunks(await work(index, item))
        except Exception as error:
            chunks.fail(error)

    async def start() -> None:
        for index, item in enumerate(wanted):
            tasks.append(asyncio.create_task(one(index, item)))
            if index % _TASKS_AT_ONCE == _TASKS_AT_ONCE - 1:
                # As in Step; what these do before their first wait takes longer.
                await asyncio.sleep(0)

    starting = asyncio.create_task(start())
    try:
        async with contextlib.aclosing(aiter(chunks)) as ready:
            async for results in ready:
                yield results
    finally:
        chunks.close()
        starting.cancel()
        for task in tasks:
            task.cancel()
