"""The health check: what a container's engine asks a server by."""

from __future__ import annotations

import hashlib

from sandbox_server import health, runtime
from sandbox_server.config import ServerConfig, TenantConfig
from sandbox_server.server import Server


def serving(**settings: object) -> Server:
    config = ServerConfig(address="127.0.0.1:0", backend="process", **settings)  # type: ignore[arg-type]
    return Server(config, {"stdlib": runtime.ensure("stdlib")})


async def test_a_server_that_serves_is_healthy_and_one_that_is_gone_is_not() -> None:
    server = serving()
    address = await server.start()
    try:
        assert await health.check(address) == ""
    finally:
        await server.stop()
    said = await health.check(address, timeout_s=1)
    assert said.startswith(f"no answer at {address}")


async def test_the_check_needs_no_token() -> None:
    tenant = TenantConfig("alice", token_sha256=hashlib.sha256(b"secret").hexdigest())
    server = serving(tenants=(tenant,))
    address = await server.start()
    try:
        assert await health.check(address) == ""
    finally:
        await server.stop()
