"""Whose is it? What a server makes on its host has a name that says which server made it.

The next server can so tell what a killed one left behind from what a live one, beside it,
still needs. A name is `<pid>-<start time>-<pid namespace>`: a pid alone comes back, and in
another namespace the same pid is another process.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")


def name(pid: int = 0) -> str:
    """The name of a process; of this one, unless told.

    Raises:
        ProcessLookupError: If there is no such process.
    """
    pid = pid or os.getpid()
    started = _start_time(pid)
    if started is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{pid}-{started}-{_namespace()}"


def is_dead(owner: str) -> bool:
    """Whether the process that a name stands for is surely gone.

    False for what is no such name, and for names of another pid namespace: whether those
    live cannot be seen from here.
    """
    found = _NAME.fullmatch(owner)
    if found is None:
        return False
    pid, start, namespace = map(int, found.groups())
    return namespace == _namespace() and _start_time(pid) != start


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name, in parentheses, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
