"""Requests that are no messages of the contract, or too many in one: told so, as any other.

gRPC itself would answer UNKNOWN, which stands for a fault of the server, and log a traceback.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from sandbox_api.errors import InvalidRequestError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import pieces
from sandbox_server.refusal import refuse

_UNREADABLE = "the request is no message of sandbox_api.v1; does the client speak another version?"


class RefuseUnreadable(grpc.aio.ServerInterceptor):
    """Answers calls of one service whose request cannot be read with INVALID_ARGUMENT.

    Args:
        service: The full name of the service.
    """

    def __init__(self, service: str) -> None:
        self._prefix = f"/{service}/"
        self._kinds: dict[str, Descriptor] = {
            method.name: method.input_type
            for found in pb.DESCRIPTOR.services_by_name.values()
            for method in found.methods
        }

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        kind = self._kinds[handler_call_details.method.removeprefix(self._prefix)]
        read = _tolerant(handler.request_deserializer, kind)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _streaming(handler.unary_stream),
                read,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(handler.unary_unary),
            read,
            handler.response_serializer,
        )


def _tolerant(read: Callable[[bytes], Any], kind: Descriptor) -> Callable[[bytes], Any]:
    """A reader that gives an InvalidRequestError where there is no message to be had."""

    def call(data: bytes) -> Any:
        try:
            pieces.check(kind, data)
            return read(data)
        except InvalidRequestError as error:
            return error
        except DecodeError:
            return InvalidRequestError(_UNREADABLE)

    return call


def _unary(behavior: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext) -> Any:
        if isinstance(request, InvalidRequestError):
            await refuse(context, request)
        return await behavior(request, context)

    return call


def _streaming(
    behavior: Callable[..., AsyncGenerator[Any, None]],
) -> Callable[..., AsyncIterator[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        if isinstance(request, InvalidRequestError):
            await refuse(context, request)
        async with contextlib.aclosing(behavior(request, context)) as responses:
            async for response in responses:
                yield response

    return call
