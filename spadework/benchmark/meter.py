"""CPU time and memory of a trial's processes, by the side they are on; Linux only.

CPU time comes from each process's own CPU clock, in nanoseconds and with all of its threads: the
ticks of `/proc/PID/stat` are longer than a step. They serve for processes that have ended.
It is what a step costs, whatever else the machine does meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

CLIENT, SERVER, ENVIRONMENTS = "client", "server", "environments"
SIDES = (CLIENT, SERVER, ENVIRONMENTS)

# Memory of more processes than this is that of so many, scaled up: reading it is slow.
_MEMORY_SAMPLE = 256

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_KIB = 1024


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds so far.

    Attributes:
        total: By side; processes that ended count as environments.
        system: The kernel's part of it, to the tick.
        machine: All processes of the machine.
        at: By the monotonic clock.
    """

    total: dict[str, float]
    system: dict[str, float]
    machine: float
    at: float

    def since(self, before: CpuReading) -> CpuReading:
        return CpuReading(
            {side: self.total[side] - before.total[side] for side in SIDES},
            {side: self.system[side] - before.system[side] for side in SIDES},
            self.machine - before.machine,
            self.at - before.at,
        )

    @property
    def other_cpus(self) -> float:
        """CPUs that processes beside the trial's kept busy."""
        return max(0.0, self.machine - sum(self.total.values())) / self.at


class Meter:
    """Reads this process (the client), all below it, and those named as the server."""

    def __init__(self) -> None:
        self.servers: Collection[int] = ()

    def cpu(self, *, starts: bool) -> CpuReading:
        """Read the clocks; what reading takes lies outside of what two readings enclose.

        Args:
            starts: This is the first of two readings, and not the second.
        """
        own = time.process_time()
        at = time.perf_counter()
        machine = _machine_cpu_s()
        total = dict.fromkeys(SIDES, 0.0)
        system = dict.fromkeys(SIDES, 0.0)
        for pid, fields in _tree().items():
            side = self._side(pid)
            # What a process has waited for were environments, whoever it is.
            total[ENVIRONMENTS] += (int(fields[13]) + int(fields[14])) * _TICK_S
            system[side] += int(fields[12]) * _TICK_S
            if side != CLIENT:
                total[side] += _clock_s(pid)
        if starts:
            own, at, machine = time.process_time(), time.perf_counter(), _machine_cpu_s()
        total[CLIENT] += own
        return CpuReading(total, system, machine, at)

    def processes(self) -> int:
        """How many there are, this one included."""
        return len(_tree())

    def memory_mib(self) -> float | None:
        """Proportional set size of all processes, or None where it may not be read."""
        pids = list(_tree())
        others = [pid for pid in pids if self._side(pid) == ENVIRONMENTS]
        kib = 0.0
        try:
            kib += sum(pss_kib(pid) for pid in pids if self._side(pid) != ENVIRONMENTS)
            sample = others[:: max(1, len(others) // _MEMORY_SAMPLE)]
            if sample:
                kib += sum(map(pss_kib, sample)) * len(others) / len(sample)
        except PermissionError:
            return None
        return kib / _KIB

    def _side(self, pid: int) -> str:
        if pid == os.getpid():
            return CLIENT
        return SERVER if pid in self.servers else ENVIRONMENTS


def machine_available_mib() -> float:
    """Memory that the machine has left."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / _KIB
    raise OSError("/proc/meminfo does not say what is available")


def _tree() -> dict[int, list[str]]:
    """This process and all below it, with what `/proc/PID/stat` says after the name."""
    stats: dict[int, list[str]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            # It may end while it is read.
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat") as file:
                stats[int(entry.name)] = file.read().rpartition(")")[2].split()
    below: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        below.setdefault(int(fields[1]), []).append(pid)
    found, queue = {}, [os.getpid()]
    while queue:
        pid = queue.pop()
        found[pid] = stats[pid]
        queue += below.get(pid, ())
    return found


def _clock_s(pid: int) -> float:
    """CPU seconds of a process, by its clock (clock_getcpuclockid(3))."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def pss_kib(pid: int) -> int:
    """Proportional set size of a process, KiB; 0 where it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _machine_cpu_s() -> float:
    """CPU seconds of all processes since the start, waiting and idling left out."""
    user, nice, system, _idle, _iowait, irq, softirq = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * _TICK_S
