"""Calls of many coroutines, gathered into few rpcs.

A batched item costs the server microseconds where a call of its own costs it a millisecond. So
what asks for the same within `GATHER_S` goes out together; a result comes back to its caller as
soon as the server has it, and the slow ones hold up nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from sandbox_api.errors import SandboxError
from sandbox_api.types import Episode, ResetItem, StepItem, StepResult

from trainer.protocols import SandboxClient

# Seconds between two rpcs of one kind, at least: at a millisecond of CPU time each, a server
# spends no more than a fifth of a core on calls, however the answers dribble in.
GATHER_S = 0.005

Item = TypeVar("Item")
Result = TypeVar("Result")


class BusyClock:
    """Wall seconds during which at least one call was in flight."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._in_flight = 0
        self._since = 0.0

    def __enter__(self) -> None:
        if not self._in_flight:
            self._since = time.perf_counter()
        self._in_flight += 1

    def __exit__(self, *_: object) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self.seconds += time.perf_counter() - self._since


class Gatherer(Generic[Item, Result]):
    """Sends what was asked for since the last rpc in the next one.

    Args:
        send: One rpc: yields each result, with its item's index, as it becomes ready.
        failed: The result of an item whose call failed as a whole.
        clock: Runs while a call is in flight.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], AsyncIterator[tuple[int, Result]]],
        failed: Callable[[Item, SandboxError], Result],
        clock: BusyClock,
    ) -> None:
        self._send = send
        self._failed = failed
        self._clock = clock
        self._items: list[Item] = []
        self._futures: list[asyncio.Future[Result]] = []
        self._sent_at = -GATHER_S
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> Result:
        """What becomes of one item."""
        loop = asyncio.get_running_loop()
        if not self._items:
            # At the earliest when all that can run now has run: it may ask, too.
            loop.call_at(max(loop.time(), self._sent_at + GATHER_S), self._flush)
        future: asyncio.Future[Result] = loop.create_future()
        self._items.append(item)
        self._futures.append(future)
        return await future

    async def aclose(self) -> None:
        """Give up the calls in flight; whoever waits for them must have been cancelled."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _flush(self) -> None:
        items, futures = self._items, self._futures
        self._items, self._futures = [], []
        self._sent_at = asyncio.get_running_loop().time()
        call = asyncio.create_task(self._call(items, futures))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, items: list[Item], futures: list[asyncio.Future[Result]]) -> None:
        try:
            with self._clock:
                async for index, result in self._send(items):
                    if not futures[index].done():
                        futures[index].set_result(result)
        except SandboxError as error:
            for item, future in zip(items, futures, strict=True):
                if not future.done():
                    future.set_result(self._failed(item, error))
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)


class SandboxCalls:
    """A sandbox that is asked for one episode at a time, and is sent batches.

    Nothing raises `SandboxError`: a call that failed is a result that says so.

    Args:
        client: Sends them.

    Attributes:
        clock: Runs while a call is in flight.
    """

    def __init__(self, client: SandboxClient) -> None:
        self._client = client
        self._open: set[str] = set()
        self.clock = BusyClock()
        self._resets = Gatherer[ResetItem, Episode](
            self._reset, lambda item, error: Episode("", None, error=error), self.clock
        )
        self._steps = Gatherer[StepItem, StepResult](
            self._step,
            lambda item, error: StepResult(item.episode_id, item.step_index, None, error=error),
            self.clock,
        )
        self._closes = Gatherer[str, None](self._close, lambda _, error: None, self.clock)

    async def reset(self, item: ResetItem) -> Episode:
        """Start one episode."""
        return await self._resets.ask(item)

    async def step(self, item: StepItem) -> StepResult:
        """Advance one episode."""
        return await self._steps.ask(item)

    async def close(self, episode_id: str) -> None:
        """End one episode."""
        await self._closes.ask(episode_id)

    async def aclose(self) -> None:
        """Give up what is in flight, and close what is still open."""
        for gatherer in (self._resets, self._steps, self._closes):
            await gatherer.aclose()
        if self._open:
            # What cannot be closed ends by the server's idle timeout.
            with suppress(SandboxError):
                await self._client.close_episodes(sorted(self._open))

    async def _reset(self, items: Sequence[ResetItem]) -> AsyncIterator[tuple[int, Episode]]:
        async for index, episode in self._client.reset_stream(items):
            if episode.ok:
                self._open.add(episode.episode_id)
            yield index, episode

    async def _step(self, items: Sequence[StepItem]) -> AsyncIterator[tuple[int, StepResult]]:
        places = {item.episode_id: index for index, item in enumerate(items)}
        async for result in self._client.step_stream(items):
            yield places[result.episode_id], result

    async def _close(self, episode_ids: Sequence[str]) -> AsyncIterator[tuple[int, None]]:
        await self._client.close_episodes(episode_ids)
        self._open.difference_update(episode_ids)
        for index in range(len(episode_ids)):
            yield index, None
