"""Servers to be killed, and the transcripts that a server left in peace gives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_api.client import AsyncSandboxClient

from sandbox_server import LocalServer
from tests.chaos.playing import Transcript, play
from tests.chaos.server import ChaosServer
from tests.server.conftest import JAILS

StartServer = Callable[..., ChaosServer]


@pytest.fixture(autouse=True, scope="session")
def only_root_tells_parts_apart() -> None:
    if os.geteuid() != 0:
        pytest.skip("a server's parts are told apart by user ids that only root can map")


@pytest.fixture(params=JAILS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server; all of them are gone without a trace when the test is over."""
    started: list[ChaosServer] = []

    def start(backend: str = "nsjail", **settings: Any) -> ChaosServer:
        folder = tmp_path / f"server-{len(started)}"
        folder.mkdir()
        server = ChaosServer(folder, backend, **settings)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()
        server.assert_nothing_left()


@pytest.fixture
def server(backend: str, start_server: StartServer) -> ChaosServer:
    return start_server(backend)


@pytest.fixture(scope="session")
def undisturbed() -> dict[int, Transcript]:
    """What every seed's episode is, on a server that nothing happens to."""

    async def played() -> dict[int, Transcript]:
        with LocalServer(backend="nsjail") as quiet:
            async with AsyncSandboxClient(quiet.address) as client:
                return await play(client)

    return asyncio.run(played())
