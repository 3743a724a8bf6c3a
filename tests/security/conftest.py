"""Servers to attack, and what is checked after each attack.

With SPADEWORK_ATTACK_SERVER set to the address of a server that runs already, that one is
attacked, from outside: of its host only its own counts can be looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandbox_api import Access
from sandbox_api.client import CHANNEL_OPTIONS
from sandbox_api.v1 import sandbox_pb2 as pb

import sandbox_server
from sandbox_server import LocalServer
from sandbox_server.cache import cache_folder
from tests.security.audit import Host, HostState, LeftBehindError
from tests.server.conftest import COUNTER, JAILS, containers
from tests.wire import Wire

OUTSIDE = os.environ.get("SPADEWORK_ATTACK_SERVER", "")
_CONNECT_TIMEOUT_S = 60.0


@dataclass
class Target:
    """A server under attack.

    Attributes:
        backend: Its name.
        address: What clients connect to.
        host: What can be seen of its host.
        facts: What an attacker may know of the host: paths that exist on it.
        log: The server's log; a fault of its own leaves a traceback there.
        forks: Whether its programs may fork at all: not where it cannot map user ids.
        quiet: The state of the host without any episode, once it is known.
    """

    backend: str
    address: str
    host: Host
    facts: dict[str, str]
    log: Path | None
    forks: bool = True
    quiet: HostState | None = None

    @property
    def column(self) -> str:
        """The column of SECURITY.md's table that holds for it."""
        return self.backend if self.forks else "without root"


@pytest.fixture(scope="session", params=["outside"] if OUTSIDE else JAILS)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    canary = tmp_path_factory.mktemp("host") / "canary"
    canary.write_text("a file of the host")
    canary.chmod(0o644)
    facts = {"canary": str(canary), "package": str(Path(sandbox_server.__file__).parent)}
    facts |= {"cache": str(cache_folder()), "socket": "/nowhere", "tmp": tempfile.gettempdir()}
    if OUTSIDE:
        # As in the image of the Dockerfile.
        facts |= {"package": "/opt/spadework/lib", "cache": "/opt/spadework/cache"}
        facts |= {"socket": "/run/spadework/socket", "tmp": "/run/spadework"}
        info = _info_of(OUTSIDE)
        forks = info.isolation["user"].startswith("own id")
        yield Target(info.backend, OUTSIDE, Host(0), facts, None, forks)
        return
    # Not under pytest's own folder, whose path is longer than a socket's may be.
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        log = Path(folder) / "log"
        with _environment("TMPDIR", str(temporary)), _standard_error(log):
            server = LocalServer(backend=request.param)
        with server:
            socket = server.address.removeprefix("unix:")
            facts |= {"socket": socket, "tmp": str(temporary)}
            folders = (temporary, Path(socket).parent)
            jails = containers if request.param == "docker" else (lambda _: [])
            host = Host(server.process.pid, jails, folders)
            yield Target(request.param, server.address, host, facts, log)


def _info_of(address: str) -> pb.GetServerInfoResponse:
    async def ask() -> pb.GetServerInfoResponse:
        access = Access.from_environment()
        async with access.channel(address, CHANNEL_OPTIONS) as channel:
            wire = Wire(channel)
            wire.stub = access.authorized(wire.stub)
            return await wire.info()

    return asyncio.run(ask())


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        yield


@contextlib.contextmanager
def _standard_error(file: Path) -> Iterator[None]:
    """Give processes that are started meanwhile this file as their standard error."""
    kept = os.dup(2)
    with file.open("w") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.fixture
async def wire(target: Target) -> AsyncIterator[Wire]:
    """A client to attack with.

    After each attack: a neighbour that was there before it plays on, the next episode works,
    nothing is left on the host, and the server met no fault of its own.
    """
    # A server that runs already may ask who calls, as any client is told by the environment.
    access = Access.from_environment() if OUTSIDE else Access()
    async with access.channel(target.address, CHANNEL_OPTIONS) as channel:
        wire = Wire(channel)
        wire.stub = access.authorized(wire.stub)
        # On a busy machine the first try may be too late for gRPC.
        await asyncio.wait_for(channel.channel_ready(), _CONNECT_TIMEOUT_S)
        if target.quiet is None:
            # What first episodes make may stay; each test has one connection.
            await next_episode_works(wire)
            if target.forks:
                await wire.close(*await wire.start(COUNTER, max_processes=2))
            assert await wire.live_episodes(0) == 0
            target.quiet = await target.host.settled(wire)
        (neighbour,) = await wire.start(COUNTER)
        logged = target.log.stat().st_size if target.log else 0
        try:
            yield wire
            (result,) = await wire.act((neighbour, 0, "+"))
            assert result.observation == "at 1", "a neighbour of the attack was harmed"
            await next_episode_works(wire)
        finally:
            # Also what a test that failed has not closed: it must not fail the next one.
            await wire.close(*wire.started)
        await target.host.nothing_left(wire, target.quiet)
        if target.log:
            said = target.log.read_bytes()[logged:].decode("utf-8", "replace")
            if "Traceback" in said:
                raise LeftBehindError(f"the server met a fault of its own:\n{said}")


async def next_episode_works(wire: Wire) -> None:
    """An episode started now plays to its end as if nothing had happened."""
    (episode,) = await wire.start(COUNTER)
    for index in range(10):
        (result,) = await wire.act((episode, index, "+"))
        assert result.outcome == pb.OUTCOME_COMPLETED, result
        if result.terminated:
            break
    assert result.reward == 1.0
    await wire.close(episode)
