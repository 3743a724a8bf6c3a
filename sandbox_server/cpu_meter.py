"""CPU time of an episode's processes together, where it may have more than one.

The kernel limits the CPU time of one process; what one process has forked starts at nothing
again. So an episode that may fork gets a cgroup that adds all of its processes up, living and
dead. One that may not fork needs none: a cgroup for each of thousands would cost more than they.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from sandbox_server import host_process
from sandbox_server.cgroups import CgroupTree

_NS = 1e-9


class CpuMeter:
    """The CPU time of one process and all that it forks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "cpuacct.usage"

    def used_s(self) -> float:
        """CPU seconds so far."""
        return int(self._file.read_text()) * _NS

    def remove(self) -> bool:
        """Take the meter away; False while a process is still in it."""
        try:
            self._folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class CpuMeters:
    """Makes meters, below a folder that goes with the server."""

    def __init__(self) -> None:
        self._tree = CgroupTree()
        self._serial = itertools.count(1)

    def start(self, pid: int, user: int) -> CpuMeter | None:
        """Begin to measure a process.

        Args:
            pid: Its host pid.
            user: Its host user, by which it is told from another that has its pid by now.

        Returns:
            The meter; None where there is no controller, or the process is gone.
        """
        if not self._tree.measures_cpu:
            return None
        pidfd = host_process.open_process(pid, user)
        if pidfd is None:
            return None
        try:
            folder = self._tree.meter(f"episode-{next(self._serial)}")
            members = folder / "cgroup.procs"
            members.write_text(str(pid))
            if not host_process.is_running(pidfd):
                # Whoever has its pid now was moved in its place: back with it.
                for stranger in members.read_text().split():
                    with contextlib.suppress(OSError):
                        (folder.parent / "cgroup.procs").write_text(stranger)
            return CpuMeter(folder)
        except OSError:
            return None
        finally:
            os.close(pidfd)

    def close(self) -> None:
        """Remove all meters."""
        self._tree.close()
