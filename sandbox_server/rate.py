"""A bound on how often something may be done, with bursts of one second's worth."""

from __future__ import annotations

import time
from collections.abc import Callable


class Rate:
    """A token bucket.

    Args:
        per_s: How many a second.
        clock: Seconds that never go back.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self._clock = clock
        self._most = max(1.0, per_s)
        self._left = self._most
        self._filled_at = clock()

    def wait_s(self) -> float:
        """Take one, if there is one.

        Returns:
            0 if one was taken, else the seconds after which there is one again.
        """
        self._fill()
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self.per_s

    def owed_s(self) -> float:
        """Seconds until there is one, and what was taken ahead is made up for; takes none."""
        self._fill()
        return max(0.0, 1.0 - self._left) / self.per_s

    def take(self, number: int) -> None:
        """Take so many that cannot wait; those that are not there are taken ahead."""
        self._left -= number

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._filled_at) * self.per_s)
        self._filled_at = now
