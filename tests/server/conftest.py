"""One server per backend for the whole suite: what one test does must not hurt the next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Episode, Limits, Program, ResetItem, StepItem, StepResult

from sandbox_server import LocalServer
from sandbox_server.backends import docker
from sandbox_server.backends.ids import is_episode

COUNTER = """
class CounterEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.target = random.Random(seed).randint(2, 5)
        self.count = 0
        return f"count to {self.target}", {"target": self.target}

    def step(self, action):
        self.count += 1 if action == "+" else 0
        won = self.count == self.target
        return f"at {self.count}", float(won), won, False, {}

    def solution(self):
        return ["+"] * self.target

    def verify(self):
        return self.count == self.target
"""


def stepping(body: str) -> str:
    """A program whose step runs `body`."""
    indented = "\n".join("        " + line for line in body.strip().splitlines())
    return f"""
import os, sys
class ActingEnv:
    def reset(self, seed=None):
        return "go", {{}}
    def step(self, action):
{indented}
        return "survived", 0.0, False, False, {{}}
"""


def _parents() -> dict[int, int]:
    """Parent of every process on the host."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one, on the host."""
    parents = _parents()
    found = []
    for candidate in parents:
        above = candidate
        while above in parents and above != pid:
            above = parents[above]
        if above == pid and candidate != pid:
            found.append(candidate)
    return found


def containers(server_pid: int) -> list[int]:
    """First processes of the containers of a server."""
    with contextlib.closing(docker.connect()) as client:
        return [
            client.api.inspect_container(found["Id"])["State"]["Pid"]
            for found in client.api.containers(filters={"label": docker.OWNER_LABEL})
            if found["Labels"][docker.OWNER_LABEL].startswith(f"{server_pid}-")
        ]


class Sandbox:
    """A client with the few verbs that most tests need."""

    def __init__(self, client: AsyncSandboxClient, backend: str, server: LocalServer) -> None:
        self.client = client
        self.backend = backend
        self._server = server
        self._started: list[str] = []

    def episode_processes(self) -> list[int]:
        """Host pids of this server's episodes: what its jails hold, with an episode's user id."""
        found = []
        above = [self._server.process.pid]
        if self.backend == "docker":
            above = containers(self._server.process.pid)
        for pid in [below for ancestor in above for below in descendants(ancestor)]:
            with contextlib.suppress(FileNotFoundError):
                if is_episode(Path(f"/proc/{pid}").stat().st_uid):
                    found.append(pid)
        return found

    def cpu_meters(self) -> set[Path]:
        """Folders of this server's meters of CPU time, and of nobody else's."""
        trees = Path("/sys/fs/cgroup/cpuacct/spadework")
        return set(trees.glob(f"{self._server.process.pid}-*/*/episode-*"))

    async def nothing_left(self) -> None:
        """Close what this test started; then no process of any episode is there."""
        await self.client.close_episodes(self._started)
        for _ in range(100):
            if not self.episode_processes():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"processes left: {self.episode_processes()}")

    async def register(self, source: str, **limits: float) -> Program:
        return await self.client.register_program(source, limits=Limits(**limits))

    async def start(self, source: str, *, seed: int = 0, **limits: float) -> Episode:
        program = await self.register(source, **limits)
        assert program.diagnostic is None, program.diagnostic
        return (await self.reset([ResetItem(program.program_id, seed=seed)]))[0]

    async def reset(self, items: list[ResetItem]) -> list[Episode]:
        episodes = await self.client.reset(items)
        self._started += [e.episode_id for e in episodes]
        return episodes

    async def step(self, episode: Episode, index: int, action: str = "+") -> StepResult:
        return (await self.client.step([StepItem(episode.episode_id, index, action)]))[0]

    async def play_one(self, source: str, action: str = "+", **limits: float) -> StepResult:
        """Register, reset, and take one step."""
        episode = await self.start(source, **limits)
        assert episode.ok, (episode.error, episode.diagnostic)
        return await self.step(episode, 0, action)

    async def still_works(self) -> None:
        """The next episode plays as if nothing had happened."""
        episode = await self.start(COUNTER)
        for index in range(10):
            result = await self.step(episode, index)
            assert result.ok
            if result.done:
                break
        assert result.reward == 1.0


JAILS = [
    pytest.param("nsjail", marks=pytest.mark.nsjail),
    pytest.param("docker", marks=pytest.mark.docker),
]


@pytest.fixture(scope="session", params=["process", *JAILS])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, LocalServer]]:
    with LocalServer(backend=request.param) as running:
        yield request.param, running


@pytest.fixture
async def sandbox(server: tuple[str, LocalServer]) -> AsyncIterator[Sandbox]:
    backend, running = server
    async with AsyncSandboxClient(running.address) as client:
        sandbox = Sandbox(client, backend, running)
        yield sandbox
        await sandbox.nothing_left()


@pytest.fixture(scope="session", params=JAILS)
def jailed_server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with LocalServer(backend=request.param) as running:
        yield running


@pytest.fixture
async def jailed(jailed_server: LocalServer) -> AsyncIterator[Sandbox]:
    """For what only a jail enforces."""
    async with AsyncSandboxClient(jailed_server.address) as client:
        backend = (await client.server_info()).backend
        sandbox = Sandbox(client, backend, jailed_server)
        yield sandbox
        await sandbox.nothing_left()
