"""CPU time of an episode's processes together, where it may have more than one.

The kernel limits the CPU time of one process; what one process has forked starts at nothing
again. So an episode that may fork gets a cgroup that adds all of its processes up, living and
dead. One that may not fork needs none: a cgroup for each of thousands would cost more than they.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox_server.cgroups import CgroupTree
from sandbox_server.poller import Poller

_NS = 1e-9
# How often the meters are read.
_INTERVAL_S = 1.0


class CpuMeter:
    """The CPU time of one process and all that it forks.

    Args:
        folder: Its cgroup.
    """

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


@dataclass
class _Watched:
    meter: CpuMeter
    allowed_s: Callable[[], float]
    on_overspent: Callable[[float], None]


class CpuWatch:
    """Reads the meters of episodes that may fork, once a second while there are any.

    Args:
        poller: Whose deadlines to use.
        time: The clock of its deadlines.
    """

    def __init__(self, poller: Poller, time: Callable[[], float]) -> None:
        self._poller = poller
        self._time = time
        self._tree = CgroupTree()
        self._serial = itertools.count(1)
        self._watched: dict[object, _Watched] = {}
        self._old: list[CpuMeter] = []
        self._runs = False

    def start(
        self,
        family: object,
        pid: int,
        user: int,
        allowed_s: Callable[[], float],
        on_overspent: Callable[[float], None],
    ) -> None:
        """Begin to watch a family; nothing happens where no meter can be had.

        Args:
            family: What to call it by.
            pid: Host pid of its first process.
            user: Its host user, by which it is told from another that has its pid by now.
            allowed_s: CPU seconds that it may use, asked for at each look.
            on_overspent: Called with what it has used, at each look at which that is more.
        """
        meter = self._meter(pid, user)
        if meter is not None:
            self._watched[family] = _Watched(meter, allowed_s, on_overspent)
            self._run()

    def stop(self, family: object) -> None:
        """Watch a family no more; its meter goes when its last process has."""
        if watched := self._watched.pop(family, None):
            self._old.append(watched.meter)

    def close(self) -> None:
        """Remove all meters, and what is left in them."""
        self._watched.clear()
        self._old.clear()
        self._tree.close()

    def _meter(self, pid: int, user: int) -> CpuMeter | None:
        if not self._tree.measures_cpu:
            return None
        try:
            folder = self._tree.meter(f"episode-{next(self._serial)}", pid, user)
        except OSError:
            return None
        return CpuMeter(folder) if folder is not None else None

    def _run(self) -> None:
        if not self._runs:
            self._runs = True
            self._poller.call_at(self._time() + _INTERVAL_S, self._look, None)

    def _look(self, _: object) -> None:
        self._runs = False
        for watched in list(self._watched.values()):
            # Without a descriptor left to read it with, the next look does.
            with contextlib.suppress(OSError):
                used_s = watched.meter.used_s()
                if used_s > watched.allowed_s():
                    watched.on_overspent(used_s)
        # One that is still in use goes at a later look.
        self._old = [meter for meter in self._old if not meter.remove()]
        if self._watched or self._old:
            self._run()
