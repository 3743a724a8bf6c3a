"""The door: what every call of the service goes through, once, in this order.

A stranger is told so before a message is read. The message is waited for only so long, and must
be one of the contract. From then on the call has its id, its span and its counts; it is some
tenant's; and what goes wrong in it becomes a status with a machine-readable reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message_factory import GetMessageClass
from sandbox_api.errors import SandboxError, UnauthenticatedError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import promptness, unreadable
from sandbox_server.audit import AuditLog
from sandbox_server.authentication import Authenticator
from sandbox_server.config import DEFAULT_TENANT, ServerConfig
from sandbox_server.failures import internal_error
from sandbox_server.refusal import refuse
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.metrics import Metrics

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"]
SERVICE_NAME = _SERVICE.full_name

Behavior = Callable[[object, grpc.aio.ServicerContext], Any]


class Service(Protocol):
    """What does what callers ask for: has a method for each verb of the contract as well.

    A method takes the caller and the request, and gives the response, or responses one after
    another; `Play` takes the caller, its call and its context.
    """

    def caller(self, tenant: str) -> Any:
        """A tenant as one who calls."""


class Reception:
    """Makes gRPC's handlers of a service's verbs.

    Args:
        service: Has the verbs.
        authenticator: Tells who they are.
        metrics: Where calls are counted.
        audit: Is told of strangers.
        config: How long the message of a call may take to come, and its answers to be read.
    """

    def __init__(
        self,
        service: Service,
        authenticator: Authenticator,
        metrics: Metrics,
        audit: AuditLog,
        config: ServerConfig,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._metrics = metrics
        self._audit = audit
        self._config = config

    def handlers(self) -> grpc.GenericRpcHandler:
        """A handler for each verb of the contract."""
        found = {}
        for verb in _SERVICE.methods:
            method = getattr(self._service, verb.name)
            read = unreadable.tolerant(GetMessageClass(verb.input_type).FromString, verb)
            write = GetMessageClass(verb.output_type).SerializeToString
            # To the wire one message and a stream of one are the same; but of a stream none is
            # read before it is asked for.
            if verb.client_streaming:
                handler = grpc.stream_stream_rpc_method_handler(self._open(method), read, write)
            elif verb.server_streaming:
                behavior = self._streaming(verb.name, method)
                handler = grpc.stream_stream_rpc_method_handler(behavior, read, write)
            else:
                behavior = self._unary(verb.name, method)
                handler = grpc.stream_unary_rpc_method_handler(behavior, read, write)
            found[verb.name] = handler
        return grpc.method_handlers_generic_handler(SERVICE_NAME, found)

    def _unary(self, verb: str, method: Callable[..., Any]) -> Behavior:
        async def behavior(_: object, context: grpc.aio.ServicerContext) -> Any:
            request = await self._received(context)
            call = self._call(verb, context)
            with call.in_work(request, context.invocation_metadata()):
                try:
                    return await method(self._caller(call, context, request), request)
                except Exception as error:
                    await _fail(context, error)

        return behavior

    def _streaming(self, verb: str, method: Callable[..., Any]) -> Behavior:
        async def behavior(_: object, context: grpc.aio.ServicerContext) -> None:
            request = await self._received(context)
            call = self._call(verb, context)
            with call.in_work(request, context.invocation_metadata()):
                try:
                    caller = self._caller(call, context, request)
                    async with contextlib.aclosing(method(caller, request)) as responses:
                        await self._write_all(context, responses)
                except Exception as error:
                    await _fail(context, error)

        return behavior

    async def _write_all(self, context: grpc.aio.ServicerContext, responses: Any) -> None:
        """Write responses as they come, to a client that reads them."""
        task = asyncio.current_task()
        assert task is not None
        call_later, timeout_s = task.get_loop().call_later, self._config.unread_timeout_s
        async for response in responses:
            # Nothing but a cancellation ends the wait for a client that does not read.
            late = call_later(timeout_s, task.cancel)
            try:
                await context.write(response)
            finally:
                late.cancel()

    def _open(self, method: Callable[..., Any]) -> Behavior:
        """Of a stream that stays open each message is a call; the stream itself is none."""

        async def behavior(_: object, context: grpc.aio.ServicerContext) -> None:
            await self._refuse_stranger(context)
            call = self._call("Step", context)
            call.enter()
            try:
                caller = self._caller(call, context, None)
                await method(caller, call, context)
            except Exception as error:
                await _fail(context, error)

        return behavior

    async def _received(self, context: grpc.aio.ServicerContext) -> Any:
        await self._refuse_stranger(context)
        return await promptness.read(context, self._config.request_timeout_s)

    async def _refuse_stranger(self, context: grpc.aio.ServicerContext) -> None:
        """Refuse who has no right token: a message may be 64 MiB, of which none is held."""
        if self._authenticator.may_speak(context.invocation_metadata() or ()):
            return
        self._audit.refused(peer=context.peer())
        self._metrics.of("").refused("", UnauthenticatedError.reason)
        error = UnauthenticatedError(
            "the token is missing, or not that of any tenant of this server: set "
            "SPADEWORK_TOKEN, or give the client access=Access(token=...)"
        )
        await refuse(context, error)

    def _call(self, verb: str, context: grpc.aio.ServicerContext) -> calls.Call:
        metadata = context.invocation_metadata()
        call = calls.Call(verb, calls.request_id_from(metadata), self._metrics, context.peer())
        context.set_trailing_metadata(((calls.REQUEST_ID_METADATA_KEY, call.request_id),))
        return call

    def _caller(self, call: calls.Call, context: grpc.aio.ServicerContext, request: Any) -> Any:
        """Tell who calls.

        Raises:
            SandboxError: If it is nobody who may, or what was sent is no request.
        """
        # A stranger's, until it is known whose it is.
        call.tenant = ""
        if isinstance(request, SandboxError):
            call.tenant = DEFAULT_TENANT
            raise request
        try:
            call.tenant = self._authenticator.tenant(context)
        except UnauthenticatedError:
            self._audit.refused()
            raise
        return self._service.caller(call.tenant)


async def _fail(context: grpc.aio.ServicerContext, error: Exception) -> None:
    if not isinstance(error, SandboxError):
        error = internal_error("a call", error)
    await refuse(context, error)
