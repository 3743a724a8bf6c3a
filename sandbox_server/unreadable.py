"""Requests that are no messages of the contract: told so, as any other wrong request.

gRPC itself would answer UNKNOWN, which stands for a fault of the server, and log a traceback.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from sandbox_api.errors import InvalidRequestError

from sandbox_server.refusal import refuse


class RefuseUnreadable(grpc.aio.ServerInterceptor):
    """Answers calls of one service whose request cannot be read with INVALID_ARGUMENT.

    Args:
        service: The full name of the service.
    """

    def __init__(self, service: str) -> None:
        self._prefix = f"/{service}/"

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _streaming(handler.unary_stream),
                _tolerant(handler.request_deserializer),
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(handler.unary_unary),
            _tolerant(handler.request_deserializer),
            handler.response_serializer,
        )


def _tolerant(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A reader that gives None where there is no message."""

    def call(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError:
            return None

    return call


def _unary(behavior: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext) -> Any:
        if request is None:
            await _refuse(context)
        return await behavior(request, context)

    return call


def _streaming(
    behavior: Callable[..., AsyncGenerator[Any, None]],
) -> Callable[..., AsyncIterator[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        if request is None:
            await _refuse(context)
        async with contextlib.aclosing(behavior(request, context)) as responses:
            async for response in responses:
                yield response

    return call


async def _refuse(context: grpc.aio.ServicerContext) -> None:
    error = InvalidRequestError(
        "the request is no message of sandbox_api.v1; does the client speak another version?"
    )
    await refuse(context, error)
