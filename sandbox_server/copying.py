"""Copies of an episode process, asked for many at once, and who each of them is.

Nothing that a copy or its original says is believed but that they have said it: who wrote is
what the kernel says beside the datagram.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import NamedTuple

from sandbox_server import host_process
from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer
from sandbox_server.family import Family
from sandbox_server.poller import Poller
from sandbox_server.worker import frames


class Copy(NamedTuple):
    """A process that was copied: our end of its socket, its pid and user on the host, a pidfd."""

    socket: socket.socket
    host: tuple[int, int]
    pidfd: int

    def let_go(self, family: Family) -> None:
        """Take it in no more: it ends by itself when its socket does."""
        family.pids.discard(self.host[0])
        os.close(self.pidfd)
        self.socket.close()


class _Hello:
    """Waits for the first word of one copy.

    Attributes:
        copy: The process; None until it has said hello, and where it never will.
    """

    def __init__(self, ours: socket.socket, family: Family, poller: Poller) -> None:
        self.socket = ours
        self.copy: Copy | None = None
        self._family = family
        self._poller = poller
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def listen(self, others: _Hellos) -> None:
        def on_event(_: int) -> None:
            self._poller.remove(self.socket.fileno())
            self._take()
            others.note_heard()

        self._poller.add(self.socket.fileno(), on_event)

    def _take(self) -> None:
        try:
            said, ancillary, _, _ = self.socket.recvmsg(
                frames.MAX_FRAGMENT_BYTES, host_process.CREDENTIALS_SPACE
            )
        except OSError:
            return
        host = host_process.sender(ancillary) if said else None
        # Ending one of two that are the same process would be ending the other.
        if host is None or host[0] in self._family.pids:
            return
        pidfd = host_process.open_process(*host)
        if pidfd is not None:
            self._family.pids.add(host[0])
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
            self.copy = Copy(self.socket, host, pidfd)

    def give_up(self) -> None:
        """Close the socket, by which a copy ends, and forget the process."""
        self._poller.remove(self.socket.fileno())
        if self.copy is not None:
            self.copy.let_go(self._family)
        else:
            self.socket.close()


class _Hellos:
    """Those of all copies that one request makes."""

    def __init__(self, hellos: list[_Hello], loop: asyncio.AbstractEventLoop) -> None:
        self._left = len(hellos)
        self.all_heard: asyncio.Future[None] = loop.create_future()
        for hello in hellos:
            hello.listen(self)

    def note_heard(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.all_heard.done():
            self.all_heard.set_result(None)


async def copy(
    original: Channel,
    count: int,
    timeout_s: float,
    poller: Poller,
    loop: asyncio.AbstractEventLoop,
) -> list[Copy] | Answer:
    """Have a process copy itself; all copies are made, or none.

    Args:
        original: Its channel.
        count: How many copies.
        timeout_s: How long it may take.
        poller: Whose readiness to use.
        loop: The running loop.

    Returns:
        The copies; or the original's answer where it failed, and a reply that says PROGRAM_ERROR
        where some of them were not made, or are not who they should be.

    Raises:
        OSError: If there are no descriptors left for them.
    """
    with contextlib.ExitStack() as undo:
        theirs: list[socket.socket] = []
        hellos: list[_Hello] = []
        with contextlib.ExitStack() as unsent:
            for _ in range(count):
                pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                theirs.append(unsent.enter_context(pair[1]))
                hellos.append(_Hello(pair[0], original.family, poller))
                undo.callback(hellos[-1].give_up)
            unsent.pop_all()
        all_heard = _Hellos(hellos, loop).all_heard
        answered: asyncio.Future[Answer] = loop.create_future()

        def answer(said: Answer) -> None:
            if not answered.done():
                answered.set_result(said)

        original.request(frames.FORK, b"", timeout_s, answer)
        original.pass_sockets(theirs)
        said = await answered
        if not isinstance(said, frames.Reply) or said.outcome != frames.COMPLETED:
            return said
        if not all_heard.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_heard, timeout_s)
        copies = [hello.copy for hello in hellos if hello.copy is not None]
        if len(copies) < count:
            return said._replace(outcome=frames.PROGRAM_ERROR)
        undo.pop_all()
        return copies
