"""Requests that are announced and never come: the server waits for them only so long.

gRPC reads the message of a call into memory as it comes, up to its bound of 64 MiB, and for as
long as the client likes: some hundred calls, each short of its last byte, would fill a machine.
Health checks and reflection ask for no token, so anybody could.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from sandbox_api.errors import InvalidRequestError

from sandbox_server.refusal import refuse

# Of calls that anybody may make: their messages are some bytes, and come with the call.
_PUBLIC_TIMEOUT_S = 2.0
_MOST_PUBLIC_BYTES = 4_096


async def read(context: grpc.aio.ServicerContext, timeout_s: float) -> Any:
    """The request of a call, which its handler must take as a stream; ends the call without."""
    request = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            request = await context.read()
    if request is None or request is grpc.aio.EOF:
        why = f"the request did not come within {timeout_s:g} s, or is too long for what it asks"
        await refuse(context, InvalidRequestError(why))
    return request


class PublicHandlers:
    """Takes a library's service in the place of a server, and gives the server a bounded one.

    Calls to it end when their request does not come in time, and long requests are forgotten.

    Args:
        server: The server that is to have it.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers([_Bounded(handler) for handler in handlers])

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        """The same handlers once more, by name: a server of this kind looks at the others."""


class _Bounded(grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler) -> None:
        self._inner = inner

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        handler = self._inner.service(details)
        if handler is None:
            return None
        read_message, write = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming:
            # Reflection, which says of an empty request that it is wrong.
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream,
                lambda data: read_message(data if len(data) <= _MOST_PUBLIC_BYTES else b""),
                write,
            )
        short = _only_short(read_message)
        # Not a stream on the wire: one message, but read when this module asks for it.
        if handler.response_streaming:
            behavior = _streaming(handler.unary_stream)
            return grpc.stream_stream_rpc_method_handler(behavior, short, write)
        return grpc.stream_unary_rpc_method_handler(_unary(handler.unary_unary), short, write)


def _only_short(read_message: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A reader that gives None for what is too long to be meant."""
    return lambda data: read_message(data) if len(data) <= _MOST_PUBLIC_BYTES else None


def _unary(behavior: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def call(_: object, context: grpc.aio.ServicerContext) -> Any:
        return await behavior(await read(context, _PUBLIC_TIMEOUT_S), context)

    return call


def _streaming(behavior: Callable[..., Any]) -> Callable[..., Any]:
    async def call(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        answer = behavior(await read(context, _PUBLIC_TIMEOUT_S), context)
        if isinstance(answer, Awaitable):
            # It writes to the context itself, as the library's health service does.
            await answer
            return
        async with contextlib.aclosing(answer) as responses:
            async for response in responses:
                yield response

    return call
