"""A page of memory in which a group process says which of its steps is in work.

It is written before every step, at the price of a few stores, so that nothing has to be sent.
The supervisor looks only when a step is late or the process is gone. What it finds was written
by the program's process: it decides which episode of that program is blamed, and nothing else.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct

PAGE_BYTES = 4096

# Request id and index of the item in work, and since when, by the monotonic clock.
_NOTE = struct.Struct("<IId")

note = _NOTE.pack_into


def take(fd: int) -> mmap.mmap:
    """Take the page that waits on a group process's socket; before its lock-down only."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(fd)) as channel:
        descriptors = socket.recv_fds(channel, 1, 1)[1]
    try:
        return mmap.mmap(descriptors[0], PAGE_BYTES)
    finally:
        os.close(descriptors[0])


def create() -> int:
    """A descriptor of a new page. Nobody can change its size."""
    fd = os.memfd_create("progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def read(fd: int) -> tuple[int, int, float]:
    """Request id, index and beginning of the item in work, as the process says."""
    request_id, index, since = _NOTE.unpack(os.pread(fd, _NOTE.size, 0))
    return request_id, index, since
