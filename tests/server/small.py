"""A server inside the test's own process, with settings of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandbox_api.client import CHANNEL_OPTIONS

from sandbox_server import runtime
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.server import Server
from tests.server.conftest import COUNTER
from tests.wire import Wire


class Small(Wire):
    """Such a server, and a bare stub to it."""

    def __init__(
        self, engine: Engine, server: Server, address: str, channel: grpc.aio.Channel
    ) -> None:
        super().__init__(channel)
        self.address = address
        self.engine = engine
        self.server = server

    async def register(self, source: str = COUNTER, **limits: float) -> str:
        return await super().register(source, **limits)


@contextlib.asynccontextmanager
async def serving(*, backend: str = "process", **settings: Any) -> AsyncIterator[Small]:
    config = ServerConfig(address="127.0.0.1:0", backend=backend, **settings)
    server = Server(config, {"stdlib": runtime.ensure("stdlib")})
    (engine,) = server.engines.values()
    address = await server.start()
    try:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            yield Small(engine, server, address, channel)
    finally:
        await server.stop()
