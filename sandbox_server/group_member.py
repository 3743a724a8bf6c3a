"""A member of a group: an episode's part in a process that it shares with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sandbox_server.channel import Answer
from sandbox_server.failures import Failure, Lost

if TYPE_CHECKING:
    from sandbox_server.episode import Episode
    from sandbox_server.group import Group


class Request(NamedTuple):
    """What a member was asked; see `Channel.request`."""

    op: int
    body: bytes
    timeout_s: float
    callback: Callable[[Answer], None]


class Member:
    """One episode's part in a group, which stands where a process's channel would.

    Attributes:
        key: Its number in the group.
        episode: Its record; None while it is being started.
        asked: The request that it has not answered.
        cause: Why it can do nothing any more; None while it can.
        suspect: Whether it may have been what ended the process: it goes alone next.
    """

    __slots__ = ("_group", "_loop", "asked", "cause", "episode", "key", "suspect")

    def __init__(self, group: Group, loop: asyncio.AbstractEventLoop, key: int) -> None:
        self._group = group
        self._loop = loop
        self.key = key
        self.episode: Episode | None = None
        self.asked: Request | None = None
        self.cause: Failure | Lost | None = None
        self.suspect = False

    def request(
        self, op: int, body: bytes, timeout_s: float, callback: Callable[[Answer], None]
    ) -> None:
        """As a channel's; a member is asked for RESET and STEP only."""
        if self.cause is not None:
            callback(self.cause)
            return
        self.asked = Request(op, body, timeout_s, callback)
        self._group.send(self)

    def close(self) -> None:
        """The episode has ended; what it was asked is answered `Lost`."""
        self.end(Lost("the episode was closed"))
        self._group.leave(self)

    def end(self, cause: Failure | Lost) -> None:
        """Nothing more will come of it."""
        if self.cause is None:
            self.cause = cause
        if self.asked is not None:
            # Later: who ends an episode is not ready to hear of its step.
            self._loop.call_soon(self.answer, cause)

    def answer(self, answer: Answer) -> None:
        """Tell what came of the request; nothing if nobody waits for it any more."""
        request, self.asked = self.asked, None
        if request is not None:
            request.callback(answer)
