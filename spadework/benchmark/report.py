"""The figures of a run as JSON and as tables in Markdown."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any

from spadework.benchmark import ratios, subjects
from spadework.benchmark.case import BenchmarkProgram, Case, Figures

# CPUs' worth of other work above which a run says that it was disturbed.
QUIET_CPUS = 0.1


def in_rounds(count: int) -> str:
    """How often all was measured."""
    return "1 round" if count == 1 else f"{count} rounds in turn"


def in_all(took_s: float) -> str:
    """How long it all took, in a unit that says something."""
    return f"{took_s:.0f} s in all" if took_s < 90 else f"{took_s / 60:.0f} minutes in all"


@dataclass(frozen=True)
class Machine:
    """Where and amid what the figures were taken; loads are averages of a minute."""

    cpu: str
    cpus: int
    memory_mib: int
    kernel: str
    python: str
    load_before: float
    load_after: float
    took_s: float


@dataclass(frozen=True)
class Row:
    """One case and its figures, a set a round."""

    case: Case
    rounds: list[Figures] = field(default_factory=list)

    def median(self, name: str) -> float | None:
        values = [value for each in self.rounds if (value := getattr(each, name)) is not None]
        return statistics.median(values) if values else None

    @property
    def failed(self) -> str:
        """Why it has no steps, in one line; empty when it has."""
        why = [each.failed for each in self.rounds if each.failed]
        return why[0].splitlines()[0] if why else ""


@dataclass(frozen=True)
class Report:
    """All figures of one run."""

    rows: list[Row]
    machine: Machine
    rounds: int
    seconds: float
    command: str

    def ratios(self) -> list[ratios.Ratio]:
        return ratios.compare({row.case.key: row.rounds for row in self.rows})

    @property
    def other_cpus(self) -> float:
        """CPUs that other work used, the median of all trials."""
        seen = [
            each.other_cpus
            for row in self.rows
            for each in row.rounds
            if each.other_cpus is not None
        ]
        return statistics.median(seen) if seen else 0.0

    def to_json(self) -> dict[str, Any]:
        names = [f.name for f in dataclasses.fields(Figures) if f.name != "failed"]
        return {
            "command": self.command,
            "machine": dataclasses.asdict(self.machine),
            "other_cpus": self.other_cpus,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "subjects": {name: entry.about for name, entry in subjects.SUBJECTS.items()},
            "cases": [
                {
                    "subject": row.case.subject,
                    "program": row.case.program.name,
                    "episodes": row.case.episodes,
                    "hanging": row.case.hanging,
                    # Where the floor lies for the time of a run concerns nobody later.
                    "settings": {k: v for k, v in row.case.settings.items() if k != "binary"},
                    "failed": row.failed,
                    "median": {name: row.median(name) for name in names},
                    "rounds": [dataclasses.asdict(each) for each in row.rounds],
                }
                for row in self.rows
            ],
            "ratios": [
                {
                    "about": ratio.comparison.about,
                    "reach": ratio.comparison.reach,
                    "at_most": ratio.comparison.less,
                    "median": ratio.value,
                    "rounds": ratio.rounds,
                    "by_cpu": ratio.by_cpu,
                    "reached": ratio.reached,
                }
                for ratio in self.ratios()
            ],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Report:
        """What `to_json` gave, without the programs' sources."""
        rows = [
            Row(
                Case(
                    subject=case["subject"],
                    program=BenchmarkProgram(case["program"], "", "", (), 0),
                    episodes=case["episodes"],
                    seconds=value["seconds"],
                    hanging=case["hanging"],
                    settings=case["settings"],
                ),
                [Figures(**each) for each in case["rounds"]],
            )
            for case in value["cases"]
        ]
        machine = Machine(**value["machine"])
        return cls(rows, machine, value["rounds"], value["seconds"], value["command"])

    def to_markdown(self) -> str:
        parts = [self.goals()] if self.ratios() else []
        parts += [self._steps(), self._lives(), self.where()]
        return "\n\n".join(parts)

    def _steps(self) -> str:
        lines = [
            "| program | episodes | hanging | subject | steps/s | least to most | p50 ms | p99 ms "
            "| CPU us a step: client | server | environments |",
            "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            case = row.case
            rates = [each.steps_per_s for each in row.rounds if each.steps_per_s is not None]
            start = f"| {case.program.name} | {case.episodes:,} | {_share(case.hanging)} "
            if not rates:
                lines.append(f"{start}| {case.subject} | none: {_cell(row.failed)} |||||||")
                continue
            cells = [
                case.subject,
                _number(row.median("steps_per_s")),
                f"{_number(min(rates))} to {_number(max(rates))}",
                *(_number(row.median(name)) for name in ("item_p50_ms", "item_p99_ms")),
                *(
                    _number(row.median(f"{side}_cpu_us"))
                    for side in ("client", "server", "environment")
                ),
            ]
            lines.append(f"{start}| {' | '.join(cells)} |")
        return "\n".join(lines)

    def _lives(self) -> str:
        names = (
            "mib_per_episode",
            "starts_per_s",
            "start_cpu_ms",
            "close_all_s",
            "cold_program_ms",
            "warm_program_ms",
        )
        lines = [
            "| program | episodes | subject | MiB an episode | starts/s | CPU ms a start "
            "| close all, s | new program, ms | its second start, ms |",
            "|---|---:|---|---:|---:|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            case = row.case
            if case.hanging or row.median("steps_per_s") is None:
                continue
            cells = " | ".join(_number(row.median(name)) for name in names)
            lines.append(f"| {case.program.name} | {case.episodes:,} | {case.subject} | {cells} |")
        return "\n".join(lines)

    def goals(self) -> str:
        """What is to be reached, and what was."""
        lines = [
            "| measure | goal | seen | reached | by CPU time | rounds |",
            "|---|---:|---:|---|---:|---:|",
        ]
        for ratio in self.ratios():
            wanted = f"{'at most ' if ratio.comparison.less else ''}{ratio.comparison.reach:g}"
            lines.append(
                f"| {ratio.comparison.about} | {wanted} | {ratio.value:.3g} "
                f"| {'yes' if ratio.reached else 'no'} "
                f"| {'' if ratio.by_cpu is None else f'{ratio.by_cpu:.3g}'} "
                f"| {', '.join(f'{value:.3g}' for value in ratio.rounds)} |"
            )
        return "\n".join(lines)

    def where(self) -> str:
        """Where and amid what the figures were taken, and the command."""
        machine = self.machine
        backend = self.rows[0].case.settings.get("backend", "")
        lines = [
            f"{machine.cpus} x {machine.cpu}, {machine.memory_mib:,} MiB, Linux {machine.kernel}, "
            f"Python {machine.python}, backend {backend}. {in_rounds(self.rounds)}, "
            f"{self.seconds:g} s a measurement, {in_all(machine.took_s)}; "
            f"medians. Load average {machine.load_before:.2f} before, {machine.load_after:.2f} "
            f"after; other work used {self.other_cpus:.2f} CPUs (median of the trials). "
            f"`{self.command}`"
        ]
        if self.other_cpus > QUIET_CPUS:
            lines.append(
                "The machine was not quiet: rates are too low, and times too long; CPU time a "
                "step is what other work changes least."
            )
        return "\n\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "/")
