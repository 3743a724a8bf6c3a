"""OpenEnv: its server (FastAPI, a WebSocket and a thread a session) and its own client."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from typing import Any

from openenv.core.generic_client import GenericEnvClient

from spadework.benchmark.case import HANG_ACTION, BenchmarkProgram
from spadework.benchmark.subjects.subject import Subject

# A session of its own for each introduction and for those that replace hung ones.
_SPARE_SESSIONS = 10_000
# Connections that are made at once; more of them run into the client's time limit.
_CONNECTING = 32
_CONNECT_TIMEOUT_S = 60.0
_MESSAGE_TIMEOUT_S = 60.0
# How long a hanging episode is waited for.
_HANG_TIMEOUT_S = 1.0


class _Server:
    """A server process for one program: it has one, and that for good."""

    def __init__(self, program: BenchmarkProgram, sessions: int) -> None:
        self._file = tempfile.NamedTemporaryFile("w", suffix=".json")  # noqa: SIM115
        json.dump(dataclasses.asdict(program), self._file)
        self._file.flush()
        module = "spadework.benchmark.subjects.openenv_server"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, self._file.name, str(sessions)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        if not port:
            self.close()
            raise RuntimeError("the OpenEnv server did not start; its reason is above")
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        assert self.process.stdout is not None
        # It waits for threads that hang when it is asked to end.
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._file.close()


class OpenEnv(Subject):
    """All steps of a batch at once, each in a session of its own."""

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = _Server(self.case.program, self.case.episodes + _SPARE_SESSIONS)
        self._introduced: dict[str, _Server] = {}
        self._sessions: list[Any] = []
        self._hanging: set[asyncio.Task[None]] = set()
        self._turn = 0

    @property
    def servers(self) -> Collection[int]:
        return (self._server.process.pid,)

    def start(self, episodes: int) -> None:
        self._sessions = self._loop.run_until_complete(
            self._connect(self._server, range(episodes))
        )

    def step_all(self, *, timed: bool = False) -> int:
        self._turn += 1
        return self._loop.run_until_complete(self._step_all(timed))

    def introduce(self, program: BenchmarkProgram) -> None:
        server = self._introduced.get(program.source)
        if server is None:
            server = self._introduced[program.source] = _Server(program, _SPARE_SESSIONS)
        sessions = self._loop.run_until_complete(self._connect(server, range(1)))
        self._loop.run_until_complete(_close(sessions))

    def end_all(self) -> None:
        sessions, self._sessions = self._sessions, []
        self._loop.run_until_complete(_close(sessions))

    def close(self) -> None:
        self._loop.run_until_complete(self._abandon())
        self._loop.close()
        for server in (self._server, *self._introduced.values()):
            server.close()

    async def _connect(self, server: _Server, seeds: Collection[int]) -> list[Any]:
        gate = asyncio.Semaphore(_CONNECTING)

        async def connect(seed: int) -> Any:
            session: Any = GenericEnvClient(
                base_url=server.url,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                message_timeout_s=_HANG_TIMEOUT_S if self._hangs(seed) else _MESSAGE_TIMEOUT_S,
            )
            async with gate:
                await session.connect()
                await session.reset(seed=seed)
            return session

        return await asyncio.gather(*map(connect, seeds))

    async def _abandon(self) -> None:
        for task in self._hanging:
            task.cancel()
        await asyncio.gather(*self._hanging, return_exceptions=True)

    def _hangs(self, number: int) -> bool:
        return number < self.case.hung

    async def _step_all(self, timed: bool) -> int:
        started = time.perf_counter()
        if not self._hanging:
            # Those that hang are in the same batch, and are not waited for.
            for number in range(self.case.hung):
                task = self._loop.create_task(self._hang(number))
                self._hanging.add(task)
                task.add_done_callback(self._hanging.discard)
        sound = range(self.case.hung, len(self._sessions))
        await asyncio.gather(*(self._step(number, started, timed) for number in sound))
        return len(sound)

    async def _step(self, number: int, started: float, timed: bool) -> None:
        session = self._sessions[number]
        result = await session.step({"text": self.action(number, self._turn)})
        if timed:
            self.item_s.append(time.perf_counter() - started)
        if result.done:
            await session.reset(seed=number)

    async def _hang(self, number: int) -> None:
        session = self._sessions[number]
        try:
            await session.step({"text": HANG_ACTION})
        except TimeoutError:
            # Its thread hangs on in the server; only another session can take its place.
            self._sessions[number] = (await self._connect(self._server, [number]))[0]


async def _close(sessions: list[Any]) -> None:
    async def close(session: Any) -> None:
        await session.close()

    await asyncio.gather(*map(close, sessions), return_exceptions=True)
