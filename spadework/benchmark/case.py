"""What one trial measures, and the figures that it gives; both travel as JSON."""

from __future__ import annotations

import dataclasses
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

# Makes a program of the benchmark wait for ever.
HANG_ACTION = "hang"


@dataclass(frozen=True)
class BenchmarkProgram:
    """A program that every subject runs, unchanged.

    Attributes:
        name: In the report.
        source: One class with `reset(seed)` and `step(action)`, and no arguments to make it.
        entry: Name of that class.
        runtime: Of the sandbox; empty for the standard library's.
        actions: Legal ones, taken in turn.
        observation_bytes: The longest observation's.
    """

    name: str
    source: str
    entry: str
    actions: tuple[str, ...]
    observation_bytes: int
    runtime: str = ""

    def renewed(self) -> BenchmarkProgram:
        """The same program with a source that nobody has seen before."""
        return dataclasses.replace(self, source=f"{self.source}\n# {uuid.uuid4()}\n")

    def load(self) -> Any:
        """The class, executed in this process."""
        namespace: dict[str, Any] = {"__name__": "program"}
        exec(compile(self.source, "<program>", "exec"), namespace)
        return namespace[self.entry]


@dataclass(frozen=True)
class Case:
    """One subject with one program and so many episodes.

    Attributes:
        hanging: Share of the episodes that hang in each step they are asked for.
        seconds: Length of one measurement.
        new_program: Measure the start of a new program, too.
        programs: How many different ones, of the same source but for a comment.
        cpus: For everything in the trial, by its affinity; 0 means all there are.
        settings: More for the subject, by name.
    """

    subject: str
    program: BenchmarkProgram
    episodes: int
    seconds: float
    hanging: float = 0.0
    new_program: bool = False
    programs: int = 1
    cpus: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int, float]:
        """What tells it from the other cases of a run."""
        return self.subject, self.program.name, self.episodes, self.hanging

    @property
    def hung(self) -> int:
        """Episodes that hang; at least one, if any is to."""
        return max(1, round(self.hanging * self.episodes)) if self.hanging else 0

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Case:
        value = json.loads(text)
        program = value.pop("program")
        program["actions"] = tuple(program["actions"])
        return cls(program=BenchmarkProgram(**program), **value)


@dataclass
class Figures:
    """What one trial measured; None is what it could not.

    Attributes:
        steps_per_s: Of the episodes that do not hang, new episodes for ended ones included.
        item_p50_ms: From the batch's start to an item's result at the caller, median.
        item_p99_ms: The same, 99th percentile.
        client_cpu_us: CPU time of a step in the caller's process.
        server_cpu_us: In the server's, where there is one.
        environment_cpu_us: In all processes below them: environments, and what holds them.
        client_system: Share of the caller's CPU time that is the kernel's.
        server_system: The same of the server.
        mib_per_episode: Proportional set size of all processes together, its growth by the start.
        machine_mib_per_episode: What the machine had less available after the start: with page
            tables, stacks and sockets in the kernel, and with all else that ran.
        register_cpu_ms: CPU time of all sides to take in one of the programs.
        programs_mib: Proportional set size of all processes together, its growth by all programs.
        starts_per_s: Episodes started, to the first observation.
        start_cpu_ms: CPU time of all sides of a start.
        start_server_cpu_ms: The server's part of it, where there is one.
        close_cpu_ms: CPU time of all sides to end one.
        close_all_s: From the wish to end all episodes to their end.
        cold_program_ms: From a source never seen to the first observation of its first episode.
        warm_program_ms: The same of its second episode.
        other_cpus: CPUs that other processes of the machine used meanwhile.
        load: Load average of a minute, before.
        failed: Why there are no figures; empty when there are.
    """

    steps_per_s: float | None = None
    item_p50_ms: float | None = None
    item_p99_ms: float | None = None
    client_cpu_us: float | None = None
    server_cpu_us: float | None = None
    environment_cpu_us: float | None = None
    client_system: float | None = None
    server_system: float | None = None
    mib_per_episode: float | None = None
    machine_mib_per_episode: float | None = None
    register_cpu_ms: float | None = None
    programs_mib: float | None = None
    starts_per_s: float | None = None
    start_cpu_ms: float | None = None
    start_server_cpu_ms: float | None = None
    close_cpu_ms: float | None = None
    close_all_s: float | None = None
    cold_program_ms: float | None = None
    warm_program_ms: float | None = None
    other_cpus: float | None = None
    load: float | None = None
    failed: str = ""
