"""One epoll set for all sockets of jails and episodes, inside the event loop.

asyncio watches a single descriptor, this epoll's own; one wake-up then serves every
socket that is ready. That is what makes thousands of episodes cheap: a callback of the
event loop for each would cost more than the system calls.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

_MAX_EVENTS = 1024
# What is left then has its turn after everybody else's. Each tenant has a poller, and some
# answers take long to read: one tenant's must not all come before another's.
_SLICE_S = 0.01


class Poller:
    """Readiness callbacks by descriptor, and a heap of deadlines.

    Attributes:
        after: Called when a slice of what was ready has been served.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._left: deque[tuple[int, Callable[[int], None] | None, int]] = deque()
        self._deadlines: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._deadline_serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self.after: Callable[[], None] = lambda: None
        loop.add_reader(self._epoll.fileno(), self._serve)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        if self._timer is not None:
            self._timer.cancel()

    def add(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever `fd` is readable, or its other end is gone."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def want_write(self, fd: int, wanted: bool) -> None:
        """Also call back when `fd` is writable; nothing to do if it is not watched any more."""
        if fd in self._callbacks:
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def remove(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_at(self, when: float, callback: Callable[[Any], None], argument: Any) -> None:
        """Call `callback(argument)` at loop time `when`.

        There is no cancelling: most deadlines are never reached, and the callback can
        tell that its time has passed. That keeps the price of a deadline to a heap push.
        """
        self._deadline_serial += 1
        heapq.heappush(self._deadlines, (when, self._deadline_serial, callback, argument))
        if self._deadlines[0][1] == self._deadline_serial:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, _, callback, argument = heapq.heappop(deadlines)
            try:
                callback(argument)
            except Exception:
                _log.exception("a deadline's callback failed")
        self._timer = self._loop.call_at(deadlines[0][0], self._expire) if deadlines else None

    def wait(self, timeout_s: float) -> None:
        """Serve sockets and deadlines from outside the event loop, which must not run meanwhile.

        Args:
            timeout_s: How long to wait for one at most.
        """
        deadlines, now = self._deadlines, self._loop.time()
        if deadlines:
            if deadlines[0][0] <= now:
                if self._timer is not None:
                    self._timer.cancel()
                self._expire()
                return
            timeout_s = min(timeout_s, deadlines[0][0] - now)
        self._serve(timeout_s)

    def _serve(self, timeout_s: float = 0.0) -> None:
        callbacks, left, now = self._callbacks, self._left, time.monotonic
        if not left:
            for fd, events in self._epoll.poll(timeout_s, _MAX_EVENTS):
                left.append((fd, callbacks.get(fd), events))
        until = now() + _SLICE_S
        while left:
            fd, callback, events = left.popleft()
            # An earlier callback may have removed it, and the number may be another's by now.
            if callback is not None and callbacks.get(fd) is callback:
                try:
                    callback(events)
                except Exception:
                    _log.exception("serving a socket failed")
                    self.remove(fd)
                if now() > until:
                    break
        self.after()
