"""What grows how: laws of each measured whole, and whether one is worse than linear."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spadework.benchmark.case import Figures
from spadework.benchmark.ratios import cpu_us
from spadework.benchmark.report import QUIET_CPUS, in_all, in_rounds
from spadework.scale import laws
from spadework.scale.axes import AXES, CPUS, EPISODES, OBSERVATION, PROGRAMS
from spadework.scale.growth import Growth, Sample

Reading = Callable[[Sample], float | None]

_TO_MS, _TO_S = 1e-3, 1e-3


@dataclass(frozen=True)
class Quantity:
    """A whole that grows with an axis.

    Attributes:
        name: Of it, for people and as a key.
        axis: What it grows with.
        unit: Of its values.
        read: Its value in a sample; None where it was not measured.
        each: Unit of the price of one more, and what to multiply by for it.
        wall: It is time by the clock, which other work on the machine stretches.
    """

    name: str
    axis: str
    unit: str
    read: Reading
    each: tuple[str, float]
    wall: bool = False


def _batch(part: Callable[[Figures], float | None]) -> Reading:
    """CPU time of a step in every episode, ms."""

    def read(sample: Sample) -> float | None:
        value = part(sample.figures)
        return None if value is None else value * sample.episodes * _TO_MS

    return read


def _per_episode(name: str, factor: float = 1.0) -> Reading:
    def read(sample: Sample) -> float | None:
        value = getattr(sample.figures, name)
        return None if value is None else value * sample.episodes * factor

    return read


def _wall(sample: Sample) -> float | None:
    rate = sample.figures.steps_per_s
    return None if not rate else 1e3 * sample.episodes / rate


def _registering(sample: Sample) -> float | None:
    value = sample.figures.register_cpu_ms
    return None if value is None else value * sample.point.value * _TO_S


def _held(sample: Sample) -> float | None:
    """Memory of programs and episodes."""
    mib, programs = sample.figures.mib_per_episode, sample.figures.programs_mib
    return None if mib is None or programs is None else mib * sample.episodes + programs


# A batch is a step in every episode.
_STEP = "a batch"
_US = ("us", 1e3)
BATCH_CLIENT, BATCH_SERVER = f"{_STEP}, CPU time of the client", f"{_STEP}, CPU time of the server"
BATCH_ENVIRONMENTS = f"{_STEP}, CPU time of the environments"
BATCH_CPU = f"{_STEP}, CPU time of all"
STARTS, MEMORY = "starting all, CPU time of all", "memory of all episodes"

_SIDES = (
    (BATCH_CPU, cpu_us),
    (BATCH_CLIENT, lambda f: f.client_cpu_us),
    (BATCH_SERVER, lambda f: f.server_cpu_us),
    (BATCH_ENVIRONMENTS, lambda f: f.environment_cpu_us),
)
QUANTITIES = (
    Quantity(f"{_STEP}, time", EPISODES, "ms", _wall, _US, wall=True),
    *(Quantity(name, EPISODES, "ms", _batch(part), _US) for name, part in _SIDES),
    Quantity(STARTS, EPISODES, "s", _per_episode("start_cpu_ms", _TO_S), ("ms", 1e3)),
    Quantity(
        "ending all, CPU time of all",
        EPISODES,
        "s",
        _per_episode("close_cpu_ms", _TO_S),
        ("ms", 1e3),
    ),
    Quantity(MEMORY, EPISODES, "MiB", _per_episode("mib_per_episode"), ("MiB", 1.0)),
    Quantity("registering all, CPU time of all", PROGRAMS, "s", _registering, ("ms", 1e3)),
    Quantity(f"{_STEP}, time", PROGRAMS, "ms", _wall, _US, wall=True),
    Quantity(BATCH_CPU, PROGRAMS, "ms", _batch(cpu_us), _US),
    Quantity(STARTS, PROGRAMS, "s", _per_episode("start_cpu_ms", _TO_S), ("ms", 1e3)),
    Quantity("memory of programs and episodes", PROGRAMS, "MiB", _held, ("MiB", 1.0)),
    Quantity(f"{_STEP}, time", OBSERVATION, "ms", _wall, ("ns", 1e6), wall=True),
    *(Quantity(name, OBSERVATION, "ms", _batch(part), ("ns", 1e6)) for name, part in _SIDES),
    Quantity(MEMORY, OBSERVATION, "MiB", _per_episode("mib_per_episode"), ("B", 2.0**20)),
)


@dataclass(frozen=True)
class Finding:
    """How a quantity grows.

    Attributes:
        points: (size, value) of every sample.
        slope: Over all sizes, in logarithms.
        end: Over the last decade of sizes; None with fewer than three sizes.
        law: A line, with a bend if there is one.
        quiet: Nothing else ran beside it.
    """

    quantity: Quantity
    points: list[tuple[int, float]]
    slope: laws.Slope
    end: laws.Slope | None
    law: laws.Line
    quiet: bool

    @property
    def verdict(self) -> str:
        """ "worse" than linear, "not worse", or "open": where it matters, at the large end."""
        seen = (self.end or self.slope).verdict
        # Large sizes take longer, and so meet more of what else the machine does.
        return "open" if self.quantity.wall and not self.quiet and seen == "worse" else seen

    def median(self, size: int) -> float:
        return statistics.median(value for at, value in self.points if at == size)

    def between(self, size: float) -> float:
        """Medians, and powers between them; the law beyond them."""
        sizes = sorted({at for at, _ in self.points})
        if not sizes[0] <= size <= sizes[-1]:
            return self.law.at(size)
        for low, high in itertools.pairwise(sizes):
            if size <= high:
                share = math.log(size / low) / math.log(high / low)
                return self.median(low) ** (1 - share) * self.median(high) ** share
        return self.median(sizes[0])

    def to_json(self) -> dict[str, Any]:
        return {
            "quantity": self.quantity.name,
            "axis": self.quantity.axis,
            "unit": self.quantity.unit,
            "points": self.points,
            "slope": dataclasses.asdict(self.slope),
            "end_slope": None if self.end is None else dataclasses.asdict(self.end),
            "line": dataclasses.asdict(self.law),
            "verdict": self.verdict,
        }


def findings(growth: Growth) -> list[Finding]:
    """All quantities with enough samples; nothing is said of the CPU axis here (`speedup`)."""
    found = []
    quiet = other_cpus(growth) <= QUIET_CPUS
    for quantity in QUANTITIES:
        points = [
            (sample.point.value, value)
            for sample in growth.of(quantity.axis)
            if (value := quantity.read(sample)) is not None and value > 0
        ]
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        if len(set(xs)) < 3:
            continue
        found.append(
            Finding(
                quantity,
                points,
                laws.slope(xs, ys),
                laws.end_slope(xs, ys),
                laws.line(xs, ys),
                quiet,
            )
        )
    return found


def other_cpus(growth: Growth) -> float:
    """CPUs that other work on the machine used, the median of all trials."""
    seen = [s.figures.other_cpus for s in growth.samples if s.figures.other_cpus is not None]
    return statistics.median(seen) if seen else 0.0


@dataclass(frozen=True)
class Speedup:
    """What more CPUs bring: steps a second of neighbouring trials, more over fewer.

    Attributes:
        rates: Median steps a second by number of CPUs.
        ratios: One a round.
    """

    rates: dict[int, float]
    ratios: list[float]

    @property
    def value(self) -> float:
        return statistics.median(self.ratios)


def speedup(growth: Growth) -> Speedup | None:
    """Two CPUs against one; None where it was not measured."""
    rates: dict[int, dict[int, float]] = {}
    for sample in growth.of(CPUS):
        if sample.figures.steps_per_s:
            rates.setdefault(sample.point.value, {})[sample.round] = sample.figures.steps_per_s
    one, two = rates.get(1, {}), rates.get(2, {})
    ratios = [two[number] / one[number] for number in one if number in two]
    if not ratios:
        return None
    return Speedup({n: statistics.median(each.values()) for n, each in rates.items()}, ratios)


def worse(found: list[Finding]) -> list[Finding]:
    """Those that are worse than linear."""
    return [finding for finding in found if finding.verdict == "worse"]


def to_json(growth: Growth) -> dict[str, Any]:
    """What follows from a growth."""
    found, gained = findings(growth), speedup(growth)
    return {
        "findings": [finding.to_json() for finding in found],
        "speedup": None if gained is None else dataclasses.asdict(gained),
        "nothing_worse_than_linear": not worse(found),
    }


def to_markdown(growth: Growth) -> str:
    """The tables, an axis each, and what they come to."""
    found = findings(growth)
    parts = []
    for axis in AXES.values():
        mine = [finding for finding in found if finding.quantity.axis == axis.name]
        if mine:
            parts.append(f"**{axis.about.capitalize()}** ({axis.held})")
            parts.append(_table(mine))
    gained = speedup(growth)
    if gained is not None:
        parts.append(_gained(gained))
    parts += [
        f"{sample.point.axis} {sample.point.value:,}, round {sample.round}: no figures, "
        f"{sample.figures.failed.splitlines()[0]}"
        for sample in growth.failures
    ]
    parts.append(statement(found))
    parts.append(_where(growth))
    return "\n\n".join(parts)


def statement(found: list[Finding]) -> str:
    """The claim, as far as the figures carry it."""
    limit = 1 + laws.TOLERANCE
    said = []
    for finding in worse(found):
        at = finding.end or finding.slope
        said.append(
            f"Worse than linear: {finding.quantity.name} over {finding.quantity.axis}, "
            f"{_interval(at)}."
        )
    if not said:
        said.append(
            f"Nothing is worse than linear: no exponent at the large end has its interval above "
            f"{limit:g}."
        )
    undecided = [finding for finding in found if finding.verdict == "open"]
    if undecided:
        names = "; ".join(f"{f.quantity.name} over {f.quantity.axis}" for f in undecided)
        said.append(
            f"The interval reaches beyond {limit:g}, or other work stretched the time, which "
            f"decides nothing, for: {names}."
        )
    return " ".join(said)


def _table(found: list[Finding]) -> str:
    lines = [
        "| what | from | to | exponent over all | exponent at the large end | fixed | each "
        "| fixed part outweighed from | bend at | each beyond | law's error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for finding in found:
        law, (unit, factor) = finding.law, finding.quantity.each
        sizes = sorted({size for size, _ in finding.points})
        cells = [
            finding.quantity.name,
            *(
                f"{number(finding.median(s))} {finding.quantity.unit}"
                for s in (sizes[0], sizes[-1])
            ),
            _interval(finding.slope),
            "" if finding.end is None else _interval(finding.end),
            f"{number(law.fixed)} {finding.quantity.unit}",
            f"{number(law.each * factor)} {unit}",
            "" if law.half is None else number(law.half),
            "none" if law.bend is None else number(law.bend),
            "" if law.bend is None else f"{number(law.beyond * factor)} {unit}",
            f"{law.error:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _gained(gained: Speedup) -> str:
    rounds = ", ".join(f"{ratio:.2f}" for ratio in gained.ratios)
    rates = ", ".join(f"{rate:,.0f} with {cpus}" for cpus, rate in sorted(gained.rates.items()))
    return (
        f"**{AXES[CPUS].about}** ({AXES[CPUS].held}): steps a second {rates}; two CPUs give "
        f"{gained.value:.2f} times one (rounds: {rounds}). Two values show no bend."
    )


def _where(growth: Growth) -> str:
    machine = growth.machine
    if machine is None:
        return "Nothing was measured."
    count = max(sample.round for sample in growth.samples)
    few = "With `--quick` no more than 8 episodes are held, whatever is said above. "
    return (
        f"{few if growth.setting.few else ''}"
        f"{machine.cpus} x {machine.cpu}, {machine.memory_mib:,} MiB, Linux {machine.kernel}, "
        f"Python {machine.python}, {growth.setting.subject} on the backend "
        f"{growth.setting.backend}; {in_rounds(count)}, {growth.setting.seconds:g} s a "
        f"measurement, {in_all(growth.took_s)}; other work used "
        f"{other_cpus(growth):.2f} CPUs (median of the trials). "
        f"`{growth.command}`"
    )


def _interval(slope: laws.Slope) -> str:
    return f"{slope.value:.2f} ({slope.low:.2f} to {slope.high:.2f})"


def number(value: float) -> str:
    """Three digits, or all of a larger one."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
