"""How ours stands to the others, as one table: what is compared, and what is to be reached."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from spadework.benchmark import subjects
from spadework.benchmark.case import Figures
from spadework.benchmark.plan import HANGING, TRIVIAL

Key = tuple[str, str, int, float]


def _key(subject: str, episodes: int, hanging: float = 0.0) -> Key:
    return subject, TRIVIAL, episodes, hanging


@dataclass(frozen=True)
class Comparison:
    """One figure of ours against another's.

    Attributes:
        about: For the table.
        figure: Name of the figure.
        ours: The case.
        theirs: The other case; None where the figure itself is the measure.
        reach: What is wanted.
        less: It is to stay at or below that, not above.
    """

    about: str
    figure: str
    ours: Key
    theirs: Key | None
    reach: float
    less: bool = False


_OURS = subjects.SANDBOX
COMPARISONS = (
    Comparison(
        "steps/s, through gRPC, 1,000 episodes, of the C floor's",
        "steps_per_s",
        _key(_OURS, 1_000),
        _key(subjects.FLOOR, 1_000),
        0.5,
    ),
    Comparison(
        "steps/s, through gRPC, 1,000 episodes, of OpenEnv's with 1,000 sessions",
        "steps_per_s",
        _key(_OURS, 1_000),
        _key(subjects.OPENENV, 1_000),
        25,
    ),
    Comparison(
        "steps/s, group mode, 1,000 episodes, of OpenEnv's with 1,000 sessions",
        "steps_per_s",
        _key(subjects.GROUPED, 1_000),
        _key(subjects.OPENENV, 1_000),
        60,
    ),
    Comparison(
        "steps/s, through gRPC, 64 episodes, of OpenEnv's with 64 sessions",
        "steps_per_s",
        _key(_OURS, 64),
        _key(subjects.OPENENV, 64),
        14,
    ),
    Comparison(
        "steps/s, direct path, 64 episodes, of AsyncVectorEnv's with 64",
        "steps_per_s",
        _key(subjects.DIRECT, 64),
        _key(subjects.ASYNC_VECTOR, 64),
        7,
    ),
    Comparison(
        "steps/s, streaming path, one episode, of OpenEnv's with one session",
        "steps_per_s",
        _key(_OURS, 1),
        _key(subjects.OPENENV, 1),
        2,
    ),
    Comparison(
        "episode starts/s, 64 episodes, of a fresh nsjail and Python",
        "starts_per_s",
        _key(_OURS, 64),
        _key(subjects.FRESH_JAIL, 64),
        10,
    ),
    Comparison(
        "MiB an episode, 5,000 live",
        "mib_per_episode",
        _key(_OURS, 5_000),
        None,
        1,
        less=True,
    ),
    Comparison(
        "p99 of an item, 1,000 episodes with 1% hanging, of that without",
        "item_p99_ms",
        _key(_OURS, 1_000, HANGING),
        _key(_OURS, 1_000),
        2,
        less=True,
    ),
)


@dataclass(frozen=True)
class Ratio:
    """A comparison's outcome.

    Attributes:
        value: Median of the rounds' own ratios: neighbours in time share the machine's load.
        rounds: One a round.
        by_cpu: The same of CPU time a step (or a start), all sides together, theirs over ours:
            what it would be on a machine with nothing else to do; None where it makes no sense.
    """

    comparison: Comparison
    value: float
    rounds: list[float]
    by_cpu: float | None

    @property
    def reached(self) -> bool:
        reach = self.comparison.reach
        return self.value <= reach if self.comparison.less else self.value >= reach


def compare(rows: Mapping[Key, list[Figures]]) -> list[Ratio]:
    """All comparisons whose cases were measured, and gave figures."""
    found = []
    for comparison in COMPARISONS:
        ours = rows.get(comparison.ours, [])
        theirs = rows.get(comparison.theirs, []) if comparison.theirs else [None] * len(ours)
        values, costs = [], []
        for mine, other in zip(ours, theirs, strict=False):
            value = getattr(mine, comparison.figure)
            base = 1.0 if other is None else getattr(other, comparison.figure)
            if value is None or not base:
                continue
            values.append(value / base)
            if other is not None and not comparison.less:
                costs.append(_cost(other, comparison.figure) / _cost(mine, comparison.figure))
        if values:
            by_cpu = statistics.median(costs) if costs else None
            found.append(Ratio(comparison, statistics.median(values), values, by_cpu))
    return found


def _cost(figures: Figures, figure: str) -> float:
    if figure == "starts_per_s":
        return figures.start_cpu_ms or 0.0
    return cpu_us(figures)


def cpu_us(figures: Figures) -> float:
    """CPU time of a step, all sides together."""
    sides = (figures.client_cpu_us, figures.server_cpu_us, figures.environment_cpu_us)
    return sum(side or 0.0 for side in sides)
