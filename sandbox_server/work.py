"""Items in work: counted, bounded, and of steps only so many running at once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable

from sandbox_api.errors import CapacityError, QuotaError

from sandbox_server.config import ServerConfig
from sandbox_server.rate import Rate


class Work:
    """What one engine has in work, whichever verb it is of.

    A server with several tenants runs only so much of each at once, and keeps the rest waiting
    here: with thousands of one tenant's processes ready to run, the kernel would come to
    another's few only after them. Items whose results may be large count for more than one.

    Attributes:
        pending_items: Items in work in all calls together, waiting ones included.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.pending_items = 0
        self._config = config
        self._most_pending = config.max_pending_items
        self._rate = Rate(config.max_steps_per_s) if config.max_steps_per_s else None
        self._may_run = config.max_running_steps if config.tenant else sys.maxsize
        self._running = 0
        self._starting = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting_steps(self) -> int:
        """Items that wait for others of the same tenant."""
        return len(self._waiting)

    def admit(self) -> None:
        """Check that there is room for one more item.

        Raises:
            CapacityError, QuotaError: If there is none.
        """
        if self.pending_items >= self._config.max_pending_items:
            raise self._config.full(f"{self.pending_items} items are in work, the bound")

    @contextlib.asynccontextmanager
    async def item(self, cost: int = 1) -> AsyncIterator[None]:
        """Wait for an item's turn, and count it while the block runs; raises as `admit`.

        Args:
            cost: For how many it counts.
        """
        self.admit()
        if not self.begin_step(cost):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.wait(lambda: self._grant(turn, cost), cost)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    # It had come, and nobody takes it.
                    self.end_step(cost)
                raise
        try:
            yield
        finally:
            self.end_step(cost)

    def _grant(self, turn: asyncio.Future[None], cost: int) -> None:
        if turn.done():
            # Its call was cancelled while it waited.
            self.end_step(cost)
        else:
            turn.set_result(None)

    def admit_step(self) -> None:
        """Check that a step may be taken now, and count it against the rate.

        Raises:
            CapacityError, QuotaError: If there is no room, or it is too early for another.
        """
        if self.pending_items >= self._most_pending:
            self.admit()
        if self._rate is not None and (wait_s := self._rate.wait_s()):
            raise self._too_early(self._rate, wait_s)

    def admit_replay(self) -> None:
        """Check that steps may be played again now, each then to be told to `count_replayed`.

        Raises:
            QuotaError: If it is too early.
        """
        if self._rate is not None and (wait_s := self._rate.owed_s()):
            raise self._too_early(self._rate, wait_s)

    def count_replayed(self, steps: int = 1) -> None:
        """Count steps that a reset, a verification or an oracle has played against the rate."""
        if self._rate is not None:
            self._rate.take(steps)

    def _too_early(self, rate: Rate, wait_s: float) -> CapacityError | QuotaError:
        # Not as soon as there is room for one: a batch would come back for each.
        wait_s = max(wait_s, self._config.retry_delay_s)
        return self._config.full(f"over {rate.per_s:g} steps a second", wait_s)

    def begin_step(self, cost: int = 1) -> bool:
        """Count a step, or another item, in.

        Returns:
            Whether it may run now; one that may not is to be handed to `wait`. Each has one
            `end_step`, of the same cost.
        """
        self.pending_items += 1
        if self._fits(cost) and not self._waiting:
            self._running += cost
            return True
        return False

    def _fits(self, cost: int) -> bool:
        return self._running + cost <= self._may_run or self._running == 0

    def wait(self, start: Callable[[], None], cost: int = 1) -> None:
        """Start a step when others have ended."""
        self._waiting.append((cost, start))

    def begin_steps(self, most: int, cost: int = 1) -> int:
        """Count steps in that may run now, if there is no rate to hold them to.

        Args:
            most: How many are wanted.
            cost: For how many each of them counts.

        Returns:
            How many were counted in; what does not come to run is to be ended at once.
        """
        if self._rate is not None or self._waiting:
            return 0
        room = min(
            self._most_pending - self.pending_items, (self._may_run - self._running) // cost
        )
        begun = max(0, min(most, room))
        self.pending_items += begun
        self._running += begun * cost
        return begun

    def end_step(self, cost: int = 1) -> None:
        """A step that ran, or came to nothing when its turn came, has its answer."""
        self._end(1, cost)

    def end_steps(self, count: int, cost: int = 0) -> None:
        """As `end_step`, of several steps.

        Args:
            count: How many.
            cost: Of all of them together; 0 means 1 each.
        """
        self._end(count, cost or count)

    def _end(self, items: int, cost: int) -> None:
        self.pending_items -= items
        self._running -= cost
        if self._waiting and not self._starting:
            # A step may be answered while it is started: this loop goes on with the next one.
            self._starting = True
            try:
                while self._waiting and self._fits(self._waiting[0][0]):
                    due, start = self._waiting.popleft()
                    self._running += due
                    start()
            finally:
                self._starting = False
