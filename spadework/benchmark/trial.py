"""Measures one case: `python -m spadework.benchmark.trial`, the case on standard input.

A process of its own for each trial, so that no memory, thread or warm cache of one is the
next one's. Prints the figures as one line of JSON, the last of its output.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable

from spadework.benchmark import subjects
from spadework.benchmark.case import Case, Figures
from spadework.benchmark.meter import CLIENT, ENVIRONMENTS, SERVER, Meter, machine_available_mib
from spadework.benchmark.subjects.subject import NotApplicableError, Subject

_US, _MS = 1e6, 1e3
# How long ended episodes' processes may take to be gone, and how often that is looked at.
_LEAVE_S, _LEAVE_INTERVAL_S = 20.0, 0.05


def measure(case: Case) -> Figures:
    """Run a case; its failure is among the figures."""
    figures = Figures(load=os.getloadavg()[0])
    subject = subjects.make(case)
    try:
        subject.open()
        try:
            _measure(subject, case, figures)
        finally:
            subject.close()
    except Exception as error:
        # Of competitors' own kinds: what befell one is a finding about it.
        figures.failed = f"{type(error).__name__}: {error}"[:500]
    return figures


def _measure(subject: Subject, case: Case, figures: Figures) -> None:
    meter = Meter()
    meter.servers = subject.servers
    _register(subject, case, figures, meter)
    if case.new_program:
        _introduce(subject, case, figures)
    processes = meter.processes()
    _start(subject, case, figures, meter)
    # Warms up.
    subject.step_all(timed=False)
    gc.collect()
    _step(subject, case, figures, meter)
    _end(subject, case, figures, meter, processes)


def _register(subject: Subject, case: Case, figures: Figures, meter: Meter) -> None:
    others = [case.program.renewed() for _ in range(case.programs - 1)]
    mib = meter.memory_mib()
    before = meter.cpu(starts=True)
    try:
        subject.register([case.program, *others])
    except NotApplicableError:
        if others:
            raise
        return
    used = meter.cpu(starts=False).since(before)
    figures.register_cpu_ms = _MS * sum(used.total.values()) / case.programs
    grown = meter.memory_mib()
    if mib is not None and grown is not None:
        figures.programs_mib = grown - mib


def _introduce(subject: Subject, case: Case, figures: Figures) -> None:
    program = case.program.renewed()
    try:
        figures.cold_program_ms = _MS * _timed(lambda: subject.introduce(program))
        figures.warm_program_ms = _MS * _timed(lambda: subject.introduce(program))
    except NotApplicableError:
        return


def _start(subject: Subject, case: Case, figures: Figures, meter: Meter) -> None:
    mib, available = meter.memory_mib(), machine_available_mib()
    before = meter.cpu(starts=True)
    subject.start(case.episodes)
    # The floor's supervisor is there from now on.
    meter.servers = subject.servers
    used = meter.cpu(starts=False).since(before)
    figures.starts_per_s = case.episodes / used.at
    figures.start_cpu_ms = _MS * sum(used.total.values()) / case.episodes
    if meter.servers:
        figures.start_server_cpu_ms = _MS * used.total[SERVER] / case.episodes
    figures.machine_mib_per_episode = (available - machine_available_mib()) / case.episodes
    grown = meter.memory_mib()
    if mib is not None and grown is not None:
        figures.mib_per_episode = (grown - mib) / case.episodes


def _step(subject: Subject, case: Case, figures: Figures, meter: Meter) -> None:
    before = meter.cpu(starts=True)
    steps = _for_a_while(subject, case.seconds, timed=False)
    used = meter.cpu(starts=False).since(before)
    figures.steps_per_s = steps / used.at
    figures.client_cpu_us = _US * used.total[CLIENT] / steps
    figures.environment_cpu_us = _US * used.total[ENVIRONMENTS] / steps
    figures.client_system = _share(used.system[CLIENT], used.total[CLIENT])
    if meter.servers:
        figures.server_cpu_us = _US * used.total[SERVER] / steps
        figures.server_system = _share(used.system[SERVER], used.total[SERVER])
    figures.other_cpus = used.other_cpus
    subject.item_s.clear()
    _for_a_while(subject, case.seconds, timed=True)
    p50, p99 = subject.item_percentile_s(50.0), subject.item_percentile_s(99.0)
    figures.item_p50_ms = None if p50 is None else _MS * p50
    figures.item_p99_ms = None if p99 is None else _MS * p99


def _end(subject: Subject, case: Case, figures: Figures, meter: Meter, processes: int) -> None:
    before = meter.cpu(starts=True)
    own = time.process_time()
    figures.close_all_s = _timed(subject.end_all)
    own = time.process_time() - own
    # The caller goes on before the kernel has taken all apart, which is part of the cost;
    # looking whether it has is not.
    until = time.monotonic() + _LEAVE_S
    while meter.processes() > processes:
        if time.monotonic() > until:
            return
        time.sleep(_LEAVE_INTERVAL_S)
    used = meter.cpu(starts=False).since(before).total
    below = used[SERVER] + used[ENVIRONMENTS]
    # Of ended processes there are ticks alone, which may be fewer than their clocks said before.
    figures.close_cpu_ms = _MS * (own + max(0.0, below)) / case.episodes


def _for_a_while(subject: Subject, seconds: float, *, timed: bool) -> int:
    steps = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        steps += subject.step_all(timed=timed)
    return steps


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    case = Case.from_text(sys.stdin.read())
    if case.cpus:
        # What it starts has the same.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: case.cpus])
    figures = measure(case)
    print(json.dumps(dataclasses.asdict(figures)), flush=True)


if __name__ == "__main__":
    main()
