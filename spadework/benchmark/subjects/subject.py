"""What every competitor does."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from spadework.benchmark.case import BenchmarkProgram, Case


class NotApplicableError(Exception):
    """The subject has no such thing; the message says why."""


class Subject(ABC):
    """Steps many episodes of one program.

    `open` once, then `start`, `step_all` as often as wanted, `end_all`; `close` at the end.

    Attributes:
        item_s: Seconds from a batch's start to each of its results, of the timed batches.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.item_s: list[float] = []

    @property
    def servers(self) -> Collection[int]:
        """Ids of the processes that are the server's side."""
        return ()

    def open(self) -> None:  # noqa: B027
        """Start what there is before any program; counted as no cost of an episode."""

    @abstractmethod
    def start(self, episodes: int) -> None:
        """Start episodes, up to the first observation of each."""

    @abstractmethod
    def step_all(self, *, timed: bool = False) -> int:
        """Take a step in each episode, and begin those anew that ended; returns the steps taken.

        Args:
            timed: Note each item's time in `item_s`.
        """

    def register(self, programs: Sequence[BenchmarkProgram]) -> None:
        """Take in the programs that `start` spreads its episodes over.

        Raises:
            NotApplicableError: If it has no programs to take in.
        """
        raise NotApplicableError("it has no programs")

    def introduce(self, program: BenchmarkProgram) -> None:
        """Take in a program, new or not, up to the first observation of an episode.

        Raises:
            NotApplicableError: If it has no programs.
        """
        raise NotApplicableError("it has no way to take in a program")

    def end_all(self) -> None:  # noqa: B027
        """End all episodes."""

    def close(self) -> None:  # noqa: B027
        """Stop what `open` started; calling it without is fine."""

    def item_percentile_s(self, percent: float) -> float | None:
        """A percentile of the times of items; None where none were taken."""
        if not self.item_s:
            return None
        ordered = sorted(self.item_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def action(self, episode: int, turn: int) -> str:
        """The action of an episode's turn: all of them, each in its turn."""
        actions = self.case.program.actions
        return actions[(episode + turn) % len(actions)]

    def note_batch(self, started: float, items: int) -> None:
        """Note the time of a batch whose results came all at once."""
        self.item_s += [time.perf_counter() - started] * items
