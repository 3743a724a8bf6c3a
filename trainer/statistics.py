"""Means, proportions and paired differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.student import Z95


class Interval(NamedTuple):
    """A 95% interval; both ends NaN where there is nothing to measure."""

    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); NaN below two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; NaN below two values."""
    return std(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def mean_interval(values: Sequence[float]) -> Interval:
    """Normal 95% interval of a mean."""
    centre, error = mean(values), standard_error(values)
    return Interval(centre - Z95 * error, centre + Z95 * error)


def bootstrap_interval(
    values: Sequence[float], *, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile bootstrap 95% interval of a mean; right for skewed or bounded returns."""
    if not len(values):
        return Interval(math.nan, math.nan)
    data = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(0, len(data), (resamples, len(data)))
    low, high = np.quantile(data[picks].mean(axis=1), (0.025, 0.975))
    return Interval(float(low), float(high))


def wilson_interval(successes: int, trials: int) -> Interval:
    """Wilson 95% score interval of a proportion.

    Source: E. B. Wilson, "Probable inference", JASA 22 (1927).
    """
    if trials == 0:
        return Interval(math.nan, math.nan)
    share, z2 = successes / trials, Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) * Z95
    half /= 1 + z2 / trials
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def paired_difference(
    left: Sequence[float | None], right: Sequence[float | None]
) -> tuple[float, float, int]:
    """Mean of `right - left` over complete pairs, its standard error, and their number.

    Args:
        left: Values by pair; None marks a lost one, which loses its pair.
        right: Values by pair, in the same order.

    Raises:
        ValueError: If the lengths differ.
    """
    differences = [
        b - a for a, b in zip(left, right, strict=True) if a is not None and b is not None
    ]
    return mean(differences), standard_error(differences), len(differences)
