"""A server with group mode, and a client that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, Program

from sandbox_server import LocalServer
from tests.server.conftest import Sandbox

GROUP_SIZE = 16


class GroupSandbox(Sandbox):
    """A client whose programs share processes, except those that may fork."""

    async def register(self, source: str, **limits: float) -> Program:
        return await self.client.register_program(
            source, limits=Limits(**limits), group_mode=limits.get("max_processes", 1) == 1
        )

    async def register_alone(self, source: str, **limits: float) -> Program:
        """The same program, each of its episodes with a process of its own."""
        return await self.client.register_program(source, limits=Limits(**limits))


@pytest.fixture(
    scope="session", params=["process", pytest.param("nsjail", marks=pytest.mark.nsjail)]
)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, LocalServer]]:
    options = ["--group-size", str(GROUP_SIZE)]
    with LocalServer(backend=request.param, options=options) as running:
        yield request.param, running


@pytest.fixture
async def sandbox(server: tuple[str, LocalServer]) -> AsyncIterator[GroupSandbox]:
    backend, running = server
    async with AsyncSandboxClient(running.address) as client:
        sandbox = GroupSandbox(client, backend, running)
        yield sandbox
        await sandbox.nothing_left()
