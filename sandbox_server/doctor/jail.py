"""Checks that build and start what a server would: a runtime, and a jail that is attacked."""

from __future__ import annotations

import asyncio

from sandbox_server import probe, runtime
from sandbox_server.backends import BACKENDS, BackendError
from sandbox_server.config import ServerConfig
from sandbox_server.doctor.check import Check
from sandbox_server.engine import Engine


def runtime_folder() -> Check:
    try:
        built = runtime.ensure("stdlib")
    except (runtime.RuntimeBuildError, OSError) as error:
        remedy = "free some disk, or name a folder to build in with SPADEWORK_CACHE"
        return Check("runtime", False, str(error), remedy)
    return Check("runtime", True, f"stdlib, Python {built.python_version}, in {built.root}")


def protections(config: ServerConfig) -> list[Check]:
    """Start an engine, whose start tries every protection, and report on each."""
    if not BACKENDS[config.backend].isolates:
        return []
    return asyncio.run(_protections(config))


async def _protections(config: ServerConfig) -> list[Check]:
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    try:
        await engine.start()
    except BackendError as error:
        return [Check("jail", False, str(error), "see the server's log above for its cause")]
    await engine.close()
    return [Check(name, True, "tried, and refused") for name in probe.ATTEMPTS]
