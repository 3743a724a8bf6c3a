"""The gRPC face of the engine: batches in, streams of results out, errors mapped once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from sandbox_api.errors import (
    REASON_METADATA_KEY,
    RETRY_DELAY_METADATA_KEY,
    InvalidRequestError,
    SandboxError,
)
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

from sandbox_server.config import AddressError
from sandbox_server.engine import Engine
from sandbox_server.failures import internal_error
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.calls import CallInterceptor
from sandbox_server.telemetry.exposition import registry
from sandbox_server.telemetry.http import MetricsServer

_log = logging.getLogger(__name__)

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name

# A chunk goes out when it has this many results, or when its first one has waited so
# long: small enough to delay nobody, long enough to spare a message per result.
_CHUNK_ITEMS = 256
_CHUNK_DELAY_S = 0.002
# Of results that are large, fewer go into one message. No single result is over 48 MiB.
_MESSAGE_BYTES = 16 * 1024 * 1024

# How often a draining server looks whether an episode still lives.
_DRAIN_LOOK_S = 0.05

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    # Past about 1,000 calls in flight the defaults cancel silently.
    ("grpc.server.max_pending_requests", 16_384),
    ("grpc.server.max_pending_requests_hard_limit", 32_768),
    ("grpc.so_reuseport", 0),
    # Clients ping while they wait for a slow batch; by default that is an offence.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
]


class _Chunks:
    """Results of one streamed call, gathered into chunks as they become ready.

    Args:
        expected: How many results there will be.
        count: Called with each result, for the metrics.
    """

    def __init__(self, expected: int, count: Callable[[Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = expected
        self._count = count
        self._results: list[Any] = []
        self._ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, result: Any) -> None:
        self._count(result)
        self._results.append(result)
        self._left -= 1
        if self._left == 0 or len(self._results) >= _CHUNK_ITEMS:
            self._ready.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(_CHUNK_DELAY_S, self._ready.set)

    async def __aiter__(self) -> AsyncIterator[list[Any]]:
        while self._left or self._results:
            await self._ready.wait()
            self._ready.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            results, self._results = self._results, []
            if results:
                yield results


def _messages(kind: Callable[..., Any], results: list[Any]) -> Iterator[Any]:
    """Put results into as few messages as may be: one over gRPC's bound ends the whole call."""
    message = kind(results=results)
    if len(results) == 1 or message.ByteSize() <= _MESSAGE_BYTES:
        yield message
        return
    middle = len(results) // 2
    yield from _messages(kind, results[:middle])
    yield from _messages(kind, results[middle:])


def _details(error: SandboxError) -> tuple[tuple[str, str], ...]:
    metadata = [(REASON_METADATA_KEY, str(error.reason))]
    if call := calls.current():
        metadata.append((calls.REQUEST_ID_METADATA_KEY, call.request_id))
    if error.retry_delay_s:
        metadata.append((RETRY_DELAY_METADATA_KEY, str(error.retry_delay_s)))
    return tuple(metadata)


def _counter() -> Callable[[Any], None]:
    """What counts the results of the call in work."""
    call = calls.current()
    assert call is not None, "CallInterceptor puts one around every call"
    return call.observer()


async def _abort(context: grpc.aio.ServicerContext, error: Exception) -> None:
    if not isinstance(error, SandboxError):
        error = internal_error("a call", error)
    if call := calls.current():
        call.counts.refused(call.verb, error.reason)
    await context.abort(error.status, str(error), _details(error))


def _unary(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await method(self, request)
        except Exception as error:
            await _abort(context, error)

    return call


def _streaming(
    method: Callable[..., AsyncGenerator[Any, None]],
) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(method)
    async def call(
        self: Any, request: Any, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        try:
            async with contextlib.aclosing(method(self, request)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            await _abort(context, error)

    return call


class SandboxService(sandbox_pb2_grpc.SandboxServiceServicer):
    """See proto/sandbox_api/v1/sandbox.proto."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _check_batch(self, items: Any) -> None:
        most = self._engine.config.max_batch_items
        if not items:
            raise InvalidRequestError("the request has no items")
        if len(items) > most:
            raise InvalidRequestError(
                f"the request has {len(items)} items; this server takes {most} in one call"
            )

    @_unary
    async def RegisterProgram(self, request: pb.RegisterProgramRequest) -> Any:
        self._engine.check_open()
        response = await self._engine.register(request)
        _counter()(response)
        return response

    @_streaming
    async def Reset(self, request: pb.ResetRequest) -> AsyncGenerator[pb.ResetResponse, None]:
        self._check_batch(request.items)
        self._engine.check_open()
        started: set[str] = set()

        async def reset(index: int, item: pb.ResetItem) -> pb.ResetResult:
            result = await self._engine.reset(index, item)
            started.add(result.episode_id)
            return result

        finished = False
        try:
            async with contextlib.aclosing(_gather(reset, request.items, _counter())) as chunks:
                async for results in chunks:
                    for message in _messages(pb.ResetResponse, results):
                        yield message
            finished = True
        finally:
            if not finished:
                # The client went away. What it has read of these it rebuilds if it is still
                # there; what it has not read nobody would ever close.
                self._engine.close_episodes(list(started))

    @_streaming
    async def Step(self, request: pb.StepRequest) -> AsyncGenerator[pb.StepResponse, None]:
        items = request.items
        self._check_batch(items)
        chunks = _Chunks(len(items), _counter())
        step, put = self._engine.step, chunks.put
        for index, item in enumerate(items):
            step(index, item, put)
        async for results in chunks:
            for message in _messages(pb.StepResponse, results):
                yield message

    @_streaming
    async def Verify(self, request: pb.VerifyRequest) -> AsyncGenerator[pb.VerifyResponse, None]:
        self._check_batch(request.items)
        verdicts = _gather(self._engine.verify, request.items, _counter())
        async with contextlib.aclosing(verdicts) as chunks:
            async for results in chunks:
                for message in _messages(pb.VerifyResponse, results):
                    yield message

    @_unary
    async def Fork(self, request: pb.ForkRequest) -> pb.ForkResponse:
        self._engine.check_open()
        calls.about(request)
        response = pb.ForkResponse(episode_ids=await self._engine.fork(request))
        _counter()(response)
        return response

    @_unary
    async def Close(self, request: pb.CloseRequest) -> pb.CloseResponse:
        return pb.CloseResponse(closed=self._engine.close_episodes(list(request.episode_ids)))

    @_unary
    async def GetServerInfo(self, request: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        return self._engine.info()


async def _gather(
    work: Callable[[int, Any], Awaitable[Any]], items: Iterable[Any], count: Callable[[Any], None]
) -> AsyncGenerator[list[Any]]:
    """Run `work(index, item)` for all items side by side, and yield results in chunks.

    A client that goes away cancels what is still to do.
    """
    tasks: list[asyncio.Task[None]] = []
    wanted = list(items)
    chunks = _Chunks(len(wanted), count)

    async def one(index: int, item: Any) -> None:
        calls.about(item, index)
        chunks.put(await work(index, item))

    try:
        tasks = [asyncio.create_task(one(i, item)) for i, item in enumerate(wanted)]
        async for results in chunks:
            yield results
    finally:
        for task in tasks:
            task.cancel()


class Server:
    """A gRPC server around one engine, with health and reflection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopped = False
        self._metrics = MetricsServer(registry(engine))
        self._health = health.aio.HealthServicer()
        interceptors = [CallInterceptor(SERVICE_NAME, engine.metrics)]
        self._server = grpc.aio.server(options=_CHANNEL_OPTIONS, interceptors=interceptors)
        sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(SandboxService(engine), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self) -> str:
        """Start the engine, then listen.

        Returns:
            The address clients use, with the port that was chosen.

        Raises:
            AddressError: If the address, or that of the metrics, cannot be had.
            BackendError: If a protection is not in force.
        """
        address = self._engine.config.address
        _refuse_taken(address)
        try:
            # Before the jails, which take a while: a taken port is told at once.
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            raise AddressError(
                f"cannot listen on {address}: it is taken, or not this machine's; name another "
                "as host:port (port 0: any free one) or unix:/path"
            ) from None
        if wanted := self._engine.config.metrics_address:
            _log.info("metrics: http://%s/metrics", await self._metrics.start(wanted))
        await self._engine.start()
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    async def _set_health(self, status: Any) -> None:
        for name in ("", SERVICE_NAME):
            await self._health.set(name, status)

    async def drain(self, cut_short: asyncio.Event) -> None:
        """Take no new episodes, and let those that live go on to their ends.

        Returns when none lives any more, when `drain_timeout_s` has passed, or when
        `cut_short` is set. `stop` is to follow.
        """
        timeout_s = self._engine.config.drain_timeout_s
        self._engine.drain()
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        _log.info(
            "draining: %d episodes are live; waiting for them for at most %g s",
            self._engine.jails.live,
            timeout_s,
        )
        deadline = time.monotonic() + timeout_s
        while self._engine.jails.live and not cut_short.is_set():
            if time.monotonic() > deadline:
                _log.warning(
                    "drained for %g s; %d episodes are live, and end now",
                    timeout_s,
                    self._engine.jails.live,
                )
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(cut_short.wait(), _DRAIN_LOOK_S)
        _log.info("drained: %d episodes are live", self._engine.jails.live)

    async def stop(self, *, at_once: bool = False) -> None:
        """Tell clients, let calls in flight finish for a while, end everything; once.

        Args:
            at_once: Do not wait for calls in flight.
        """
        if self._stopped:
            return
        self._stopped = True
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.stop(0 if at_once else self._engine.config.stop_grace_s)
        await self._metrics.stop()
        await self._engine.close()


def _refuse_taken(address: str) -> None:
    """gRPC would take a live server's Unix socket over, which nobody could reach any more.

    Raises:
        AddressError: If a server listens there. What a killed one left is no matter.
    """
    if not address.startswith("unix:"):
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(address.removeprefix("unix:"))
        raise AddressError(f"cannot listen on {address}: another server does; stop it first")
