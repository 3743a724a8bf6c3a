"""Requests that are announced and never come: the server waits for them only so long.

gRPC reads the message of a call into memory as it comes, up to its bound of 64 MiB, and for as
long as the client likes: some hundred calls, each short of its last byte, would fill a machine.
Health checks and reflection ask for no token, so anybody could.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from sandbox_api.errors import InvalidRequestError

from sandbox_server.refusal import refuse

# Of calls that anybody may make: their messages are some bytes, and come with the call.
_PUBLIC_TIMEOUT_S = 2.0
_MOST_PUBLIC_BYTES = 4_096


class RefuseSlow(grpc.aio.ServerInterceptor):
    """Ends calls whose request does not come in time, and forgets long ones of strangers.

    Args:
        service: The full name of the service that only tenants may use.
        timeout_s: How long a request to it may take.
    """

    def __init__(self, service: str, timeout_s: float) -> None:
        self._prefix = f"/{service}/"
        self._timeout_s = timeout_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        read, timeout_s = handler.request_deserializer, self._timeout_s
        if handler.request_streaming:
            # Reflection, which says of an empty request that it is wrong.
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream,
                lambda data: read(data if len(data) <= _MOST_PUBLIC_BYTES else b""),
                handler.response_serializer,
            )
        if not handler_call_details.method.startswith(self._prefix):
            read, timeout_s = _only_short(read), _PUBLIC_TIMEOUT_S
        # Not a stream on the wire: one message, but read when this module asks for it.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _streaming(handler.unary_stream, timeout_s), read, handler.response_serializer
            )
        return grpc.stream_unary_rpc_method_handler(
            _unary(handler.unary_unary, timeout_s), read, handler.response_serializer
        )


def _only_short(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A reader that gives None for what is too long to be meant."""
    return lambda data: read(data) if len(data) <= _MOST_PUBLIC_BYTES else None


async def _read(context: grpc.aio.ServicerContext, timeout_s: float) -> Any:
    """The request of a call; ends the call where there is none."""
    request = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            request = await context.read()
    if request is None or request is grpc.aio.EOF:
        why = f"the request did not come within {timeout_s:g} s, or is too long for what it asks"
        await refuse(context, InvalidRequestError(why))
    return request


def _unary(behavior: Callable[..., Awaitable[Any]], timeout_s: float) -> Callable[..., Any]:
    async def call(_: object, context: grpc.aio.ServicerContext) -> Any:
        return await behavior(await _read(context, timeout_s), context)

    return call


def _streaming(behavior: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    async def call(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        answer = behavior(await _read(context, timeout_s), context)
        if isinstance(answer, Awaitable):
            # It writes to the context itself, as the library's health service does.
            await answer
            return
        async with contextlib.aclosing(answer) as responses:
            async for response in responses:
                yield response

    return call
