"""95% intervals of means and shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.student import Z95, t_quantile


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
    scale = 1 + Z95**2 / n
    center = (p + Z95**2 / (2 * n)) / scale
    half = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)) / scale
    return Estimate(n, p, max(0.0, center - half), min(1.0, center + half))
