"""Lets the cases take turns, each trial in a process of its own, and collects the figures."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from spadework.benchmark import peers, plan
from spadework.benchmark.case import Case, Figures
from spadework.benchmark.report import Machine, Report, Row
from spadework.console import CommandError

# What a trial may take beyond its measurements: starting thousands of processes on a busy machine.
_TRIAL_MARGIN_S = 300.0


def run(
    cases: Sequence[Case],
    rounds: int,
    *,
    command: str,
    on_trial: Callable[[Case], None] = lambda case: None,
    on_done: Callable[[], None] = lambda: None,
) -> Iterator[Report]:
    """Measure all cases in turn, and then again; yields what there is after each round.

    Args:
        cases: In their order.
        rounds: How often.
        command: For the report: what somebody types to have the same.
        on_trial: Called before each measurement.
        on_done: Called after each.

    Raises:
        CommandError: If the competitors cannot be installed, or the C reference not compiled.
    """
    python = peers.ensure() if any(map(plan.needs_peers, cases)) else None
    rows = {case.key: Row(case) for case in cases}
    load = os.getloadavg()[0]
    started = time.monotonic()
    for number in range(1, rounds + 1):
        for case in cases:
            on_trial(case)
            rows[case.key].rounds.append(trial(case, python))
            on_done()
        seen = machine(load, time.monotonic() - started)
        yield Report(list(rows.values()), seen, number, cases[0].seconds, command)


def trial(case: Case, peers_python: Path | None = None) -> Figures:
    """One measurement, in a process of its own; that it ends without figures is a figure as well.

    Args:
        case: What to measure.
        peers_python: Interpreter of the competitors, where the case needs it.
    """
    python, environment = Path(sys.executable), dict(os.environ)
    if plan.needs_peers(case):
        assert peers_python is not None
        python, environment = peers_python, peers.environment()
    process = subprocess.Popen(
        [python, "-m", "spadework.benchmark.trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # To end it with all that it started.
        start_new_session=True,
    )
    try:
        timeout_s = _TRIAL_MARGIN_S + 4 * case.seconds
        said, errors = process.communicate(case.to_text(), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Figures(failed=f"it did not end within {timeout_s:.0f} s")
    except BaseException:
        _kill(process)
        raise
    if process.returncode or not said.strip():
        return Figures(failed=f"exit status {process.returncode}: {errors.strip()[-500:]}")
    return Figures(**json.loads(said.splitlines()[-1]))


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that a running trial ends with it."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def floor_binary() -> Iterator[Path]:
    """Compile the C ping-pong into a folder of its own, for the time of the block.

    Raises:
        CommandError: If its source or a C compiler is missing.
    """
    source = Path(__file__).resolve().parents[2] / "bench" / "pingpong.c"
    if not source.exists():
        raise CommandError(f"{source} is missing: run the benchmark from a source checkout")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "pingpong"
        compiler = os.environ.get("CC", "cc")
        try:
            subprocess.run(
                [compiler, "-O2", "-o", str(binary), str(source)],
                check=True,
                capture_output=True,
                text=True,
            )
        except FileNotFoundError as error:
            raise CommandError(
                f"no C compiler {compiler!r}, which the floor needs; install gcc or set CC"
            ) from error
        except subprocess.CalledProcessError as error:
            raise CommandError(f"{source.name} does not compile: {error.stderr}") from error
        yield binary


def machine(load_before: float, took_s: float) -> Machine:
    return Machine(
        cpu=_cpu_name(),
        cpus=os.cpu_count() or 1,
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        kernel=platform.release(),
        python=platform.python_version(),
        load_before=load_before,
        load_after=os.getloadavg()[0],
        took_s=took_s,
    )


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
