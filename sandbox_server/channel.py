"""The supervisor's end of one episode process: requests out, hostile replies in, its end."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import host_process
from sandbox_server.backends.ids import is_episode
from sandbox_server.endpoint import Answer, Passing, Pending
from sandbox_server.failures import (
    Failure,
    Lost,
    ProcessEnd,
    blame,
    phase_of,
    timeout_name,
)
from sandbox_server.family import Family
from sandbox_server.poller import Poller
from sandbox_server.worker import frames

_log = logging.getLogger(__name__)

_FRAGMENT = frames.MAX_FRAGMENT_BYTES + 1
# One more: the kernel drops the rest of a longer datagram, and what it kept might look valid.
RECEIVE_BYTES = _FRAGMENT + 1
# How long a process may outlive its own end of the socket.
_EOF_GRACE_S = 0.2


class Owner(Protocol):
    """What a channel needs from the jail that holds its process."""

    def kill(self, channel: Channel) -> None: ...


class Channel:
    """One episode process, seen from the supervisor.

    Attributes:
        key: The jail's number for the process.
        host: Its pid and user on the host, once it is locked down; None where not known.
        family: What it shares with its copies, and with whom it is one.
        pidfd: Of a copy, which the supervisor kills itself; -1 for what the zygote forked.
        locked_down: Whether the process has said that its protections are in force.
        on_greeting: Called once when it has, or has said why not.
        ended: Whether the process is known to be gone.
    """

    is_group: ClassVar[bool] = False

    __slots__ = (
        "_cause",
        "_inbox",
        "_inbox_bytes",
        "_kill_timeout_s",
        "_limits",
        "_max_info_bytes",
        "_max_message_bytes",
        "_max_observation_bytes",
        "_next_check",
        "_next_id",
        "_on_end",
        "_outbox",
        "_owner",
        "_pending",
        "_poller",
        "_socket",
        "_time",
        "closing",
        "ended",
        "family",
        "host",
        "key",
        "lockdown_error",
        "locked_down",
        "on_greeting",
        "pidfd",
    )

    def __init__(
        self,
        poller: Poller,
        time: Callable[[], float],
        owner: Owner,
        sock: socket.socket,
        limits: pb.Limits,
        *,
        key: int,
        family: Family,
        kill_timeout_s: float,
        on_end: Callable[[Channel], None],
    ) -> None:
        self._poller = poller
        self._time = time
        self._owner = owner
        self._socket = sock
        self._on_end = on_end
        self._max_observation_bytes = limits.max_observation_bytes
        self._max_info_bytes = limits.max_info_bytes
        self._max_message_bytes = (
            frames.REPLY_HEADER_BYTES
            + limits.max_observation_bytes
            + limits.max_info_bytes
            + frames.MAX_EXTRA_BYTES
        )
        self._pending: deque[Pending] = deque()
        self._outbox: deque[bytes | Passing] = deque()
        self._inbox: list[bytes] = []
        self._inbox_bytes = 0
        self._next_id = 0
        self._next_check = math.inf
        self._cause: Failure | Lost | None = None
        self._limits = limits
        self._kill_timeout_s = kill_timeout_s
        self.key = key
        self.family = family
        self.host: tuple[int, int] | None = None
        self.pidfd = -1
        self.locked_down = False
        self.lockdown_error = ""
        self.on_greeting: Callable[[], None] | None = None
        self.closing = False
        self.ended = False
        sock.setblocking(False)
        poller.add(sock.fileno(), self._on_event)

    # -- requests ----------------------------------------------------------------------

    def request(
        self, op: int, body: bytes, timeout_s: float, callback: Callable[[Answer], None]
    ) -> None:
        """Send one request; `callback` gets its answer, once, from the event loop."""
        if self.ended or self.closing or self._cause is not None:
            callback(self._cause or Lost("the episode was closed"))
            return
        self._next_id += 1
        request_id = self._next_id
        deadline = self._time() + timeout_s
        self._pending.append(Pending(request_id, op, callback, deadline, timeout_s))
        message = frames.pack_request(op, request_id, body)
        if len(message) <= frames.MAX_FRAGMENT_BYTES and not self._outbox:
            self._send(frames.LAST + message)
        else:
            self._outbox.extend(frames.fragments(message))
            self._flush()
        self._check_at(deadline)

    def _send(self, datagram: bytes) -> None:
        """Send one datagram, nothing being in its way."""
        try:
            self._socket.send(datagram)
        except BlockingIOError:
            self._outbox.append(datagram)
            self._poller.want_write(self._socket.fileno(), True)
        except OSError:
            # The process is gone; its end, which is on the way, answers.
            self._note_eof()

    def pass_sockets(self, sockets: Sequence[socket.socket]) -> None:
        """Pass sockets, after the request that announced them; here they are closed then."""
        step = frames.DESCRIPTORS_A_DATAGRAM
        for start in range(0, len(sockets), step):
            mark = frames.MORE if start + step < len(sockets) else frames.LAST
            self._outbox.append(Passing(mark, sockets[start : start + step]))
        self._flush()

    def overspend(self, used_s: float) -> None:
        """End the process: it and what it forked have used more CPU time than they may."""
        if not self.ended and self._cause is None:
            message = (
                f"the episode's processes used {used_s:.1f} s of CPU time; each episode has "
                f"{self._limits.cpu_time_s:g} s"
            )
            self._fail(pb.OUTCOME_TIME_LIMIT, message=message, limit="cpu_time_s")

    def close(self) -> None:
        """End the process, whatever it is doing; requests in work are answered `Lost`."""
        if not self.closing and not self.ended:
            self.closing = True
            if self._cause is None:
                self._cause = Lost("the episode was closed")
            self._kill()

    # -- events ------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush()
        if events & ~select.EPOLLOUT:
            self._receive()

    def _receive(self) -> None:
        """Read what is there, one datagram at a time; stop at the first violation."""
        while self._cause is None:
            if not self.locked_down:
                self._greet()
                return
            try:
                datagram = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                datagram = b""
            if not datagram:
                self._note_eof()
                return
            if datagram[0] == 0 and not self._inbox and len(datagram) <= _FRAGMENT:
                self._take_datagram(datagram)
                # One request, one answer: looking for a second now would cost a system
                # call a step. If there is one, epoll says so.
                return
            else:
                self._collect(datagram)

    def _greet(self) -> None:
        """Read the first datagram: from before the process saw its program, so it is trusted."""
        try:
            datagram, ancillary, _, _ = self._socket.recvmsg(
                _FRAGMENT, host_process.CREDENTIALS_SPACE
            )
        except BlockingIOError:
            return
        except OSError:
            datagram, ancillary = b"", []
        if not datagram:
            self._note_eof()
            return
        if datagram == frames.LOCKED_DOWN:
            self.locked_down = True
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
            if sender := host_process.sender(ancillary):
                self.host = sender
                host_process.offer_to_oom(*sender)
        else:
            self.lockdown_error = datagram.decode("utf-8", "replace")
            self._cause = Lost("a protection could not be put in force; see the server's log")
        if self.on_greeting is not None:
            self.on_greeting()
            self.on_greeting = None

    def _collect(self, datagram: bytes) -> None:
        self._inbox.append(datagram[1:])
        self._inbox_bytes += len(datagram) - 1
        if not self._pending:
            self._violate("sent an answer that nobody asked for")
        elif self._inbox_bytes > self._max_message_bytes:
            self._violate("sent a message that is too long")
        elif (
            datagram[0] > 1
            or len(datagram) > _FRAGMENT
            or (datagram[0] == 1 and len(datagram) != _FRAGMENT)
        ):
            # Full fragments only: a flood of tiny ones would be read for ever.
            self._violate("sent a malformed message")
        elif datagram[0] == 0:
            message = b"".join(self._inbox)
            self._inbox.clear()
            self._inbox_bytes = 0
            self._take(message)

    def _take_datagram(self, datagram: bytes) -> None:
        """Take a message that came in one piece."""
        self._take(datagram[1:])

    def _take(self, message: bytes) -> None:
        if len(message) > self._max_message_bytes:
            self._violate("sent a message that is too long")
            return
        if not self._pending:
            self._violate("sent an answer that nobody asked for")
            return
        try:
            reply = frames.unpack_reply(message)
        except frames.FrameError as error:
            self._violate(str(error))
            return
        expected = self._pending[0]
        if reply.request_id != expected.request_id or reply.op != expected.op:
            self._violate("answered another request than the one in work")
            return
        # The worker cuts observations and refuses large infos; a forger might not.
        if (
            len(message) - frames.REPLY_HEADER_BYTES - len(reply.info) - len(reply.extra)
            > self._max_observation_bytes
            or len(reply.info) > self._max_info_bytes
            or len(reply.extra) > frames.MAX_EXTRA_BYTES
        ):
            self._violate("sent an observation or info that is too long")
            return
        self._pending.popleft()
        expected.callback(reply)

    def _flush(self) -> None:
        while self._outbox:
            first = self._outbox[0]
            try:
                if isinstance(first, bytes):
                    self._socket.send(first)
                else:
                    first.send(self._socket)
            except BlockingIOError:
                self._poller.want_write(self._socket.fileno(), True)
                return
            except OSError:
                self._drop_outbox()
                break
            self._outbox.popleft()
        self._poller.want_write(self._socket.fileno(), False)

    def _drop_outbox(self) -> None:
        for unsent in self._outbox:
            if isinstance(unsent, Passing):
                unsent.close()
        self._outbox.clear()

    def _check_at(self, deadline: float) -> None:
        """Look at the deadlines then, unless a look before that is due anyway.

        One timer an episode: one a request would be millions at long timeouts.
        """
        if deadline < self._next_check:
            self._next_check = deadline
            self._poller.call_at(deadline, self._on_deadline, deadline)

    def _on_deadline(self, due: float) -> None:
        if due == self._next_check:
            self._next_check = math.inf
        if self.ended or self._cause is not None or not self._pending:
            return
        soonest = min(self._pending, key=lambda request: request.deadline)
        if soonest.deadline > self._time():
            self._check_at(soonest.deadline)
        else:
            self._fail_late(soonest.timeout_s)

    def _fail_late(self, timeout_s: float) -> None:
        self._fail(
            pb.OUTCOME_TIME_LIMIT,
            message=f"the call took longer than its {timeout_s:g} s of wall time",
            limit=timeout_name(self._op()),
        )

    def _note_eof(self) -> None:
        """The socket is at its end: the process is dying, or has closed its descriptor."""
        self._poller.remove(self._socket.fileno())
        self._poller.call_at(self._time() + _EOF_GRACE_S, self._on_eof_grace, None)

    def _on_eof_grace(self, _: object) -> None:
        if self.ended or self._cause is not None:
            return
        if self.host is not None and host_process.is_ending(*self.host):
            # On a busy machine a crash takes its time to be reported, and is no violation.
            self._poller.call_at(self._time() + _EOF_GRACE_S, self._on_eof_grace, None)
        else:
            self._violate("closed its end of the connection")

    def on_exit(self, end: ProcessEnd) -> None:
        """The process is gone. Called by the jail, once."""
        if self.ended:
            return
        self.ended = True
        # It may have said something, and then died.
        if self._cause is None and not self.locked_down:
            self._greet()
        if self._cause is None and self._pending:
            self._drain()
        cause = self._cause or blame(end, self._phase(), self._limits)
        self._poller.remove(self._socket.fileno())
        self._socket.close()
        self._drop_outbox()
        if self.pidfd >= 0:
            self._poller.remove(self.pidfd)
            os.close(self.pidfd)
        if self.on_greeting is not None:
            self.on_greeting()
            self.on_greeting = None
        pending, self._pending = self._pending, deque()
        self._cause = cause
        for request in pending:
            try:
                request.callback(cause)
            except Exception:
                # The others, and the jail that counts its processes, must hear of it all the same.
                _log.exception("the end of a process was not taken")
        self._on_end(self)

    def _drain(self) -> None:
        while self._cause is None and self._pending:
            try:
                datagram = self._socket.recv(RECEIVE_BYTES)
            except ConnectionResetError:
                # It left requests unread, which the kernel tells before what it has said.
                continue
            except OSError:
                return
            if not datagram:
                return
            if datagram[0] == 0 and not self._inbox and len(datagram) <= _FRAGMENT:
                self._take(datagram[1:])
            else:
                self._collect(datagram)

    # -- failing -----------------------------------------------------------------------

    def _op(self) -> int:
        return self._pending[0].op if self._pending else frames.STEP

    def _phase(self) -> pb.Phase:
        return phase_of(self._op())

    def _violate(self, what: str) -> None:
        self._fail(pb.OUTCOME_PROTOCOL_VIOLATION, message=f"the process {what}")

    def _fail(self, outcome: pb.Outcome, *, message: str, limit: str = "") -> None:
        """Decide the outcome and kill; requests are answered when the process is gone."""
        diagnostic = pb.Diagnostic(phase=self._phase(), message=message, limit=limit)
        self._cause = Failure(outcome, diagnostic)
        self._kill()

    def _kill(self) -> None:
        if self.ended:
            return
        # Nothing it still says matters, and a flood must not keep the poller busy.
        self._poller.remove(self._socket.fileno())
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                self.on_exit(ProcessEnd(None, 0.0))
                return
        else:
            self._owner.kill(self)
        self._poller.call_at(self._time() + self._kill_timeout_s, self._on_kill_timeout, None)

    def _on_kill_timeout(self, _: object) -> None:
        """A process that outlives SIGKILL is stuck in the kernel; nobody waits for it."""
        if self.ended:
            return
        if self.host is not None and is_episode(self.host[1]):
            # Or it is the zygote that is stuck, and has not killed it. By its pid only where its
            # user is nobody else's: an ordinary user's other processes have the same.
            host_process.kill(*self.host)
        self.on_exit(ProcessEnd(None, 0.0))

    def lose(self, why: str) -> None:
        """The jail is gone, and the process with it."""
        if self._cause is None:
            self._cause = Lost(why)
        self.on_exit(ProcessEnd(None, 0.0))
