"""What answers requests, and how: a process of its own, or an episode's part in a group's.

Each request is answered exactly once: with a `frames.Reply`, with a `Failure` that says what
became of the process, or with `Lost` when the fault is not the program's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from sandbox_server.failures import Failure, Lost
from sandbox_server.worker import frames

Answer = frames.Reply | Failure | Lost


class Endpoint(Protocol):
    """What answers requests: a process, or an episode's part in a group's."""

    def request(
        self, op: int, body: bytes, timeout_s: float, callback: Callable[[Answer], None]
    ) -> None:
        """Ask for something; `callback` gets the answer, once, from the event loop."""

    def close(self) -> None:
        """End it, whatever it is doing; what it was asked is answered `Lost`."""


class Seat(Endpoint, Protocol):
    """Where an episode is played."""

    @property
    def is_free(self) -> bool:
        """Whether it can be asked for the next step."""

    def step(self, action: str, timeout_s: float) -> None:
        """Ask for a step; who has started the episode gets the answer."""


class Pending(NamedTuple):
    """A request that has no answer yet."""

    request_id: int
    op: int
    callback: Callable[[Answer], None]
    deadline: float
    timeout_s: float


class Passing(NamedTuple):
    """A datagram that takes sockets along, after the request that announced them."""

    mark: bytes
    sockets: Sequence[socket.socket]

    def send(self, through: socket.socket) -> None:
        socket.send_fds(through, [self.mark], [passed.fileno() for passed in self.sockets])
        self.close()

    def close(self) -> None:
        for passed in self.sockets:
            passed.close()
