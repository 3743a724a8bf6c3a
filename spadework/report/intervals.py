"""95% intervals of means and shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_Z = 1.959964
# Student's t at 97.5% for 1 and 2 degrees of freedom, where the expansion below is poor.
_T_SMALL = {1: 12.7062, 2: 4.3027}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or share with its 95% interval; no interval where `n` allows none."""

    n: int
    value: float
    low: float | None
    high: float | None

    def overlaps(self, other: Estimate) -> bool | None:
        """Whether the intervals overlap; None where one of them is missing."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high


def t_quantile(degrees: int) -> float:
    """97.5% quantile of Student's t, by the Cornish-Fisher expansion around the normal.

    Exact to 0.01 from 3 degrees of freedom on.

    Source: Abramowitz and Stegun, 26.7.5.
    """
    if degrees in _T_SMALL:
        return _T_SMALL[degrees]
    z, v = _Z, float(degrees)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def from_moments(mean: float, std: float | None, n: float | None) -> Estimate:
    """Interval of a mean from the sample standard deviation and the sample size."""
    count = int(n or 0)
    if std is None or count < 2:
        return Estimate(count, mean, None, None)
    half = t_quantile(count - 1) * std / math.sqrt(count)
    return Estimate(count, mean, mean - half, mean + half)


def of_mean(values: Sequence[float]) -> Estimate | None:
    """Mean of a sample with Student's interval; None for an empty sample."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Estimate(1, mean, None, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return from_moments(mean, math.sqrt(variance), len(values))


def of_share(hits: int, n: int) -> Estimate | None:
    """Share with Wilson's interval, which stays inside [0, 1]; None for n = 0."""
    if n <= 0:
        return None
    p = hits / n
    scale = 1 + _Z**2 / n
    center = (p + _Z**2 / (2 * n)) / scale
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2)) / scale
    return Estimate(n, p, max(0.0, center - half), min(1.0, center + half))
