"""One sandbox server for all of the designer's tests, and ways to make drafts."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sandbox_api import AsyncSandboxClient

from designer import DesignRequest, Draft
from sandbox_server import LocalServer

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    with LocalServer(backend="process", log_level="error") as local:
        yield local


@pytest.fixture
async def client(server: LocalServer) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient(server.address) as connected:
        yield connected


def request(max_turns: int = 10, method: str = "free_code", slot: int = 0) -> DesignRequest:
    return DesignRequest(
        slot=slot,
        skill="logic",
        method=method,
        messages=[{"role": "user", "content": "design"}],
        json_schema=None,
        max_turns=max_turns,
        seed=0,
    )


@pytest.fixture
def make_draft():
    """Makes a draft of a source, as if a model had written it."""

    def make(source: str, hint: str | None = None, max_turns: int = 10, slot: int = 0) -> Draft:
        return Draft(request(max_turns, slot=slot), source, source=source, hint=hint)

    return make


@pytest.fixture
def make_request():
    return request
