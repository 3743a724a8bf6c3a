from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from sandbox_api import AsyncSandboxClient

from tests.api.fake_server import FakeServer, FakeServicer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def servicer(server: FakeServer) -> FakeServicer:
    return server.servicer


@pytest_asyncio.fixture
async def client(server: FakeServer) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient(server.address) as running:
        yield running
