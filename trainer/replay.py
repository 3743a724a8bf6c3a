"""Which earlier environments are played again: evenly, or where there is most to learn."""

from __future__ import annotations

import random
from collections.abc import Sequence


def level_weights(
    scores: Sequence[float], ages: Sequence[int], *, temperature: float, staleness: float
) -> list[float]:
    """Probabilities of levels to be played again.

    Args:
        scores: How much each promises, any unit; the larger, the more. Ranks alone count.
        ages: Training steps since each was last played, at least 0.
        temperature: Of the ranks, above 0: small for the best alone, large for all alike.
        staleness: Share of the probability, in [0, 1], that goes by age: a score grows old.

    Returns:
        One probability a level; they sum to 1.

    Source: prioritized level replay, arXiv:2010.03934, with rank prioritization.
    """
    if not scores:
        return []
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    by_rank = [0.0] * len(scores)
    for rank, index in enumerate(order, 1):
        by_rank[index] = (1 / rank) ** (1 / temperature)
    total, oldest = sum(by_rank), sum(ages)
    by_age = [age / oldest for age in ages] if oldest else [1 / len(ages)] * len(ages)
    return [
        (1 - staleness) * weight / total + staleness * age
        for weight, age in zip(by_rank, by_age, strict=True)
    ]


def draw_levels(weights: Sequence[float], count: int, rng: random.Random) -> list[int]:
    """Draw levels one after another, each at most once.

    Args:
        weights: As from `level_weights`.
        count: How many, at most as many as there are.
        rng: Source of chance.

    Returns:
        Their indices, in the order drawn.
    """
    left = list(range(len(weights)))
    drawn = []
    for _ in range(min(count, len(left))):
        remaining = [weights[index] for index in left]
        if not sum(remaining):
            remaining = [1.0] * len(left)
        (position,) = rng.choices(range(len(left)), remaining)
        drawn.append(left.pop(position))
    return drawn
