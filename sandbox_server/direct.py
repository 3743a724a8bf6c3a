"""The engine in the caller's own process: isolated episodes without a server, stepped by hand.

What `gymnasium.vector.AsyncVectorEnv` is used for, with the methods of `SandboxClient`. A step
goes from the calling thread to the episode's process and back: all actions are sent, then the
sockets are polled here until all have answered. The engine's event loop runs in between, and
where something takes longer: registering, starting, a jail that died.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar, cast

from sandbox_api import AsyncSandboxClient
from sandbox_api._blocking import BlockingCalls
from sandbox_api.types import Episode, ResetItem, StepItem, StepResult

from sandbox_server import cache, doctor, runtime, state
from sandbox_server.audit import AuditLog
from sandbox_server.config import DEFAULT_TENANT, ServerConfig
from sandbox_server.direct_player import DirectPlayer
from sandbox_server.engine import Engine
from sandbox_server.engine_stub import EngineStub

T = TypeVar("T")

_log = logging.getLogger(__name__)

# While steps are waited for, the event loop has a turn so often, and at least so often while
# steps follow each other: it ends idle episodes, and starts again what died.
_TURN_S = 0.02
_LEISURE_S = 1.0
# Fewer steps than there are CPUs are polled for so long before this thread sleeps.
_SPIN_S = 0.0002


class _Client(AsyncSandboxClient):
    """The client, with an engine in the place of a server's stub."""

    def __init__(self, stub: EngineStub) -> None:
        super().__init__("")
        self._stub = stub


class DirectSandbox(BlockingCalls):
    """A sandbox of this process, for one thread of it.

    Episodes are as isolated as a server's, and as bounded; a sandbox whose protections are not
    in force does not start. What is given up is the process between: a fault of the engine is
    one of yours, and nobody else can use it. Only the thread that made it may call it, and not
    while an event loop runs there.

    Each method is that of the same name of `SandboxClient`. Episodes that were lost through no
    fault of their program are rebuilt here, too.

    Args:
        backend: "nsjail", "docker", or "process", which isolates nothing.
        runtimes: Runtimes to offer; each is built now if it is not there.
        max_episodes: Live episodes at most.
        settings: The other settings of a server; what the arguments above say holds
            whatever it says.

    Raises:
        BackendError: If a protection is not in force; says what to do. So does a
            `RuntimeBuildError`, `StateFolderError` or `AuditError`.
        RuntimeError: If an event loop runs in this thread.
    """

    def __init__(
        self,
        *,
        backend: str = "nsjail",
        runtimes: Sequence[str] = ("stdlib",),
        max_episodes: int = ServerConfig.max_episodes,
        settings: ServerConfig | None = None,
    ) -> None:
        _check_no_loop()
        self._thread_id = threading.get_ident()
        config = dataclasses.replace(
            settings or ServerConfig(),
            backend=backend,
            runtimes=tuple(runtimes),
            max_episodes=max_episodes,
        )
        doctor.limits.raise_open_files(config.max_episodes)
        doctor.require(config)
        if backend == "process":
            _log.warning("backend `process` isolates nothing: do not run code you do not trust")
        built = {name: runtime.ensure(name) for name in config.runtimes}
        cache.tidy()
        state.reap_dead()
        self._audit = AuditLog(config.audit_log)
        self._loop = asyncio.new_event_loop()
        self._engine = Engine(config, built, self._record)
        # Members of a group share a message, which the event loop puts together.
        self._by_hand = config.group_size == 1
        self._turn_at = 0.0
        self._cpus = len(os.sched_getaffinity(0))
        stub = EngineStub(self._engine, self._audit)
        self._client = _Client(stub)
        self._player = DirectPlayer(self._engine, self._client.ledger)
        try:
            self._wait(self._engine.start())
        except BaseException:
            self._loop.close()
            self._audit.close()
            state.remove()
            raise

    def _record(self, event: str, **told: Any) -> None:
        self._audit.record(event, DEFAULT_TENANT, **told)

    def close(self) -> None:
        """End all episodes and jails. Closing twice is fine."""
        if self._loop.is_closed():
            return
        self._wait(self._close())
        self._loop.close()
        self._audit.close()
        state.remove()

    async def _close(self) -> None:
        await self._engine.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _check_call(self) -> None:
        """Check that it can be called here and now.

        Raises:
            RuntimeError: If it is closed, or another thread calls, or an event loop.
        """
        if self._loop.is_closed():
            raise RuntimeError("this DirectSandbox is closed; make a new one")
        if threading.get_ident() != self._thread_id:
            raise RuntimeError(
                "a DirectSandbox is for the thread that made it; make one in each thread, or use "
                "SandboxClient and a server, which any number of threads may call"
            )
        _check_no_loop()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_call()
        except RuntimeError:
            work.close()
            raise
        return self._loop.run_until_complete(work)

    def _turn(self) -> None:
        """Let the event loop do what is due."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()
        self._turn_at = time.monotonic()

    # -- playing -----------------------------------------------------------------------

    def step(self, items: Sequence[StepItem]) -> list[StepResult]:
        """Advance episodes; see `AsyncSandboxClient.step`."""
        results: list[StepResult | None] = [None] * len(items)
        for _ in self._steps(items, results):
            pass
        if None in results:
            self._step_others(items, results)
        return cast("list[StepResult]", results)

    def reset_stream(self, items: Sequence[ResetItem]) -> Iterator[tuple[int, Episode]]:
        """Start episodes, yielding each with its item's index."""
        yield from enumerate(self.reset(items))

    def step_stream(self, items: Sequence[StepItem]) -> Iterator[StepResult]:
        """Advance episodes, yielding results as they are ready, in any order."""
        results: list[StepResult | None] = [None] * len(items)
        open_places = set(range(len(items)))
        for _ in self._steps(items, results):
            ready = [place for place in open_places if results[place] is not None]
            open_places.difference_update(ready)
            yield from (cast("StepResult", results[place]) for place in ready)
        if open_places:
            self._step_others(items, results)
            yield from (cast("StepResult", results[place]) for place in open_places)

    def _steps(
        self, items: Sequence[StepItem], results: list[StepResult | None]
    ) -> Iterator[None]:
        """Take the steps that can be taken by hand; yields whenever some may have results."""
        self._check_call()
        if not self._by_hand:
            return
        player, wait = self._player, self._engine.jails.poller.wait
        if time.monotonic() - self._turn_at > _LEISURE_S:
            self._turn()
        player.send(items, results)
        try:
            if 0 < player.in_work < self._cpus:
                self._spin()
            while left := player.in_work:
                wait(_TURN_S)
                if player.in_work == left:
                    self._turn()
                yield
        finally:
            player.settle()

    def _spin(self) -> None:
        """Poll without sleep for a moment: to wake up takes longer than a short step."""
        player, wait = self._player, self._engine.jails.poller.wait
        until = time.perf_counter() + _SPIN_S
        while player.in_work and time.perf_counter() < until:
            wait(0.0)

    def _step_others(self, items: Sequence[StepItem], results: list[StepResult | None]) -> None:
        """Take the steps that have no result: those of groups, and all that went wrong."""
        places = [place for place, result in enumerate(results) if result is None]
        found = self._wait(self._client.step([items[place] for place in places]))
        for place, result in zip(places, found, strict=True):
            results[place] = result

    def close_episodes(self, episode_ids: Sequence[str]) -> int:
        """End episodes; see `AsyncSandboxClient.close_episodes`."""
        self._player.forget(episode_ids)
        return self._wait(self._client.close_episodes(episode_ids))


def _check_no_loop() -> None:
    """Check that no event loop runs in this thread.

    Raises:
        RuntimeError: If one does.
    """
    if asyncio.events._get_running_loop() is not None:
        raise RuntimeError(
            "DirectSandbox cannot be used where an event loop runs (in a coroutine, in a "
            "notebook's cell): give it a thread of its own, or use AsyncSandboxClient and a server"
        )
