"""A discrete-event simulation's clock, and queues in front of what does the work.

A heap of calls, of its own: the one event of a service is its end, where a library of processes
(simpy, say) has several, and a question here is some million services.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

Then = Callable[..., None]


class Clock:
    """Makes calls at their times; those of one time in the order in which they were asked for.

    Attributes:
        now: Seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Then, tuple[Any, ...]]] = []
        self._serial = itertools.count()

    def after(self, seconds: float, call: Then, *arguments: Any) -> None:
        """Call something so much later."""
        heapq.heappush(self._calls, (self.now + seconds, next(self._serial), call, arguments))

    def run(self, until: float) -> None:
        """Make all calls up to a time; the clock stands there afterwards."""
        calls = self._calls
        while calls and calls[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(calls)
            call(*arguments)
        self.now = until


class Station:
    """Equal servers behind one queue, first come, first served; cores, say.

    Attributes:
        arrived: Jobs so far.
        served: Jobs done so far.
        busy_s: Service begun so far, of all servers together.
    """

    def __init__(self, clock: Clock, servers: int) -> None:
        self._clock = clock
        self._free = servers
        self.servers = servers
        self._waiting: deque[tuple[float, Then, tuple[Any, ...]]] = deque()
        self.arrived = self.served = 0
        self.busy_s = 0.0

    @property
    def present(self) -> int:
        """Jobs that wait or are served."""
        return self.arrived - self.served

    def submit(self, service_s: float, then: Then, *arguments: Any) -> None:
        """Have a job done, and something called then."""
        self.arrived += 1
        if self._free:
            self._free -= 1
            self._begin(service_s, then, arguments)
        else:
            self._waiting.append((service_s, then, arguments))

    def _begin(self, service_s: float, then: Then, arguments: tuple[Any, ...]) -> None:
        self.busy_s += service_s
        self._clock.after(service_s, self._end, then, arguments)

    def _end(self, then: Then, arguments: tuple[Any, ...]) -> None:
        self.served += 1
        if self._waiting:
            self._begin(*self._waiting.popleft())
        else:
            self._free += 1
        then(*arguments)


class Lane:
    """A queue of its own in front of a station, so many of whose jobs are there at once.

    One: a thread, which does one thing at a time and needs a core for it.

    Attributes:
        busy_s: Service asked for so far.
    """

    def __init__(self, station: Station, width: int = 1) -> None:
        self._station = station
        self._free = width
        self._waiting: deque[tuple[float, Then, tuple[Any, ...]]] = deque()
        self.busy_s = 0.0

    @property
    def waiting(self) -> int:
        """Jobs that are not at the station yet."""
        return len(self._waiting)

    def submit(self, service_s: float, then: Then, *arguments: Any) -> None:
        """Have a job done, and something called then."""
        self.busy_s += service_s
        if self._free:
            self._free -= 1
            self._station.submit(service_s, self._end, then, arguments)
        else:
            self._waiting.append((service_s, then, arguments))

    def _end(self, then: Then, arguments: tuple[Any, ...]) -> None:
        if self._waiting:
            service_s, next_then, next_arguments = self._waiting.popleft()
            self._station.submit(service_s, self._end, next_then, next_arguments)
        else:
            self._free += 1
        then(*arguments)
