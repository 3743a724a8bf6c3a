"""A member of a group: an episode's part in a process that it shares with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sandbox_server.endpoint import Answer
from sandbox_server.failures import Failure, Lost
from sandbox_server.worker import frames, group_frames

if TYPE_CHECKING:
    from sandbox_server.episode import Episode
    from sandbox_server.group import Group


class Member:
    """One episode's part in a group, which stands where a process's channel would.

    Attributes:
        key: Its number in the group.
        episode: Its record; None while it is being started.
        op: Of the request that it has not answered, as are `body` and `timeout_s`.
        cause: Why it can do nothing any more; None while it can.
        suspect: Whether it may have been what ended the process: it goes alone next.
    """

    __slots__ = (
        "_callback",
        "_group",
        "_loop",
        "_on_step",
        "body",
        "cause",
        "episode",
        "key",
        "op",
        "suspect",
        "timeout_s",
    )

    def __init__(self, group: Group, loop: asyncio.AbstractEventLoop, key: int) -> None:
        self._group = group
        self._loop = loop
        self._callback: Callable[[Answer], None] | None = None
        self._on_step: Callable[[Answer], None] | None = None
        self.key = key
        self.episode: Episode | None = None
        self.op = 0
        self.body = b""
        self.timeout_s = 0.0
        self.cause: Failure | Lost | None = None
        self.suspect = False

    def attach(self, episode: Episode, on_step: Callable[[Answer], None]) -> None:
        """The episode has started.

        Args:
            episode: Its record.
            on_step: What takes the answer of any of its steps.
        """
        self.episode = episode
        self._on_step = on_step

    @property
    def is_asked(self) -> bool:
        """Whether there is a request that it has not answered."""
        return self._callback is not None

    @property
    def is_free(self) -> bool:
        """Whether it can be asked for the next step of its episode."""
        return self._callback is None and self.cause is None and self._on_step is not None

    @property
    def steps_quickly(self) -> bool:
        """Whether its request came by `step`."""
        return self._callback is self._on_step and self._callback is not None

    def request(
        self, op: int, body: bytes, timeout_s: float, callback: Callable[[Answer], None]
    ) -> None:
        """As a channel's; a member is asked for RESET and STEP only."""
        if self.cause is not None:
            callback(self.cause)
            return
        self.op, self.body, self.timeout_s, self._callback = op, body, timeout_s, callback
        self._group.send(self)

    def step(self, action: str, timeout_s: float) -> None:
        """Ask for a step of its episode; it must be free."""
        self.op, self.body, self.timeout_s = frames.STEP, action.encode(), timeout_s
        self._callback = self._on_step
        self._group.send(self)

    def close(self) -> None:
        """The episode has ended; what it was asked is answered `Lost`."""
        self.end(Lost("the episode was closed"))
        self._group.leave(self)

    def end(self, cause: Failure | Lost) -> None:
        """Nothing more will come of it."""
        if self.cause is None:
            self.cause = cause
        if self._callback is not None:
            # Later: who ends an episode is not ready to hear of its step.
            self._loop.call_soon(self.answer, cause)

    def answer(self, answer: Answer) -> None:
        """Tell what came of the request; nothing if nobody waits for it any more."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(answer)

    def done(self) -> None:
        """Its step has been told of otherwise."""
        self._callback = None


def reply_of(
    flags: int, reward: float, cut_bytes: int, observation: str, info: bytes
) -> frames.Reply:
    """A completed step of a chunk, as a process of its own would have answered it."""
    return frames.Reply(
        frames.STEP,
        0,
        frames.COMPLETED,
        bool(flags & frames.TERMINATED),
        bool(flags & frames.TRUNCATED),
        reward,
        cut_bytes,
        observation,
        info,
        b"",
    )


def answer_each(members: Sequence[Member], chunk: group_frames.Chunk) -> None:
    """Tell members one by one what came of their steps."""
    for member, *answer in zip(members, *chunk, strict=True):
        member.answer(reply_of(*answer))
