"""Curves through measured points: power laws, straight lines, and lines with a bend.

What is fitted is a whole (CPU time of all, memory of all) over a size. Errors of a measurement
are a share of it, so all fits weigh relative errors: a law that is 10% off is as wrong at one
episode as at 5,000.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.student import t_quantile

# A bend is one only if it explains the points so much better (difference of AICc).
_BEND_GAIN = 6.0
# A slope above one by more than this, with its whole interval, is worse than linear.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Slope:
    """A power law's exponent, with its 95% interval; y = scale * x^value."""

    value: float
    low: float
    high: float
    scale: float

    @property
    def verdict(self) -> str:
        """Whether growth is worse than linear, as far as the interval can tell."""
        if self.low > 1 + TOLERANCE:
            return "worse"
        return "not worse" if self.high <= 1 + TOLERANCE else "open"


@dataclass(frozen=True)
class Line:
    """A fixed part, and a price for each one up to the bend and one beyond it.

    Attributes:
        fixed: What there is to pay at size 0.
        each: For one more, below the bend.
        bend: Where the price changes; None where it does not.
        beyond: For one more, above the bend; `each` where there is none.
        error: Root mean square of the relative errors.
    """

    fixed: float
    each: float
    bend: float | None
    beyond: float
    error: float

    def at(self, x: float) -> float:
        """The law's value, beyond what was measured as well."""
        if self.bend is None:
            return self.fixed + self.each * x
        return self.fixed + self.each * min(x, self.bend) + self.beyond * max(0.0, x - self.bend)

    @property
    def half(self) -> float | None:
        """The size from which on growth weighs more than the fixed part; None: never."""
        if self.fixed <= 0 or self.each <= 0:
            return None
        return self.fixed / self.each


def slope(xs: Sequence[float], ys: Sequence[float]) -> Slope:
    """Fit a power law: a straight line through the logarithms.

    Raises:
        ValueError: If there are fewer than three points, fewer than two sizes, or one is not
            positive.
    """
    if len(xs) < 3 or len(set(xs)) < 2:
        raise ValueError("a slope takes three points at two sizes or more")
    if min(*xs, *ys) <= 0:
        raise ValueError("a power law takes positive values")
    u, v = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_u, mean_v = _mean(u), _mean(v)
    spread = math.fsum((a - mean_u) ** 2 for a in u)
    value = math.fsum((a - mean_u) * (b - mean_v) for a, b in zip(u, v, strict=True)) / spread
    at_one = mean_v - value * mean_u
    left = math.fsum((b - at_one - value * a) ** 2 for a, b in zip(u, v, strict=True))
    degrees = len(xs) - 2
    half = t_quantile(degrees) * math.sqrt(left / degrees / spread)
    return Slope(value, value - half, value + half, math.exp(at_one))


def end_slope(xs: Sequence[float], ys: Sequence[float]) -> Slope | None:
    """The slope over the largest sizes: the last decade, or the last three of them.

    None where there are fewer than three sizes.
    """
    sizes = sorted(set(xs))
    if len(sizes) < 3:
        return None
    least = min(sizes[-1] / 10, sizes[-3])
    last = [(x, y) for x, y in zip(xs, ys, strict=True) if x >= least]
    return slope(*zip(*last, strict=True)) if len(last) >= 3 else None


def line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Fit a line, with a bend if the points ask for one; no part of it is negative.

    Raises:
        ValueError: If there are fewer than two sizes, or a value is not positive.
    """
    sizes = sorted(set(xs))
    if len(sizes) < 2 or min(ys) <= 0:
        raise ValueError("a line takes two sizes or more, and positive values")
    best = _fit(xs, ys, None)
    # A bend needs two sizes on each side of it.
    candidates = [
        place
        for low, high in itertools.pairwise(sizes[1:-1])
        for place in (low, math.sqrt(low * high), high)
        if sizes[1] <= place <= sizes[-2]
    ]
    bent = [_fit(xs, ys, place) for place in dict.fromkeys(candidates)]
    if bent:
        least = min(bent, key=lambda law: law.error)
        if _aicc(best.error, len(xs), 2) - _aicc(least.error, len(xs), 4) > _BEND_GAIN:
            return least
    return best


def _fit(xs: Sequence[float], ys: Sequence[float], bend: float | None) -> Line:
    """Least squares of relative errors, no coefficient below zero."""
    rows = [
        (1.0, x) if bend is None else (1.0, min(x, bend), max(0.0, x - bend))
        for x in map(float, xs)
    ]
    weighed = [[part / y for part in row] for row, y in zip(rows, ys, strict=True)]
    width = len(rows[0])
    best: tuple[float, list[float]] = (math.inf, [0.0] * width)
    for used in itertools.chain.from_iterable(
        itertools.combinations(range(width), count) for count in range(1, width + 1)
    ):
        found = _solve([[row[i] for i in used] for row in weighed])
        if found is None or min(found) < 0:
            continue
        whole = [0.0] * width
        for i, value in zip(used, found, strict=True):
            whole[i] = value
        error = _mean([(_dot(row, whole) - 1) ** 2 for row in weighed])
        best = min(best, (error, whole))
    error, whole = best
    fixed, each = whole[0], whole[1]
    return Line(fixed, each, bend, whole[-1], math.sqrt(error))


def _solve(rows: list[list[float]]) -> list[float] | None:
    """The x with the least |rows x - 1|^2, by normal equations; None where it is not one."""
    width = len(rows[0])
    scale = [math.sqrt(math.fsum(row[i] ** 2 for row in rows)) or 1.0 for i in range(width)]
    table = [
        [math.fsum(row[i] * row[j] for row in rows) / scale[i] / scale[j] for j in range(width)]
        + [math.fsum(row[i] for row in rows) / scale[i]]
        for i in range(width)
    ]
    for i in range(width):
        pivot = max(range(i, width), key=lambda k: abs(table[k][i]))
        table[i], table[pivot] = table[pivot], table[i]
        if abs(table[i][i]) < 1e-12:
            return None
        for k in range(width):
            if k != i:
                factor = table[k][i] / table[i][i]
                table[k] = [a - factor * b for a, b in zip(table[k], table[i], strict=True)]
    return [table[i][width] / table[i][i] / scale[i] for i in range(width)]


def _aicc(error: float, points: int, parameters: int) -> float:
    """Akaike's criterion with its correction for few points, of a root mean square error."""
    if points <= parameters + 2:
        return math.inf
    # Below this, points lie on the line as well as numbers can say.
    square = max(error, 1e-9) ** 2
    count = parameters + 1
    return points * math.log(square) + 2 * count + 2 * count * (count + 1) / (points - count - 1)


def _dot(row: Sequence[float], column: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(row, column, strict=True))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
