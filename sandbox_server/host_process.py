"""What the host's kernel says of a jailed process: never what the process says of itself."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# A flag of /proc/PID/stat, set before the kernel closes the descriptors of what ends.
_PF_EXITING = 0x4
# Half of all memory: an episode goes before any process that is not larger by that much.
_OOM_SCORE_ADJ = 500
_CREDENTIALS = struct.Struct("iII")
# Room for them beside a datagram.
CREDENTIALS_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)


def sender(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """Host pid and user of who wrote a datagram, from what came beside it; None if nothing."""
    for level, kind, data in ancillary:
        credentials = level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS
        if credentials and len(data) >= _CREDENTIALS.size:
            pid, user, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return pid, user
    return None


def open_process(pid: int, user: int) -> int | None:
    """A pidfd of a running process of a user; None where that process is gone.

    The pid may be another process's by now: one is taken only if it has that user and still
    runs after the look at it, so that the look was at the process behind the pidfd.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        owner = os.stat(f"/proc/{pid}").st_uid
        if owner == user and is_running(pidfd):
            return pidfd
    os.close(pidfd)
    return None


def kill(pid: int, user: int) -> None:
    """Kill a process of a user, where it is there and may be killed."""
    pidfd = open_process(pid, user)
    if pidfd is not None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def is_running(pidfd: int) -> bool:
    """Whether the process behind a pidfd has not ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def offer_to_oom(pid: int, user: int) -> None:
    """Have the kernel, when memory runs out, end this process rather than its jail or server.

    Best effort: without it the kernel goes by size alone.

    Args:
        pid: The process.
        user: Its user: the pid may be another process's by now.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        if os.fstat(folder).st_uid == user:
            file = os.open("oom_score_adj", os.O_WRONLY, dir_fd=folder)
            stack.callback(os.close, file)
            os.write(file, _oom_score_adj())


@functools.cache
def _oom_score_adj() -> bytes:
    """Above the server's own, which its episodes would otherwise inherit."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    return str(min(own + _OOM_SCORE_ADJ, 1000)).encode()


def is_ending(pid: int, user: int) -> bool:
    """Whether a process of a user is on its way out, or gone: the kernel has begun to end it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        if os.stat(f"/proc/{pid}").st_uid != user:
            return True
    except OSError:
        return True
    state, *numbers = stat.rpartition(")")[2].split()
    return state in "ZX" or bool(int(numbers[5]) & _PF_EXITING)


def address_space_bytes(pid: int) -> int:
    """The size of a process's address space."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * _PAGE_BYTES


class MemoryKills:
    """The kernel's count of kills for want of memory in the cgroup of one process."""

    def __init__(self, pid: int) -> None:
        self._file = _memory_events_file(pid)
        self._seen = 0

    def grown(self) -> bool:
        """Whether there was one since the last call; never where there is no such count."""
        if self._file is None:
            return False
        try:
            words = self._file.read_text().split()
        except OSError:
            return False
        kills = int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
        grown, self._seen = kills > self._seen, kills
        return grown


def _memory_events_file(pid: int) -> Path | None:
    """The file that counts them, in a cgroup of either version."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        unified = Path(f"/sys/fs/cgroup{path}/memory.events")
        if not controllers and unified.exists():
            return unified
    return None
