"""At most so much in any window of time: requests or tokens a minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 60.0
# What was taken too much may be given back meanwhile, so a wait looks up this many times.
_LOOKS = 60


@dataclass
class Taken:
    """A part of the window that somebody holds."""

    at_s: float
    amount: int


class RateLimit:
    """A window that slides: it holds no burst at its border, as a bucket that refills would.

    Args:
        most: Amount in any window; 0 for no limit.
        window_s: Its length.
        clock: Seconds, only going forward.
    """

    def __init__(
        self, most: int, window_s: float = WINDOW_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._taken: deque[Taken] = deque()
        self._turn = asyncio.Lock()  # first come, first served

    async def take(self, amount: int) -> Taken:
        """Wait until the window has room, and take it.

        An amount above the limit waits for an empty window: whether it may pass is up to the
        server.
        """
        async with self._turn:
            wanted = min(amount, self._most)
            while (wait_s := self._wait_s(wanted)) > 0:
                await asyncio.sleep(min(wait_s, self._window_s / _LOOKS))
            taken = Taken(self._clock(), amount)
            if self._most:
                self._taken.append(taken)
            return taken

    def correct(self, taken: Taken, amount: int) -> None:
        """Say what was used in the end."""
        taken.amount = amount

    def _wait_s(self, amount: int) -> float:
        now_s = self._clock()
        while self._taken and self._taken[0].at_s <= now_s - self._window_s:
            self._taken.popleft()
        over = sum(taken.amount for taken in self._taken) + amount - self._most
        if not self._most or over <= 0:
            return 0.0
        for taken in self._taken:
            over -= taken.amount
            if over <= 0:
                return taken.at_s + self._window_s - now_s
        # More was used than was taken: the window must run empty.
        return self._taken[-1].at_s + self._window_s - now_s if self._taken else 0.0
