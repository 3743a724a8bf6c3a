"""The supervisor's end of a group process: steps of many episodes out, hostile chunks in.

The process works its requests off in order, and the items of each in order. It holds answers
back for a moment, to send many at once: what befalls it is about the first item that has no
answer yet, or about one of the next few.
"""

from __future__ import annotations

import functools
import math
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer, Pending
from sandbox_server.failures import Failure, Lost, ProcessEnd
from sandbox_server.worker import frames, group_frames, progress


class Steps(Protocol):
    """The items of one STEPS request, told what comes of them."""

    def answered(self, first: int, chunk: group_frames.Chunk) -> None:
        """Those from `first` on have completed, as many as the chunk has."""

    def failed(self, index: int, reply: frames.Reply) -> None:
        """One has failed; those after it go on."""

    def ended(self, cause: Failure | Lost, culprit: int | None) -> None:
        """The process is gone before all have their answer.

        Args:
            cause: How it came.
            culprit: Which of them was in work, where that is known; None of requests that
                came after the one in work, too.
        """


class _PendingSteps(Pending):
    """A STEPS request that is not wholly answered.

    Attributes:
        steps: Who is told of its items.
        sent_at: When it was sent.
        timeouts_s: Wall seconds of each.
        done: How many have their answer.
    """

    steps: Steps
    sent_at: float
    timeouts_s: Sequence[float]
    done: int


class GroupChannel(Channel):
    """One group process, seen from the supervisor."""

    __slots__ = ("_active_at", "_page", "_seen")

    is_group: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        page = progress.create()
        super().__init__(*args, **kwargs)
        self._page = page
        self._active_at = self._time()
        self._seen = (0, 0, 0.0)
        # It waits there for the process, which takes it before it is locked down.
        socket.send_fds(self._socket, [b"\x00"], [self._page])
        self._max_message_bytes = max(
            self._max_message_bytes,
            group_frames.MAX_CHUNK_BYTES + self._max_observation_bytes + self._max_info_bytes,
        )

    @property
    def cause(self) -> Failure | Lost | None:
        """Why it is gone, or is about to be; None while it serves."""
        return self._cause

    # -- requests ----------------------------------------------------------------------

    def request(
        self, op: int, body: bytes, timeout_s: float, callback: Callable[[Answer], None]
    ) -> None:
        if not self._pending:
            self._active_at = self._time()
        super().request(op, body, timeout_s, callback)

    def step(
        self,
        members: Sequence[int],
        actions: Sequence[bytes],
        timeouts_s: Sequence[float],
        steps: Steps,
    ) -> None:
        """Step members one after another.

        Args:
            members: Their numbers.
            actions: An action for each.
            timeouts_s: Wall seconds for each, from when the one before it is done.
            steps: Who is told what comes of them.
        """
        if self.ended or self.closing or self._cause is not None:
            steps.ended(self._cause or Lost("the group was closed"), None)
            return
        now = self._time()
        if not self._pending:
            self._active_at = now
        self._next_id += 1
        shortest_s = min(timeouts_s)
        deadline = now + shortest_s
        request_id = self._next_id
        on_end = functools.partial(self._on_steps_end, request_id, steps)
        pending = _PendingSteps(request_id, group_frames.STEPS, on_end, deadline, shortest_s)
        pending.steps, pending.timeouts_s = steps, timeouts_s
        pending.sent_at, pending.done = now, 0
        self._pending.append(pending)
        body = group_frames.pack_steps(members, actions)
        self._transmit(frames.pack_request(group_frames.STEPS, self._next_id, body))
        self._check_at(deadline)

    def drop(self, members: Sequence[int]) -> None:
        """Have the process forget members."""
        if not (self.ended or self.closing or self._cause is not None):
            body = b"".join(map(group_frames.MEMBER.pack, members))
            self._transmit(frames.pack_request(group_frames.DROP, 0, body))

    def _transmit(self, message: bytes) -> None:
        waits = bool(self._outbox)
        self._outbox.extend(frames.fragments(message))
        if not waits:
            self._flush()

    # -- answers -----------------------------------------------------------------------

    def _take(self, message: bytes) -> None:
        self._active_at = self._time()
        head = self._pending[0] if self._pending else None
        if not isinstance(head, _PendingSteps):
            super()._take(message)
        elif len(message) > self._max_message_bytes:
            self._violate("sent a message that is too long")
        elif message[:1] == bytes((group_frames.STEPS,)):
            self._take_chunk(head, message)
        else:
            self._take_failure(head, message)

    def _take_chunk(self, head: _PendingSteps, message: bytes) -> None:
        first = head.done
        try:
            chunk = group_frames.unpack_chunk(
                message,
                head.request_id,
                len(head.timeouts_s) - first,
                self._max_observation_bytes,
                self._max_info_bytes,
            )
        except frames.FrameError as error:
            self._violate(str(error))
            return
        self._count_done(head, len(chunk.flags))
        head.steps.answered(first, chunk)

    def _take_failure(self, head: _PendingSteps, message: bytes) -> None:
        try:
            reply = frames.unpack_reply(message)
        except frames.FrameError as error:
            self._violate(str(error))
            return
        if (
            reply.request_id != head.request_id
            or reply.op != frames.STEP
            or reply.outcome == frames.COMPLETED
            or len(message) - frames.REPLY_HEADER_BYTES != len(reply.extra)
            or len(reply.extra) > frames.MAX_EXTRA_BYTES
        ):
            self._violate("answered another request than the one in work")
            return
        index = head.done
        self._count_done(head, 1)
        head.steps.failed(index, reply)

    def _count_done(self, head: _PendingSteps, items: int) -> None:
        head.done += items
        if head.done == len(head.timeouts_s):
            self._pending.popleft()

    # -- failing -----------------------------------------------------------------------

    def _on_deadline(self, due: float) -> None:
        """Only the first item without an answer can be late: the others have not begun."""
        if due == self._next_check:
            self._next_check = math.inf
        if self.ended or self._cause is not None or not self._pending:
            return
        head = self._pending[0]
        since, timeout_s = self._active_at, head.timeout_s
        if isinstance(head, _PendingSteps):
            index, since = self._in_work(head)
            timeout_s = head.timeouts_s[index]
        if since + timeout_s > self._time():
            self._check_at(since + timeout_s)
        else:
            self._fail_late(timeout_s)

    def _in_work(self, head: _PendingSteps) -> tuple[int, float]:
        """Which item of the oldest request is in work, and since when."""
        request_id, index, since = progress.read(self._page)
        if request_id != head.request_id or not head.done <= index < len(head.timeouts_s):
            # It has not begun; or it lies.
            return head.done, self._active_at
        seen_id, seen_index, _ = self._seen
        if seen_id != request_id or index > seen_index:
            # What it says of the time is taken once, and if it can be.
            now = self._time()
            self._seen = request_id, index, since if head.sent_at <= since <= now else now
        # It goes forward only: who goes back to a step before could begin it anew for ever.
        return self._seen[1:]

    def on_exit(self, end: ProcessEnd) -> None:
        super().on_exit(end)
        if self._page >= 0:
            os.close(self._page)
            self._page = -1

    def _on_steps_end(self, request_id: int, steps: Steps, cause: Answer) -> None:
        assert not isinstance(cause, frames.Reply)
        found, index, _ = progress.read(self._page)
        # One that has sent what it should not may be far beyond the item that made it do so.
        violation = isinstance(cause, Failure) and cause.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
        steps.ended(cause, index if found == request_id and not violation else None)

    def _phase(self) -> pb.Phase:
        return pb.PHASE_STEP if self._op() == group_frames.STEPS else super()._phase()
