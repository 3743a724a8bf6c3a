"""Items in work: counted, bounded, and of steps only so many running at once."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator

from sandbox_server.config import ServerConfig
from sandbox_server.rate import Rate


class Work:
    """What one engine has in work, whichever verb it is of.

    A server with several tenants runs only so many steps of each at once, and keeps the rest
    waiting here: with thousands of one tenant's processes ready to run, the kernel would come
    to another's few only after them.

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
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def waiting_steps(self) -> int:
        """Steps that wait for others of the same tenant."""
        return len(self._waiting)

    def admit(self) -> None:
        """Check that there is room for one more item.

        Raises:
            CapacityError, QuotaError: If there is none.
        """
        if self.pending_items >= self._config.max_pending_items:
            raise self._config.full(f"{self.pending_items} items are in work, the bound")

    @contextlib.contextmanager
    def item(self) -> Iterator[None]:
        """Count one item while the block runs; raises as `admit`."""
        self.admit()
        self.pending_items += 1
        try:
            yield
        finally:
            self.pending_items -= 1

    def admit_step(self) -> None:
        """Check that a step may be taken now, and count it against the rate.

        Raises:
            CapacityError, QuotaError: If there is no room, or it is too early for another.
        """
        if self.pending_items >= self._most_pending:
            self.admit()
        if self._rate is not None and (wait_s := self._rate.wait_s()):
            # Not as soon as there is room for one: a batch would come back for each.
            wait_s = max(wait_s, self._config.retry_delay_s)
            raise self._config.full(f"over {self._rate.per_s:g} steps a second", wait_s)

    def begin_step(self) -> bool:
        """Count a step in.

        Returns:
            Whether it may run now; one that may not is to be handed to `wait`. Each has one
            `end_step`.
        """
        self.pending_items += 1
        if self._running < self._may_run:
            self._running += 1
            return True
        return False

    def wait(self, start: Callable[[], None]) -> None:
        """Start a step when another one has ended."""
        self._waiting.append(start)

    def end_step(self) -> None:
        """A step that ran, or came to nothing when its turn came, has its answer."""
        self.pending_items -= 1
        self._running -= 1
        if self._waiting and not self._starting:
            # A step may be answered while it is started: this loop goes on with the next one.
            self._starting = True
            try:
                while self._waiting and self._running < self._may_run:
                    self._running += 1
                    self._waiting.popleft()()
            finally:
                self._starting = False
