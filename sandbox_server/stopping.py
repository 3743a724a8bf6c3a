"""How a server in the foreground is told to end."""

from __future__ import annotations

import asyncio
import os
import signal

from sandbox_server.backends import BackendError


class Stop:
    """Signals, and the end of standard input, as events.

    A first SIGTERM or SIGINT tells, a second one hurries. The end of standard input does both
    at once: whoever the episodes were for is gone.

    Args:
        with_stdin: Whether the end of standard input counts.

    Attributes:
        told: Set when the server is to end.
        hurried: Set when it is to end at once.

    Raises:
        BackendError: If standard input is nothing whose end can be waited for.
    """

    def __init__(self, *, with_stdin: bool) -> None:
        self.told = asyncio.Event()
        self.hurried = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if with_stdin:
            try:
                self._loop.add_reader(0, self._on_stdin)
            except OSError:
                raise BackendError(
                    "--exit-with-stdin needs a pipe, a socket or a terminal as standard input, "
                    "which a file or /dev/null is not"
                ) from None

    def on_signals(self) -> None:
        """From now on SIGTERM and SIGINT tell and hurry; before, they end the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.hurried if self.told.is_set() else self.told).set()

    def _on_stdin(self) -> None:
        if not os.read(0, 4096):
            self._loop.remove_reader(0)
            self.told.set()
            self.hurried.set()
