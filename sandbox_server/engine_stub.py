"""An engine with the methods of a stub: for a client in the engine's own process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandbox_api.errors import SandboxError, rpc_from_error
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.audit import AuditLog
from sandbox_server.config import DEFAULT_TENANT
from sandbox_server.engine import Engine
from sandbox_server.failures import internal_error
from sandbox_server.service import SandboxService
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.metrics import Metrics


class EngineStub:
    """The service's verbs, without gRPC: of messages and errors all is the same.

    The deadlines of calls are not kept: those of items are the engine's.

    Args:
        engine: Does the work, for one tenant.
        audit: Is told what is done.
    """

    def __init__(self, engine: Engine, audit: AuditLog) -> None:
        self._service = SandboxService({DEFAULT_TENANT: engine}, audit)
        self._caller = self._service.caller(DEFAULT_TENANT)
        self._metrics = Metrics()

    async def RegisterProgram(self, request: pb.RegisterProgramRequest, timeout: float) -> Any:
        return await self._one("RegisterProgram", request)

    def Reset(self, request: pb.ResetRequest, timeout: float) -> _Responses:
        return self._many("Reset", request)

    def Step(self, request: pb.StepRequest, timeout: float) -> _Responses:
        return self._many("Step", request)

    def Verify(self, request: pb.VerifyRequest, timeout: float) -> _Responses:
        return self._many("Verify", request)

    async def Fork(self, request: pb.ForkRequest, timeout: float) -> Any:
        return await self._one("Fork", request)

    async def Close(self, request: pb.CloseRequest, timeout: float) -> Any:
        return await self._one("Close", request)

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, timeout: float) -> Any:
        return await self._one("GetServerInfo", request)

    async def _one(self, verb: str, request: Any) -> Any:
        with self._in_work(verb, request):
            return await getattr(self._service, verb)(self._caller, request)

    def _many(self, verb: str, request: Any) -> _Responses:
        async def responses() -> AsyncIterator[Any]:
            with self._in_work(verb, request):
                found = getattr(self._service, verb)(self._caller, request)
                async with contextlib.aclosing(found):
                    async for response in found:
                        yield response

        return _Responses(responses())

    @contextlib.contextmanager
    def _in_work(self, verb: str, request: Any) -> Any:
        call = calls.Call(verb, calls.request_id_from(()), self._metrics)
        with call.in_work(request, ()):
            try:
                yield
            except SandboxError as error:
                raise rpc_from_error(error) from None
            except grpc.aio.AioRpcError:
                raise
            except Exception as error:
                raise rpc_from_error(internal_error("a call", error)) from error


class _Responses:
    """A stream of responses, as a call gives it."""

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses

    def cancel(self) -> None:
        """Nothing to do: they end with the task that reads them."""
