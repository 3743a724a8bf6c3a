"""Copies of this process, each with a socket of its own.

Their sockets come some in a datagram, marked as fragments are. Those of one datagram are forked
by a helper that ends at once, so that the jail's init adopts and reaps the copies, and neither
side is the other's to wait for.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import random
import socket
from typing import Any

from . import frames

# Holds the interpreter's lock meanwhile, as a process that forks must.
_libc = ctypes.PyDLL(None)


def copy_process(fd: int) -> bool | None:
    """Copy this process, state and all, once for each descriptor that comes through `fd`.

    Returns:
        In this process whether all copies were made; in a copy None, with `fd` its own.
    """
    complete = more = True
    while more:
        more, descriptors = _receive(fd)
        helper = _fork() if complete else -1
        if helper == 0:
            _fork_each(fd, descriptors)
            return None
        for descriptor in descriptors:
            os.close(descriptor)
        # After a refusal the rest is received, and not used: nothing must stay in the queue.
        complete = helper > 0 and os.waitpid(helper, 0)[1] == 0
    return complete


def _receive(fd: int) -> tuple[bool, list[int]]:
    """The descriptors of one datagram, and whether there are more to come."""
    # All of it spelled out: asking the kernel for it is off the list of system calls.
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fd)
    try:
        mark, descriptors, _, _ = socket.recv_fds(channel, 1, frames.DESCRIPTORS_A_DATAGRAM)
    finally:
        channel.detach()
    return mark == frames.MORE, descriptors


def _fork_each(fd: int, descriptors: list[int]) -> None:
    """Fork once for each descriptor, and end; returns in the copies, each on its own."""
    for descriptor in descriptors:
        copy = _fork()
        if copy < 0:
            os._exit(1)
        if copy == 0:
            os.dup2(descriptor, fd)
            for received in descriptors:
                os.close(received)
            return
    os._exit(0)


def _fork() -> int:
    """The child's id, 0 in the child, -1 where the kernel has no room for it.

    By the C library alone where there is one thread: `os.fork` makes a child new again, its
    generator seeded anew and its locks free, which here changes nothing that is wanted, and
    costs more page faults than all else that a copy does. With threads it is needed.
    """
    if not _thread._count():
        return _libc.fork()
    # Seeded anew in the child, or a copy would not be one.
    generator: Any = random.getstate()
    try:
        child = os.fork()
    except OSError:
        return -1
    if child == 0:
        random.setstate(generator)
    return child
