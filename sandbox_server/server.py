"""The gRPC server: where it listens, whom it serves, and how it comes to its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from sandbox_server import listening, tenants, transport
from sandbox_server.audit import AuditLog
from sandbox_server.authentication import Authenticator
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.promptness import PublicHandlers
from sandbox_server.reception import SERVICE_NAME, Reception
from sandbox_server.runtime import Runtime
from sandbox_server.service import SandboxService
from sandbox_server.telemetry.exposition import registry
from sandbox_server.telemetry.http import MetricsServer
from sandbox_server.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

# How often a draining server looks whether an episode still lives.
_DRAIN_LOOK_S = 0.05


class Server:
    """A gRPC server, with health and reflection, around an engine for each tenant.

    Attributes:
        engines: By the tenant's name.
        metrics_address: Where the metrics are, with the port that was chosen; empty until it
            has started, and where none are asked for.

    Raises:
        AddressError: If it would be open to whom it should not be.
        AuditError: If the audit log cannot be written.
        TenantFileError: If the tenants are promised more than there is.
    """

    def __init__(self, config: ServerConfig, runtimes: dict[str, Runtime]) -> None:
        transport.check_exposure(config)
        self.config = config
        self._audit = AuditLog(config.audit_log)
        self.engines = {
            name: Engine(part, runtimes, functools.partial(self._audit.record, tenant=name))
            for name, part in tenants.parts(config).items()
        }
        self.metrics_address = ""
        self._stopped = False
        self._metrics = Metrics()
        self._service = SandboxService(self.engines, self._audit)
        found = registry(self.engines, self._metrics, self._audit, self._service.open_streams)
        self._metrics_server = MetricsServer(found)
        self._health = health.aio.HealthServicer()
        reception = Reception(
            self._service,
            Authenticator(config.tenants),
            self._metrics,
            self._audit,
            config,
        )
        self._server = grpc.aio.server(options=listening.CHANNEL_OPTIONS)
        self._server.add_generic_rpc_handlers([reception.handlers()])
        public = PublicHandlers(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, public)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflected = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflected, public)

    async def start(self) -> str:
        """Start the engines, then listen.

        Returns:
            The address clients use, with the port that was chosen.

        Raises:
            AddressError: If the address, or that of the metrics, cannot be had.
            BackendError: If a protection is not in force.
        """
        address = self.config.address
        # Before the jails, which take a while: a taken port is told at once.
        port = listening.listen(self._server, self.config)
        started: list[Engine] = []
        try:
            if wanted := self.config.metrics_address:
                self.metrics_address = await self._metrics_server.start(wanted)
                _log.info("metrics: http://%s/metrics", self.metrics_address)
            for engine in self.engines.values():
                await engine.start()
                started.append(engine)
        except BaseException:
            await self._metrics_server.stop()
            for engine in started:
                await engine.close()
            if address.startswith("unix:"):
                # gRPC removes the socket of a server that it has started, and of no other.
                Path(address.removeprefix("unix:")).unlink(missing_ok=True)
            raise
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return listening.told(address, port)

    async def _set_health(self, status: Any) -> None:
        for name in ("", SERVICE_NAME):
            await self._health.set(name, status)

    async def drain(self, cut_short: asyncio.Event) -> None:
        """Take no new episodes, and let those that live go on to their ends.

        Returns when none lives any more, when `drain_timeout_s` has passed, or when
        `cut_short` is set. `stop` is to follow.
        """
        timeout_s = self.config.drain_timeout_s
        for engine in self.engines.values():
            engine.drain()
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        _log.info(
            "draining: %d episodes are live; waiting for them for at most %g s",
            self._live(),
            timeout_s,
        )
        deadline = time.monotonic() + timeout_s
        while self._live() and not cut_short.is_set():
            if time.monotonic() > deadline:
                _log.warning(
                    "drained for %g s; %d episodes are live, and end now",
                    timeout_s,
                    self._live(),
                )
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(cut_short.wait(), _DRAIN_LOOK_S)
        _log.info("drained: %d episodes are live", self._live())

    def _live(self) -> int:
        return sum(engine.jails.live for engine in self.engines.values())

    async def stop(self, *, at_once: bool = False) -> None:
        """Tell clients, let calls in flight finish for a while, end everything; once.

        Args:
            at_once: Do not wait for calls in flight.
        """
        if self._stopped:
            return
        self._stopped = True
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        # Idle ones would hold the end up; what they have in work is answered.
        self._service.end_streams()
        await self._server.stop(0 if at_once else self.config.stop_grace_s)
        await self._metrics_server.stop()
        for engine in self.engines.values():
            await engine.close()
        self._audit.close()
