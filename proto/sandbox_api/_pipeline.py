"""Steps with many batches in flight, and their results as they become ready.

For loops in which something else takes time too: while a model writes the next actions of some
episodes, others are stepped, and a slow episode holds up none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from sandbox_api.errors import InvalidRequestError, SandboxError
from sandbox_api.types import StepItem, StepResult

# Items of one pipeline whose results have not been taken: at 32 KiB each, half a GiB.
MAX_PIPELINE_ITEMS = 16_384


class AsyncStepPipeline:
    """Steps in flight, and results that nobody has taken yet. Made by a client's `pipeline()`.

        async with client.pipeline() as pipeline:
            pipeline.submit(items)
            while results := await pipeline.results(at_least=64):
                pipeline.submit(next_items(results))

    Everything holds as for a client's `step`: each item succeeds or fails alone, and lost episodes
    are rebuilt. Leaving the block gives up what is still in flight; the episodes stay open.

    Args:
        stream: A client's `step_stream`.
        max_items: Items in flight and results not taken, together, at most.
    """

    def __init__(
        self,
        stream: Callable[[Sequence[StepItem]], AsyncIterator[StepResult]],
        max_items: int = MAX_PIPELINE_ITEMS,
    ) -> None:
        self._stream = stream
        self._max_items = max_items
        self._in_flight: dict[str, StepItem] = {}
        self._ready: deque[StepResult] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._wanted = 0
        self._enough: asyncio.Future[None] | None = None
        self._fault: Exception | None = None

    async def __aenter__(self) -> AsyncStepPipeline:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give up what is in flight, and forget results that nobody took."""
        batches = list(self._batches)
        for batch in batches:
            batch.cancel()
        await asyncio.gather(*batches, return_exceptions=True)
        self._in_flight.clear()
        self._ready.clear()
        self._wake()

    @property
    def in_flight(self) -> int:
        """Items that have no result yet."""
        return len(self._in_flight)

    def submit(self, items: Sequence[StepItem]) -> None:
        """Send items as one batch, and do not wait for it.

        Raises:
            InvalidRequestError: If an episode has an item in flight already, or there would be
                too many items and results; then nothing is sent.
        """
        if not items:
            return
        by_episode = {item.episode_id: item for item in items}
        if len(by_episode) < len(items) or not by_episode.keys().isdisjoint(self._in_flight):
            raise InvalidRequestError(
                "an episode has a step in flight already; submit its next one when `results` has "
                "given that one's result"
            )
        held = len(self._in_flight) + len(self._ready)
        if held + len(items) > self._max_items:
            raise InvalidRequestError(
                f"the pipeline holds {held} items of at most {self._max_items}; take `results` "
                "before you submit more"
            )
        self._in_flight.update(by_episode)
        batch = asyncio.create_task(self._run(items))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def results(self, at_least: int = 1, at_most: int | None = None) -> list[StepResult]:
        """Wait for results, of any batch, in the order in which they became ready.

        Args:
            at_least: Wait until there are so many, or nothing is in flight any more.
            at_most: Take no more than so many; None takes all that there are.

        Returns:
            Results; none only where nothing is in flight and all have been taken.
        """
        if at_most is not None:
            at_least = min(at_least, at_most)
        while self._fault is None and self._in_flight and len(self._ready) < at_least:
            self._wanted = at_least
            self._enough = asyncio.get_running_loop().create_future()
            try:
                await self._enough
            finally:
                self._enough = None
        if self._fault is not None:
            raise self._fault
        if at_most is None or at_most >= len(self._ready):
            taken, self._ready = list(self._ready), deque()
            return taken
        return [self._ready.popleft() for _ in range(at_most)]

    async def _run(self, items: Sequence[StepItem]) -> None:
        error: Exception | None = None
        try:
            async for result in self._stream(items):
                self._put(result)
        except SandboxError as refused:
            # Of the whole call; an item's own is in its result.
            error = refused
        except Exception as fault:
            self._fault = fault
        for item in items:
            if self._in_flight.get(item.episode_id) is item:
                lost = StepResult(item.episode_id, item.step_index, None)
                lost.error = error or self._fault
                self._put(lost)
        self._wake()

    def _put(self, result: StepResult) -> None:
        del self._in_flight[result.episode_id]
        self._ready.append(result)
        if len(self._ready) >= self._wanted or not self._in_flight:
            self._wake()

    def _wake(self) -> None:
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)
