"""What was measured of growth, with its laws, as one picture."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

from spadework.scale import findings as found_in
from spadework.scale.axes import AXES, CPUS, EPISODES, OBSERVATION, PROGRAMS
from spadework.scale.findings import Finding
from spadework.scale.growth import Growth
from spadework.scale.panels import Panel, Series
from spadework.scale.panels import draw as draw_panels

_ALL, _CLIENT, _SERVER, _ENVIRONMENTS = "#222222", "#d18f00", "#1565c0", "#2e8b57"
_MEMORY = "#8e44ad"
_SIDES = (
    (found_in.BATCH_CPU, "all", _ALL),
    (found_in.BATCH_CLIENT, "client", _CLIENT),
    (found_in.BATCH_SERVER, "server", _SERVER),
    (found_in.BATCH_ENVIRONMENTS, "environments", _ENVIRONMENTS),
)
# One CPU, and more in turn with it.
_BY_CPUS = (("one CPU", "#c2571a"), ("two, beside one", "#2e8b57"))
# Points of a law's line between two measured sizes.
_BETWEEN = 8


def draw(growth: Growth) -> str:
    """The picture of a growth, as the text of an SVG file."""
    found = {(f.quantity.name, f.quantity.axis): f for f in found_in.findings(growth)}
    panels = [_rates(growth)]
    for axis in (EPISODES, OBSERVATION):
        series, marks = [], []
        for name, short, color in _SIDES:
            finding = found.get((name, axis))
            if finding is not None:
                series.append(_series(finding, short, color, _each_step(growth, axis)))
                if finding.law.bend and name == found_in.BATCH_CPU:
                    marks.append(finding.law.bend)
        title = f"CPU time of a step over {axis}, microseconds"
        panels.append(Panel(title, AXES[axis].about, series, marks))
    panels.append(
        _wholes("Memory of episodes, MiB", EPISODES, found, ((found_in.MEMORY, "all", _MEMORY),))
    )
    panels.append(
        _wholes(
            "CPU time, seconds",
            PROGRAMS,
            found,
            (
                ("registering all, CPU time of all", "register all", _CLIENT),
                (found_in.STARTS, "start episodes", _SERVER),
            ),
        )
    )
    panels.append(
        _wholes(
            "Memory of programs and their episodes, MiB",
            PROGRAMS,
            found,
            (("memory of programs and episodes", "all", _MEMORY),),
        )
    )
    machine = growth.machine
    assert machine is not None
    caption = (
        f"{machine.cpus} x {machine.cpu}; dots: each round; lines: fitted laws, of steps a "
        "second medians; dashed upright: where the law of all bends"
    )
    return draw_panels(panels, caption)


def _rates(growth: Growth) -> Panel:
    series = []
    for axis in (EPISODES, CPUS):
        by_size: dict[tuple[int, int], list[float]] = {}
        for sample in growth.of(axis):
            if sample.figures.steps_per_s:
                key = (sample.point.value if axis == CPUS else 0, sample.episodes)
                by_size.setdefault(key, []).append(sample.figures.steps_per_s)
        if axis == EPISODES and by_size:
            dots = [(float(n), rate) for (_, n), rates in by_size.items() for rate in rates]
            line = sorted(
                (float(n), statistics.median(rates)) for (_, n), rates in by_size.items()
            )
            series.append(Series("all CPUs", _SERVER, dots, line))
        for (cpus, episodes), rates in by_size.items():
            if axis == CPUS:
                # Taken in turn with each other, and at another time than the line.
                name, color = _BY_CPUS[cpus > 1]
                dots = [(float(episodes), rate) for rate in rates]
                series.append(Series(name, color, dots))
    return Panel("Steps a second", AXES[EPISODES].about, series)


def _each_step(growth: Growth, axis: str) -> Callable[[float, float], float]:
    """From CPU ms of a batch to us of a step."""
    held = next((sample.episodes for sample in growth.of(axis)), 1)

    def share(size: float, value: float) -> float:
        return 1e3 * value / (size if axis == EPISODES else held)

    return share


def _wholes(
    title: str,
    axis: str,
    found: dict[tuple[str, str], Finding],
    shown: tuple[tuple[str, str, str], ...],
) -> Panel:
    series, marks = [], []
    for name, short, color in shown:
        finding = found.get((name, axis))
        if finding is not None:
            series.append(_series(finding, short, color, lambda size, value: value))
            if finding.law.bend:
                marks.append(finding.law.bend)
    return Panel(title, AXES[axis].about, series, marks)


def _series(
    finding: Finding, name: str, color: str, share: Callable[[float, float], float]
) -> Series:
    sizes = sorted({size for size, _ in finding.points})
    dots = [(float(size), share(size, value)) for size, value in finding.points]
    fine = [
        low * (high / low) ** (step / _BETWEEN)
        for low, high in itertools.pairwise(sizes)
        for step in range(_BETWEEN)
    ]
    line = [(size, share(size, finding.law.at(size))) for size in [*fine, float(sizes[-1])]]
    return Series(name, color, dots, line)
