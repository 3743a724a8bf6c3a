"""The client for callers without an event loop of their own.

One background thread runs an event loop with an `AsyncSandboxClient` in it; every method
here hands its work over and waits. So it works the same in a plain script, in a thread,
and inside a running event loop (which it blocks, as any synchronous call does).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from sandbox_api._async import AsyncSandboxClient
from sandbox_api._blocking import BlockingCalls
from sandbox_api.access import Access
from sandbox_api.types import Episode, ResetItem, StepItem, StepResult

T = TypeVar("T")

# gRPC has tasks of its own, which end a moment after their channel is closed.
_LAST_TASKS_S = 0.5


async def _last_tasks() -> None:
    """Let them end: asyncio complains of tasks that a stopped loop leaves behind."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_LAST_TASKS_S)


class SandboxClient(BlockingCalls):
    """Talks to one sandbox server, from any number of threads.

    Takes the arguments of `AsyncSandboxClient`; each method is that of the same name
    there. Use it as a context manager, or call `close()`.
    """

    def __init__(
        self,
        address: str,
        *,
        access: Access | None = None,
        timeout_margin_s: float = 30.0,
        max_in_flight_items: int = 8192,
        max_retries: int = 5,
        rebuild_lost: bool = True,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="sandbox-client", daemon=True
        )
        self._thread.start()
        self._client = AsyncSandboxClient(
            address,
            access=access,
            timeout_margin_s=timeout_margin_s,
            max_in_flight_items=max_in_flight_items,
            max_retries=max_retries,
            rebuild_lost=rebuild_lost,
        )

    @property
    def address(self) -> str:
        return self._client.address

    def close(self) -> None:
        """Close the connection and end the background thread. Closing twice is fine."""
        if self._loop.is_closed():
            return
        self._wait(self._client.aclose())
        self._wait(_last_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this SandboxClient is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here must not leave the call running there.
            raise

    def reset_stream(self, items: Sequence[ResetItem]) -> Iterator[tuple[int, Episode]]:
        """Start episodes, yielding each as it is ready, with its item's index."""
        yield from self._stream(self._client.reset_stream(items))

    def step_stream(self, items: Sequence[StepItem]) -> Iterator[StepResult]:
        """Advance episodes, yielding results as they are ready, in any order."""
        yield from self._stream(self._client.step_stream(items))

    def _stream(self, results: AsyncIterator[T]) -> Iterator[T]:
        ready: queue.SimpleQueue[T | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for result in results:
                    ready.put(result)
            finally:
                ready.put(None)

        future = self._submit(pump())
        try:
            while (result := ready.get()) is not None:
                yield result
            future.result()
        finally:
            future.cancel()
