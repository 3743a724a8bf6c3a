"""What the cost is measured against: a quantity and its values, everything else held."""

from __future__ import annotations

from dataclasses import dataclass

from spadework.benchmark import subjects
from spadework.benchmark.case import Case
from spadework.benchmark.programs import sized, trivial


@dataclass(frozen=True)
class Axis:
    """A quantity that is varied.

    Attributes:
        name: Of it.
        about: For people, with the unit.
        held: What is held meanwhile, for people.
        values: From the least to the most.
        few: Enough of them to see that it runs.
    """

    name: str
    about: str
    held: str
    values: tuple[int, ...]
    few: tuple[int, ...]


EPISODES, PROGRAMS, OBSERVATION, CPUS = "episodes", "programs", "observation", "cpus"

# Held where it is not varied: so many that a call's fixed part weighs little.
_EPISODES_OF_PROGRAMS = 500
_EPISODES_OF_OBSERVATION = 64
_EPISODES_OF_CPUS = 256

AXES = {
    axis.name: axis
    for axis in (
        Axis(
            EPISODES,
            "episodes at once",
            "one program, 64 bytes an observation",
            (1, 4, 16, 64, 256, 500, 1_000, 2_500, 5_000),
            (1, 2, 4, 8),
        ),
        Axis(
            PROGRAMS,
            "programs",
            f"{_EPISODES_OF_PROGRAMS} episodes, spread over them; 64 bytes an observation",
            (1, 5, 20, 50, 100, 200, 350, 500),
            (1, 2, 4, 8),
        ),
        Axis(
            OBSERVATION,
            "bytes of an observation",
            f"one program, {_EPISODES_OF_OBSERVATION} episodes",
            (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
            (100, 1_000, 10_000, 100_000),
        ),
        Axis(
            CPUS,
            "CPUs for everything, the client included",
            f"one program, {_EPISODES_OF_CPUS} episodes, 64 bytes an observation",
            (1, 2),
            (1, 2),
        ),
    )
}


@dataclass(frozen=True)
class Point:
    """One value of an axis."""

    axis: str
    value: int

    def case(self, subject: str, backend: str, seconds: float, *, few: bool) -> Case:
        """What to measure.

        Args:
            subject: Of the benchmark; one of ours.
            backend: Of the server.
            seconds: Length of one measurement.
            few: So few episodes of what is held that it shows only that it runs.
        """
        episodes, programs, cpus, program = 1, 1, 0, trivial()
        if self.axis == EPISODES:
            episodes = self.value
        elif self.axis == PROGRAMS:
            episodes, programs = _EPISODES_OF_PROGRAMS, self.value
        elif self.axis == OBSERVATION:
            episodes, program = _EPISODES_OF_OBSERVATION, sized(self.value)
        else:
            episodes, cpus = _EPISODES_OF_CPUS, self.value
        if few:
            episodes = min(episodes, 8)
        settings = {"backend": backend}
        return Case(
            subject, program, episodes, seconds, settings=settings, programs=programs, cpus=cpus
        )


def points(names: list[str], *, few: bool) -> list[Point]:
    """All points of these axes, in the order in which they are measured."""
    return [
        Point(name, value)
        for name in names
        for value in (AXES[name].few if few else AXES[name].values)
    ]


# What can be measured so: ours, behind a server.
SUBJECTS = (subjects.SANDBOX, subjects.GROUPED, subjects.UNPROTECTED)
