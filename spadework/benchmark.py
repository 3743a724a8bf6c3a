"""Steps a second of the sandbox, beside what bounds it from below and from above.

`floor`: a C supervisor and N processes exchanging one frame over SEQPACKET socket pairs.
`exec`: the same program executed in this process, no isolation at all.
`sandbox`: the same program through client, gRPC and server, N episodes in one Step call.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_api import Limits, Outcome, ResetItem, SandboxClient, StepItem

from spadework.console import CommandError

FLOOR, EXEC, SANDBOX = "floor", "exec", "sandbox"
SUBJECTS = (FLOOR, EXEC, SANDBOX)

OBSERVATION_BYTES = 64

# Load average a CPU, before the first round, above which the report says so.
QUIET_LOAD = 0.25

PROGRAM = f'''
class TrivialEnv:
    """Does next to nothing, as a Gymnasium environment of {OBSERVATION_BYTES} bytes would."""

    def reset(self, seed=None):
        self.turn = 0
        return "x" * {OBSERVATION_BYTES}, {{}}

    def step(self, action):
        self.turn += 1
        return "x" * {OBSERVATION_BYTES}, 0.0, False, False, {{}}
'''

# A benchmark outlasts what an episode is usually given.
LIMITS = Limits(max_steps=100_000, cpu_time_s=3_600.0)


@dataclass(frozen=True)
class Rate:
    """What one subject did with so many episodes, a figure a round."""

    subject: str
    episodes: int
    steps_per_s: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.steps_per_s)


@dataclass(frozen=True)
class BenchmarkReport:
    """All figures of one run, and the machine they are of."""

    rates: list[Rate]
    machine: dict[str, Any]
    seconds: float
    rounds: int

    def ratio(self, rate: Rate, to: str) -> float:
        """How fast `rate` is in units of another subject with as many episodes."""
        for other in self.rates:
            if (other.subject, other.episodes) == (to, rate.episodes):
                return rate.median / other.median
        raise KeyError(f"{to} was not measured with {rate.episodes} episodes")

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "observation_bytes": OBSERVATION_BYTES,
            "rates": [
                {
                    "subject": rate.subject,
                    "episodes": rate.episodes,
                    "steps_per_s_median": rate.median,
                    "steps_per_s": rate.steps_per_s,
                    "ratio_to_floor": self.ratio(rate, FLOOR),
                    "ratio_to_exec": self.ratio(rate, EXEC),
                }
                for rate in self.rates
            ],
        }

    def to_markdown(self) -> str:
        lines = [
            "| subject | episodes | steps/s, median | least to most | of floor | of exec |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {rate.subject} | {rate.episodes:,} | {rate.median:,.0f} "
            f"| {min(rate.steps_per_s):,.0f} to {max(rate.steps_per_s):,.0f} "
            f"| {self.ratio(rate, FLOOR):.3f} | {self.ratio(rate, EXEC):.4f} |"
            for rate in self.rates
        ]
        machine = self.machine
        lines += [
            "",
            f"{machine['cpus']} x {machine['cpu']}, Linux {machine['kernel']}, Python "
            f"{machine['python']}, backend {machine['backend']}; load average "
            f"{machine['load_before']:.2f} before, {machine['load_after']:.2f} after; "
            f"{self.rounds} rounds of {self.seconds:g} s in turn; observation "
            f"{OBSERVATION_BYTES} bytes.",
        ]
        if machine["load_before"] > QUIET_LOAD * machine["cpus"]:
            lines.append("The machine was busy before the first round: these figures are too low.")
        return "\n".join(lines)


def measure(
    address: str,
    *,
    episodes: Sequence[int],
    seconds: float,
    rounds: int,
    on_measurement: Callable[[], None] = lambda: None,
) -> BenchmarkReport:
    """Measure all subjects in turn.

    Args:
        address: Of the sandbox server.
        episodes: Sizes to measure.
        seconds: Length of one measurement.
        rounds: Measurements of each subject and size.
        on_measurement: Called after each measurement.

    Raises:
        CommandError: If the floor cannot be compiled, or the server fails.
    """
    load_before = os.getloadavg()[0]
    rates = {(s, n): Rate(s, n) for n in episodes for s in SUBJECTS}
    with floor_binary() as floor, SandboxClient(address) as client:
        info = client.server_info()
        if max(episodes) > info.max_episodes:
            raise CommandError(
                f"the server allows {info.max_episodes} episodes, fewer than {max(episodes)}"
            )
        program = client.register_program(PROGRAM, limits=LIMITS)
        if program.outcome is not Outcome.COMPLETED:
            raise CommandError(f"the benchmark's program does not load: {program.diagnostic}")
        subjects: dict[str, Callable[[int], float]] = {
            FLOOR: lambda n: measure_floor(floor, n, seconds),
            EXEC: lambda n: measure_exec(n, seconds),
            SANDBOX: lambda n: measure_sandbox(client, program.program_id, n, seconds),
        }
        for _ in range(rounds):
            for (subject, count), rate in rates.items():
                rate.steps_per_s.append(subjects[subject](count))
                on_measurement()
    machine = {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "backend": info.backend,
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
    }
    return BenchmarkReport(list(rates.values()), machine, seconds, rounds)


@contextmanager
def floor_binary() -> Iterator[Path]:
    """Compile the C ping-pong into a folder of its own, for the time of the block.

    Raises:
        CommandError: If its source or a C compiler is missing.
    """
    source = Path(__file__).resolve().parents[1] / "bench" / "pingpong.c"
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


def measure_floor(binary: Path, episodes: int, seconds: float) -> float:
    """Steps a second of the C ping-pong."""
    frame_bytes = str(OBSERVATION_BYTES)
    done = subprocess.run(
        [str(binary), str(episodes), str(seconds), frame_bytes],
        check=True,
        capture_output=True,
        text=True,
    )
    steps, took_s = done.stdout.split()
    return int(steps) / float(took_s)


def measure_exec(episodes: int, seconds: float) -> float:
    """Steps a second of the program executed here, one instance an episode."""
    namespace: dict[str, Any] = {}
    exec(compile(PROGRAM, "<program>", "exec"), namespace)
    environments = [namespace["TrivialEnv"]() for _ in range(episodes)]
    for environment in environments:
        environment.reset(seed=0)
    rounds = 0
    started = time.perf_counter()
    while (took_s := time.perf_counter() - started) < seconds:
        for environment in environments:
            environment.step("a")
        rounds += 1
    return rounds * episodes / took_s


def measure_sandbox(
    client: SandboxClient, program_id: str, episodes: int, seconds: float
) -> float:
    """Steps a second of the sandbox, all episodes in one Step call, resets not counted."""
    started_episodes = client.reset([ResetItem(program_id, seed=n) for n in range(episodes)])
    for episode in started_episodes:
        if not episode.ok:
            raise CommandError(f"an episode did not start: {episode.error or episode.diagnostic}")
    ids = [episode.episode_id for episode in started_episodes]
    try:
        _step_all(client, ids, 0)  # warms up, not counted
        rounds = 0
        started = time.perf_counter()
        while (took_s := time.perf_counter() - started) < seconds:
            rounds += 1
            _step_all(client, ids, rounds)
        return rounds * episodes / took_s
    finally:
        client.close_episodes(ids)


def _step_all(client: SandboxClient, ids: list[str], index: int) -> None:
    for result in client.step([StepItem(episode_id, index, "a") for episode_id in ids]):
        if not result.ok:
            raise CommandError(f"a step failed: {result.error or result.diagnostic}")


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
