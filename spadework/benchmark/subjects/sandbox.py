"""Ours, end to end: client, gRPC, server, and one locked-down process an episode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from sandbox_api import AsyncSandboxClient, Limits, Outcome, ResetItem, StepItem
from sandbox_api.types import Program, StepResult

from sandbox_server import LocalServer
from spadework.benchmark.case import HANG_ACTION, BenchmarkProgram
from spadework.benchmark.subjects.subject import Subject

T = TypeVar("T")

# A benchmark outlasts what an episode is usually given.
LIMITS = Limits(max_steps=100_000, cpu_time_s=3_600.0, max_observation_bytes=2**20)
# Episodes that share a process in group mode.
GROUP_SIZE = 64
# Servers behind one address.
SHARDS = 2
# How long a hanging episode is waited for.
HANG_TIMEOUT_S = 1.0
# Episodes of the server beyond those of the case: for introductions.
SPARE_EPISODES = 64


class Sandbox(Subject):
    """All episodes of a batch in one `Step` call; the backend is the setting `backend`."""

    def open(self) -> None:
        runtime = self.case.program.runtime
        self._loop = asyncio.new_event_loop()
        self._server = LocalServer(
            backend=self._backend(),
            runtimes=["stdlib", runtime] if runtime else ["stdlib"],
            max_episodes=self.case.episodes + SPARE_EPISODES,
            options=self._options(),
        )
        self._client = self._run(self._connected())
        self._known: dict[str, Program] = {}
        # Episodes are spread over them.
        self._programs: list[Program] = []
        self._ids: list[str] = []
        self._turns: list[int] = []
        self._hanging: set[asyncio.Task[None]] = set()

    # Programs ask for group mode.
    _group_mode = False

    def _backend(self) -> str:
        return self.case.settings.get("backend", "nsjail")

    def _options(self) -> Sequence[str]:
        """More for the server's command line."""
        return ()

    @property
    def servers(self) -> Collection[int]:
        return (self._server.process.pid,)

    def register(self, programs: Sequence[BenchmarkProgram]) -> None:
        async def register() -> None:
            self._programs = [await self._registered(program) for program in programs]

        self._run(register())

    def start(self, episodes: int) -> None:
        self._ids = self._run(self._reset(self._programs, range(episodes)))
        self._turns = [0] * episodes

    def step_all(self, *, timed: bool = False) -> int:
        if self.case.hung:
            return self._run(self._step_beside_hanging())
        return self._run(self._step_timed() if timed else self._step())

    def introduce(self, program: BenchmarkProgram) -> None:
        async def introduce() -> None:
            registered = await self._registered(program)
            await self._client.close_episodes(await self._reset([registered], [0]))

        self._run(introduce())

    def end_all(self) -> None:
        self._run(self._client.close_episodes(self._ids))

    def close(self) -> None:
        with closing(self._server), closing(self._loop):
            self._run(self._ended())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _connected(self) -> AsyncSandboxClient:
        client = AsyncSandboxClient(self._server.address)
        await client.server_info()
        return client

    async def _registered(self, program: BenchmarkProgram) -> Program:
        known = self._known.get(program.source)
        if known is None:
            known = await self._client.register_program(
                program.source,
                entry=program.entry,
                runtime=program.runtime,
                limits=LIMITS,
                group_mode=self._group_mode,
            )
            if known.outcome is not Outcome.COMPLETED:
                raise RuntimeError(f"program {program.name} does not load: {known.diagnostic}")
            self._known[program.source] = known
        return known

    async def _reset(self, programs: Sequence[Program], seeds: Collection[int]) -> list[str]:
        episodes = await self._client.reset(
            [ResetItem(programs[seed % len(programs)].program_id, seed=seed) for seed in seeds]
        )
        for episode in episodes:
            if not episode.ok:
                raise RuntimeError(
                    f"an episode did not start: {episode.error or episode.diagnostic}"
                )
        return [episode.episode_id for episode in episodes]

    def _items(self, numbers: Collection[int]) -> list[StepItem]:
        return [
            StepItem(self._ids[n], self._turns[n], self.action(n, self._turns[n])) for n in numbers
        ]

    async def _step(self) -> int:
        numbers = range(len(self._ids))
        await self._take(numbers, await self._client.step(self._items(numbers)))
        return len(numbers)

    async def _step_timed(self) -> int:
        numbers = range(len(self._ids))
        started = time.perf_counter()
        results = []
        async for result in self._client.step_stream(self._items(numbers)):
            self.item_s.append(time.perf_counter() - started)
            results.append(result)
        place = {episode_id: number for number, episode_id in enumerate(self._ids)}
        await self._take([place[result.episode_id] for result in results], results)
        return len(numbers)

    async def _take(self, numbers: Sequence[int], results: Sequence[StepResult]) -> None:
        """Check results, and begin those episodes anew that ended."""
        ended = []
        for number, result in zip(numbers, results, strict=True):
            if not result.ok:
                raise RuntimeError(f"a step failed: {result.error or result.diagnostic}")
            self._turns[number] += 1
            if result.terminated or result.truncated:
                ended.append(number)
        if ended:
            await self._renew(ended)

    async def _renew(self, numbers: Sequence[int]) -> None:
        await self._client.close_episodes([self._ids[n] for n in numbers])
        started = await self._reset(self._programs, numbers)
        for number, episode_id in zip(numbers, started, strict=True):
            self._ids[number] = episode_id
            self._turns[number] = 0

    async def _step_beside_hanging(self) -> int:
        """One call for all; the caller goes on when those that do not hang have answered."""
        hung = range(self.case.hung) if not self._hanging else range(0)
        sound = range(self.case.hung, len(self._ids))
        items = [
            StepItem(self._ids[n], self._turns[n], HANG_ACTION, timeout_s=HANG_TIMEOUT_S)
            for n in hung
        ] + self._items(sound)
        results: list[StepResult] = []
        answered = asyncio.Event()
        stuck = {self._ids[number] for number in hung}
        started = time.perf_counter()

        async def receive() -> None:
            try:
                async for result in self._client.step_stream(items):
                    if result.episode_id in stuck:
                        continue
                    self.item_s.append(time.perf_counter() - started)
                    results.append(result)
                    if len(results) == len(sound):
                        answered.set()
                if stuck:
                    await self._renew(hung)
            finally:
                answered.set()

        task = asyncio.create_task(receive())
        if stuck:
            self._hanging.add(task)
            task.add_done_callback(self._hanging.discard)
            await answered.wait()
        else:
            await task
        place = {self._ids[number]: number for number in sound}
        await self._take([place[result.episode_id] for result in results], results)
        return len(sound)

    async def _ended(self) -> None:
        for task in self._hanging:
            task.cancel()
        await asyncio.gather(*self._hanging, return_exceptions=True)
        await self._client.aclose()


class Grouped(Sandbox):
    """Group mode: many episodes share a process, isolated from all but one another."""

    _group_mode = True

    def _options(self) -> Sequence[str]:
        return ("--group-size", str(GROUP_SIZE))


class Sharded(Sandbox):
    """Several servers behind one address; the client asks each by itself."""

    def _options(self) -> Sequence[str]:
        return ("--shards", str(SHARDS))

    @property
    def servers(self) -> Collection[int]:
        book = self._server.process.pid
        below = Path(f"/proc/{book}/task/{book}/children").read_text().split()
        return (book, *map(int, below))


class Unprotected(Sandbox):
    """The same without isolation, to tell what isolation costs; for programs of ours alone."""

    def _backend(self) -> str:
        return "process"
