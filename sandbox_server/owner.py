"""Whose is it? What a server makes on its host has a name that says which server made it.

The next server can so tell what a killed one left behind from what a live one, beside it,
still needs. A name is `<pid>-<start time>-<pid namespace>-<boot>`: a pid alone comes back, and
in another namespace, or on another machine (whose containers a shared Docker daemon may show,
and whose first namespace has the same number), the same pid is another process.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

_NAME = re.compile(r"(\d+)-(\d+)-(\d+-[0-9a-f]+)")
# Enough of the kernel's random id of this boot.
_BOOT_DIGITS = 8


def name(pid: int = 0) -> str:
    """The name of a process; of this one, unless told.

    Raises:
        ProcessLookupError: If there is no such process.
    """
    pid = pid or os.getpid()
    started = _start_time(pid)
    if started is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{pid}-{started}-{_place()}"


def is_dead(owner: str) -> bool:
    """Whether the process that a name stands for is surely gone.

    False for what is no such name, and for names of another pid namespace or machine: whether
    those live cannot be seen from here.
    """
    found = _NAME.fullmatch(owner)
    if found is None:
        return False
    pid, start, place = found.groups()
    try:
        return place == _place() and _start_time(int(pid)) != int(start)
    except OSError:
        return False


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if it has ended.

    Raises:
        OSError: If that cannot be seen, for want of a descriptor or of the right to.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        try:
            # Mounted with `hidepid`, /proc shows no processes of others.
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        raise
    # The second field is the program's name, in parentheses, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


@functools.cache
def _place() -> str:
    """This pid namespace of this boot of this machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{boot[:_BOOT_DIGITS]}"
