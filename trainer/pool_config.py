"""Settings of a frozen pool of environments, and of the difficulties in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

SOURCE_KINDS = ("archive", "folder", "file", "suite")


@dataclass(frozen=True)
class PoolSource:
    """Where some environments of a pool are from.

    Attributes:
        kind: `archive` (a run's archive.sqlite), `folder` (of programs), `file` (an exported
            pool: JSON lines or Parquet) or `suite` (one that ships with the package).
        name: Its path, or the name of the suite.
        weight: Share of the draws, relative to the other sources.
    """

    kind: str
    name: str
    weight: float = 1.0

    @property
    def label(self) -> str:
        """As it is written in the configuration, without the weight."""
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> PoolSource:
        """Read `KIND:NAME` or `KIND:NAME=WEIGHT`.

        Raises:
            ValueError: Saying what is wrong with it.
        """
        kind, colon, rest = text.partition(":")
        name, equals, tail = rest.rpartition("=")
        weight = 1.0
        if equals and "/" not in tail:
            try:
                weight = float(tail)
            except ValueError:
                raise ValueError(f"its weight {tail!r} is no number") from None
        else:
            name = rest
        if not colon or kind not in SOURCE_KINDS:
            raise ValueError(
                f"it must begin with one of {', '.join(k + ':' for k in SOURCE_KINDS)}"
            )
        if not name:
            raise ValueError("it names nothing")
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"its weight is {weight:g}; it must be above 0")
        return cls(kind, name, weight)


@dataclass(frozen=True)
class Knob:
    """An argument by which a program is made harder.

    Attributes:
        name: Of an argument of the constructor, or an option of reset.
        low: Easiest value.
        high: Hardest value; below `low` where smaller is harder.
    """

    name: str
    low: int
    high: int

    @property
    def values(self) -> tuple[int, ...]:
        """Its values, the easiest first."""
        step = 1 if self.high >= self.low else -1
        return tuple(range(self.low, self.high + step, step))

    @classmethod
    def parse(cls, text: str) -> Knob:
        """Read `NAME=LOW..HIGH`.

        Raises:
            ValueError: Saying what is wrong with it.
        """
        name, _, span = text.partition("=")
        low, dots, high = span.partition("..")
        try:
            knob = cls(name.strip(), int(low), int(high))
        except ValueError:
            knob = None
        if knob is None or not dots or not knob.name.isidentifier():
            raise ValueError("it must be NAME=LOW..HIGH with whole numbers, as in size=3..12")
        return knob


@dataclass(frozen=True)
class PoolConfig:
    """Environments to train on that nobody designs, for `run.mode=fixed`.

    Attributes:
        sources: `KIND:NAME` or `KIND:NAME=WEIGHT`, with the kinds `archive`, `folder`, `file` and
            `suite`. A draw takes a source by its weight, then one of its programs evenly.
    """

    sources: tuple[str, ...] = ()

    @property
    def parsed(self) -> list[PoolSource]:
        """The sources, read."""
        return [PoolSource.parse(text) for text in self.sources]

    def problem(self) -> str:
        """What is wrong with a setting, in a sentence; empty if nothing."""
        return _unreadable("pool.sources", self.sources, PoolSource.parse)


@dataclass(frozen=True)
class DifficultyConfig:
    """Windows of difficulty, one for each environment of a pool that has difficulties.

    Attributes:
        knobs: `NAME=LOW..HIGH`: programs of a pool whose constructor takes an argument of that
            name have these difficulties. Suites bring theirs.
        start: Hardest difficulty at first, from 0, the easiest of all.
        width: Difficulties in a window, once it has grown.
        tries: Plays at the top of a window before it may move.
        promote_at: Share of them that must be won for the window to move up by one.
    """

    knobs: tuple[str, ...] = ()
    start: int = 0
    width: int = 4
    tries: int = 8
    promote_at: float = 0.9

    @property
    def parsed(self) -> list[Knob]:
        """The knobs, read."""
        return [Knob.parse(text) for text in self.knobs]

    def problem(self) -> str:
        """What is wrong with a setting, in a sentence; empty if nothing."""
        if not 0 < self.promote_at <= 1:
            return f"difficulty.promote_at is {self.promote_at}; it must be in (0, 1]"
        return _unreadable("difficulty.knobs", self.knobs, Knob.parse)


POOL_MINIMUM = {"difficulty.start": 0, "difficulty.width": 1, "difficulty.tries": 1}


def _unreadable(key: str, texts: tuple[str, ...], parse: object) -> str:
    assert callable(parse)
    for text in texts:
        try:
            parse(text)
        except ValueError as error:
            return f"{key}: {text!r} cannot be read: {error}"
    return ""
