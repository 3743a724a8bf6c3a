"""One server per backend for the whole suite: what one test does must not hurt the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Episode, Limits, Program, ResetItem, StepItem, StepResult

from sandbox_server import LocalServer

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


class Sandbox:
    """A client with the few verbs that most tests need."""

    def __init__(self, client: AsyncSandboxClient, backend: str) -> None:
        self.client = client
        self.backend = backend

    async def register(self, source: str, **limits: float) -> Program:
        return await self.client.register_program(source, limits=Limits(**limits))

    async def start(self, source: str, *, seed: int = 0, **limits: float) -> Episode:
        program = await self.register(source, **limits)
        assert program.diagnostic is None, program.diagnostic
        return (await self.client.reset([ResetItem(program.program_id, seed=seed)]))[0]

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


@pytest.fixture(
    scope="session", params=["process", pytest.param("nsjail", marks=pytest.mark.nsjail)]
)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, LocalServer]]:
    with LocalServer(backend=request.param) as running:
        yield request.param, running


@pytest.fixture
async def sandbox(server: tuple[str, LocalServer]) -> AsyncIterator[Sandbox]:
    backend, running = server
    async with AsyncSandboxClient(running.address) as client:
        yield Sandbox(client, backend)


@pytest.fixture(scope="session")
def jailed_server() -> Iterator[LocalServer]:
    with LocalServer(backend="nsjail") as running:
        yield running


@pytest.fixture
async def jailed(jailed_server: LocalServer) -> AsyncIterator[Sandbox]:
    """For what only the jail enforces."""
    async with AsyncSandboxClient(jailed_server.address) as client:
        yield Sandbox(client, "nsjail")
