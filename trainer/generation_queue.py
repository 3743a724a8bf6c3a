"""One queue for all who want completions of a model in this process.

First come, first served: whenever the engine can take rows, those that have waited longest join
it, so nobody waits for a batch to fill up or for a long completion to end. A request that names
a `Batch` waits for the others that do, and these are sampled by themselves: what shares a forward
pass is then the same in every run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trainer.generation import Batch, Completion, GenerationCount, GenerationRequest

# A completion that goes on has its attention state copied when others join it. These bound how
# often: when so many passes are over, or those who wait are such a share of those who run.
JOIN_PASSES = 8
JOIN_SHARE = 8


class Engine(Protocol):
    """Samples for many rows at once; used by one thread at a time.

    Attributes:
        max_rows: Rows that it takes at most.
        exact: See `Generator`.
    """

    max_rows: int
    exact: bool

    @property
    def rows(self) -> int:
        """Rows that are being sampled."""
        ...

    def begin(self, seed: int) -> None:
        """Forget what it knows of older weights; seed the streams."""
        ...

    def forget(self, key: str) -> None:
        """Let go of what it keeps of a row."""
        ...

    def join(self, requests: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Take rows in, each with a number that names it."""
        ...

    def leave(self, numbers: Sequence[int]) -> None:
        """Give rows up that nobody waits for."""
        ...

    def advance(
        self, interrupted: Callable[[int], bool]
    ) -> list[tuple[int, Completion | Exception]]:
        """Sample until at least one row is done, or, asked after each pass, it is interrupted.

        Args:
            interrupted: Given the passes so far, whether to stop.

        Returns:
            The rows that are done, which have left, with their completions or why there is none.
        """
        ...


@dataclass
class _Ticket:
    request: GenerationRequest
    future: asyncio.Future[Completion]


class GenerationQueue:
    """A `Generator` over an `Engine`, which works in a thread of its own while anybody waits.

    Args:
        engine: Samples for many at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.exact = engine.exact
        # Each entry is one request, or all of a batch.
        self._waiting: deque[list[_Ticket]] = deque()
        self._incomplete: dict[Batch, list[_Ticket]] = {}
        self._running: dict[int, _Ticket] = {}
        self._by_itself = False
        self._numbers = 0
        self._unnamed = 0
        self._worker: asyncio.Task[None] | None = None
        self.count = GenerationCount()

    def begin(self, seed: int) -> None:
        """Start afresh with the weights as they are now, and sampling seeded."""
        if self._running:
            raise RuntimeError("completions are being sampled; begin when all have ended")
        self._unnamed = 0
        self._incomplete.clear()
        self._engine.begin(seed)

    def forget(self, key: str) -> None:
        """No request will name this key any more."""
        self._engine.forget(key)

    def close(self) -> None:
        """Nothing to let go of: the engine ends with its process."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion, together with what else waits.

        Raises:
            ValueError: If the prompt is empty, or the grammar does not compile.
        """
        if not request.prompt_ids:
            raise ValueError("cannot continue an empty prompt")
        if not request.stream:
            request = replace(request, stream=f"unnamed {self._unnamed:09d}")
            self._unnamed += 1
        ticket = _Ticket(request, asyncio.get_running_loop().create_future())
        batch = request.batch
        if batch is None:
            self._waiting.append([ticket])
        else:
            tickets = self._incomplete.setdefault(batch, [])
            tickets.append(ticket)
            if len(tickets) == batch.size:
                del self._incomplete[batch]
                self._waiting.append(sorted(tickets, key=lambda t: t.request.stream))
        if self._worker is None and self._waiting:
            self._worker = asyncio.create_task(self._work())
        return await ticket.future

    async def _work(self) -> None:
        try:
            while self._waiting or self._running:
                self._give_up()
                self._admit()
                if self._running:
                    await self._advance()
        finally:
            self._worker = None

    def _give_up(self) -> None:
        """Let rows go whose callers were cancelled."""
        given_up = [n for n, ticket in self._running.items() if ticket.future.done()]
        for number in given_up:
            del self._running[number]
        if given_up:
            self._engine.leave(given_up)

    def _admit(self) -> None:
        """Let those join who have waited longest, as many as there is room for."""
        if not self._running:
            self._by_itself = False
        joining: list[tuple[int, GenerationRequest]] = []
        while self._waiting and self._may_join():
            tickets = self._waiting[0]
            batch = tickets[0].request.batch
            taken = tickets[: self._engine.max_rows]
            # A batch that is too large goes in pieces, one after the other.
            del tickets[: len(taken)]
            if not tickets:
                self._waiting.popleft()
            for ticket in taken:
                if not ticket.future.done():
                    self._running[self._numbers] = ticket
                    joining.append((self._numbers, ticket.request))
                    self._numbers += 1
            self._by_itself = batch is not None and bool(self._running)
        if joining:
            self._engine.join(joining)

    def _may_join(self) -> bool:
        if not self._running:
            return True
        if self._by_itself or self._waiting[0][0].request.batch is not None:
            return False
        return len(self._running) < self._engine.max_rows

    async def _advance(self) -> None:
        started = time.perf_counter()
        finished: list[tuple[int, Completion | Exception]]
        try:
            finished = await asyncio.to_thread(self._engine.advance, self._is_interrupted)
        except Exception as error:
            # Of the pass, so of all who share it.
            finished = [(number, error) for number in self._running]
            self._engine.leave(list(self._running))
        self.count.seconds += time.perf_counter() - started
        for number, result in finished:
            future = self._running.pop(number).future
            if not isinstance(result, Exception):
                self.count.tokens += len(result.token_ids)
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _is_interrupted(self, passes: int) -> bool:
        """Whether somebody should join now; asked in the engine's thread."""
        if not self._waiting or not self._may_join():
            return False
        many = len(self._waiting) * JOIN_SHARE >= len(self._running)
        return many or passes >= JOIN_PASSES
