"""Measures the points of the axes, in rounds; goes on where it was interrupted."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spadework.benchmark import rounds
from spadework.benchmark.case import Case, Figures
from spadework.benchmark.report import Machine
from spadework.console import CommandError
from spadework.scale.axes import Point


@dataclass(frozen=True)
class Setting:
    """What figures must have in common to be in one growth."""

    subject: str
    backend: str
    seconds: float
    few: bool


@dataclass(frozen=True)
class Sample:
    """What one trial gave."""

    point: Point
    round: int
    episodes: int
    figures: Figures


@dataclass
class Growth:
    """All that was measured so far.

    Attributes:
        command: What somebody types to have the same.
        took_s: Of all its trials, interruptions left out.
    """

    setting: Setting
    command: str
    machine: Machine | None = None
    samples: list[Sample] = field(default_factory=list)
    took_s: float = 0.0

    def has(self, point: Point, number: int) -> bool:
        return any(s.point == point and s.round == number for s in self.samples)

    def of(self, axis: str) -> list[Sample]:
        """Samples of an axis that have figures."""
        return [s for s in self.samples if s.point.axis == axis and not s.figures.failed]

    @property
    def failures(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.figures.failed]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Growth:
        machine = value["machine"]
        return cls(
            setting=Setting(**value["setting"]),
            command=value["command"],
            machine=None if machine is None else Machine(**machine),
            samples=[
                Sample(Point(**s["point"]), s["round"], s["episodes"], Figures(**s["figures"]))
                for s in value["samples"]
            ],
            took_s=value["took_s"],
        )


def load(file: Path) -> Growth | None:
    """What a file holds; None if there is none.

    Raises:
        CommandError: If it holds something else.
    """
    try:
        return Growth.from_json(json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{file} holds no figures of growth; remove it, or name another folder"
        ) from error


def measure(
    growth: Growth,
    wanted: Sequence[Point],
    count: int,
    *,
    on_trial: Callable[[Case], None],
    on_done: Callable[[], None],
) -> None:
    """Measure what is missing, a round of all points after the other.

    Args:
        growth: Gets the samples.
        wanted: In their order.
        count: Rounds.
        on_trial: Called before each trial.
        on_done: Called after each point, those that were there as well.
    """
    load_before = os.getloadavg()[0]
    setting = growth.setting
    for number in range(1, count + 1):
        for point in wanted:
            if not growth.has(point, number):
                started = time.monotonic()
                case = point.case(
                    setting.subject, setting.backend, setting.seconds, few=setting.few
                )
                on_trial(case)
                figures = rounds.trial(case)
                growth.samples.append(Sample(point, number, case.episodes, figures))
                growth.took_s += time.monotonic() - started
                growth.machine = rounds.machine(load_before, growth.took_s)
            on_done()
