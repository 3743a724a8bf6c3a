"""A server's cgroups: a tree of its own under each controller, gone when the server is.

    /sys/fs/cgroup/<controller>/spadework/<owner>/<tree>/<group>/...

Version 1 of cgroups only, and only for root: elsewhere a tree makes nothing, and its
`controllers` say so.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox_server import host_process, owner

_log = logging.getLogger(__name__)

_MOUNT = Path("/sys/fs/cgroup")
_PARENT = "spadework"
# A file that each must have: kernels are built with parts of them left out.
_CONTROLLERS = {
    "memory": "memory.limit_in_bytes",
    "pids": "pids.max",
    "cpu": "cpu.shares",
    "cpuacct": "cpuacct.usage",
}
# The one that limits nothing.
_METER = "cpuacct"

# How long killed processes may take to leave a group.
_REMOVE_TIMEOUT_S = 5.0
_REMOVE_INTERVAL_S = 0.01

# cpu.shares of a group of weight 100, the kernel's default, which is also what it counts a
# process for that is in no group.
_SHARES, _WEIGHT = 1024, 100
# Of all that is jailed, for each CPU: enough to get on beside other work on the machine, and
# little enough that the server's own process is never starved by it.
_SHARES_OF_ALL = 4 * _SHARES

# A process may have several trees, which must not end one another.
_trees = itertools.count(1)


def usable_controllers() -> tuple[str, ...]:
    """The controllers under which this process can make groups."""
    if os.geteuid() != 0:
        return ()
    usable = []
    for name, file in _CONTROLLERS.items():
        folder = _MOUNT / name / _PARENT
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            if (folder / file).exists():
                usable.append(name)
    # Mounted together they are one: measuring a process would take it out of its part of the CPU.
    if {"cpu", _METER} <= set(usable) and os.path.samefile(_MOUNT / "cpu", _MOUNT / _METER):
        usable.remove(_METER)
    return tuple(usable)


class CgroupTree:
    """The groups of this server.

    Attributes:
        controllers: Those it has groups with limits under; none where there are none to be had.
    """

    def __init__(self) -> None:
        self._usable = usable_controllers()
        self.controllers = tuple(name for name in self._usable if name != _METER)
        self._owner = f"{_PARENT}/{owner.name()}"
        self._root = f"{self._owner}/{next(_trees)}"

    def group(
        self, name: str, *, memory_bytes: int = 0, pids: int = 0, cpu_weight: int = 0
    ) -> str:
        """Make a group, or change its limits; its limits hold for all groups in it together.

        Args:
            name: Its name; "a/b" is group b in group a.
            memory_bytes: Memory at most; 0 for no limit of its own.
            pids: Processes at most; 0 for no limit of its own.
            cpu_weight: Its part of the CPU beside other groups that have one; 100 is the
                default. 0 makes no group of the CPU: thousands of processes in one group
                count for no more than one beside what is in none.

        Returns:
            Its path below the mount of each controller, as nsjail wants its parents.

        Raises:
            OSError: If the kernel refuses, as it does a limit below what is in use.
        """
        limits = {
            "memory": ("memory.limit_in_bytes", memory_bytes),
            "pids": ("pids.max", pids),
            "cpu": ("cpu.shares", max(2, cpu_weight * _SHARES // _WEIGHT) if cpu_weight else 0),
        }
        path = f"{self._root}/{name}"
        for controller in self.controllers:
            if controller == "cpu" and not cpu_weight:
                continue
            folder = _MOUNT / controller / path
            folder.mkdir(parents=True, exist_ok=True)
            file, limit = limits[controller]
            if limit:
                (folder / file).write_text(str(limit))
        return path

    @property
    def measures_cpu(self) -> bool:
        """Whether `meter` can be had."""
        return _METER in self._usable

    def meter(self, name: str, pid: int, user: int) -> Path | None:
        """Move a process to a new group without limits that adds up the CPU time in it.

        Args:
            name: Of the group.
            pid: The process.
            user: Its user.

        Returns:
            The group's folder; None if there is no such process any more.

        Raises:
            OSError: If the kernel refuses.
        """
        folder = _MOUNT / _METER / self._root / name
        folder.mkdir(parents=True)
        if _move(pid, user, folder):
            return folder
        folder.rmdir()
        return None

    def share_cpu(self, name: str, pid: int, user: int, cpu_weight: int) -> None:
        """Move a process, and so all that it will start, to a group that shares the CPU.

        Args:
            name: Of the group, made if it is not there.
            pid: The process.
            user: Its user.
            cpu_weight: Of the whole tree, beside those of other tenants; its groups have
                equal parts of that.

        Raises:
            OSError: If the kernel refuses.
        """
        if "cpu" not in self.controllers:
            return
        mount = _MOUNT / "cpu"
        self.group("", cpu_weight=cpu_weight)
        folder = mount / self.group(name, cpu_weight=_WEIGHT)
        for above in (_PARENT, self._owner):
            shares = _SHARES_OF_ALL * (os.cpu_count() or 1)
            (mount / above / "cpu.shares").write_text(str(shares))
        _move(pid, user, folder)

    def remove(self, name: str) -> None:
        """End what runs in a group, and remove it with all groups in it."""
        for controller in self._usable:
            _remove(_MOUNT / controller / self._root / name)

    def close(self) -> None:
        """Remove all groups."""
        for controller in self._usable:
            _remove(_MOUNT / controller / self._root)
            with contextlib.suppress(OSError):
                # Another tree of this process may be in it.
                (_MOUNT / controller / self._owner).rmdir()


def reap_dead() -> None:
    """End and remove what servers that were killed have left; live ones' is not touched."""
    for controller in usable_controllers():
        for folder in (_MOUNT / controller / _PARENT).glob("*-*-*"):
            if owner.is_dead(folder.name):
                _log.info("removing the cgroup %s of a server that was killed", folder)
                _remove(folder)


def _move(pid: int, user: int, group: Path) -> bool:
    """Move a process of a user to a group, and nobody who has its pid by now."""
    pidfd = host_process.open_process(pid, user)
    if pidfd is None:
        return False
    try:
        members = group / "cgroup.procs"
        members.write_text(str(pid))
        if host_process.is_running(pidfd):
            return True
        # Whoever has its pid now was moved in its place, and would end with the group.
        for stranger in members.read_text().split():
            with contextlib.suppress(OSError):
                (_MOUNT / group.relative_to(_MOUNT).parts[0] / "cgroup.procs").write_text(stranger)
        return False
    finally:
        os.close(pidfd)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    # The innermost first. A group's files are the kernel's, and go with it.
    for path, _, _ in os.walk(folder, topdown=False):
        while True:
            try:
                os.rmdir(path)
                break
            except FileNotFoundError:
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    _log.warning("could not remove the cgroup %s: %s", path, error.strerror)
                    return
                _kill_all(Path(path))
                time.sleep(_REMOVE_INTERVAL_S)


def _kill_all(group: Path) -> None:
    with contextlib.ExitStack() as stack:
        held: dict[int, int] = {}
        for pid in _members(group):
            with contextlib.suppress(OSError):
                held[pid] = os.pidfd_open(pid)
                stack.callback(os.close, held[pid])
        # Those still there are what the descriptors stand for: a pid may be another's by now.
        for pid in _members(group):
            if pid in held:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(held[pid], signal.SIGKILL)


def _members(group: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in (group / "cgroup.procs").read_text().split():
            # 0 stands for a process of a pid namespace that is not ours to see.
            if line != "0":
                yield int(line)
