"""The book of addresses, as a gRPC service: where the shards are, and nothing more."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from sandbox_api.errors import InvalidRequestError, UnavailableError
from sandbox_api.v1 import sandbox_pb2 as pb

import sandbox_server
from sandbox_server import listening, transport
from sandbox_server.audit import AuditLog
from sandbox_server.authentication import Authenticator
from sandbox_server.config import ServerConfig
from sandbox_server.promptness import PublicHandlers
from sandbox_server.reception import SERVICE_NAME, Reception
from sandbox_server.telemetry.metrics import Metrics

# Any host of this machine: a client takes the one at which it reached the book.
_WILDCARDS = ("0.0.0.0", "[::]")
_VERBS = pb.DESCRIPTOR.services_by_name["SandboxService"].methods


@dataclasses.dataclass(frozen=True)
class Entry:
    """A shard that runs.

    Attributes:
        name: Stays when it is started again.
        address: Where it listens now.
    """

    name: str
    address: str


class Book:
    """Serves the addresses of the shards that run, to whom they would serve.

    Args:
        config: Of the whole: where to listen, and who may ask.
        entries: Gives the shards that run.

    Raises:
        AddressError: If it would be open to whom it should not be.
    """

    def __init__(
        self, config: ServerConfig, entries: Callable[[], Awaitable[Iterable[Entry]]]
    ) -> None:
        transport.check_exposure(config)
        self._config = config
        self._health = health.aio.HealthServicer()
        service = _Service(entries, config.retry_delay_s)
        reception = Reception(
            service, Authenticator(config.tenants), Metrics(), AuditLog(), config
        )
        self._server = grpc.aio.server(options=listening.CHANNEL_OPTIONS)
        self._server.add_generic_rpc_handlers([reception.handlers()])
        public = PublicHandlers(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, public)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflected = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflected, public)

    def listen(self) -> str:
        """Take the address; returns it as clients use it.

        Raises:
            AddressError: If it cannot be had.
        """
        return listening.told(self._config.address, listening.listen(self._server, self._config))

    async def serve(self) -> None:
        """Answer from now on."""
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Tell load balancers; clients of the shards still find them."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self) -> None:
        """Answer nobody any more."""
        await self._server.stop(0)
        if self._config.address.startswith("unix:"):
            # gRPC removes the socket of a server that it has started, and of no other.
            Path(self._config.address.removeprefix("unix:")).unlink(missing_ok=True)

    async def _set_health(self, status: Any) -> None:
        for name in ("", SERVICE_NAME):
            await self._health.set(name, status)


class _Service:
    """The contract's verbs, of which a book has one."""

    def __init__(
        self, entries: Callable[[], Awaitable[Iterable[Entry]]], retry_delay_s: float
    ) -> None:
        self._entries = entries
        self._retry_delay_s = retry_delay_s
        for verb in _VERBS:
            if verb.name != "GetServerInfo":
                is_one = verb.client_streaming or not verb.server_streaming
                elsewhere = self._elsewhere if is_one else self._elsewhere_streaming
                setattr(self, verb.name, functools.partial(elsewhere, verb.name))

    def caller(self, tenant: str) -> str:
        """A tenant, of which no more is known here."""
        return tenant

    async def GetServerInfo(
        self, _: str, request: pb.GetServerInfoRequest
    ) -> pb.GetServerInfoResponse:
        entries = list(await self._entries())
        if not entries:
            raise UnavailableError("no shard runs at the moment", self._retry_delay_s)
        return pb.GetServerInfoResponse(
            version=sandbox_server.__version__,
            shards=[pb.Shard(name=e.name, address=_reachable(e.address)) for e in entries],
        )

    async def _elsewhere(self, verb: str, *_: Any) -> Any:
        raise InvalidRequestError(
            f"this is the book of a sharded server: send {verb} to one of the shards that "
            "GetServerInfo names here, as a newly made client of this version does"
        )

    async def _elsewhere_streaming(self, verb: str, *_: Any) -> AsyncGenerator[Any, None]:
        yield await self._elsewhere(verb)


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f":{port}" if host in _WILDCARDS else address
