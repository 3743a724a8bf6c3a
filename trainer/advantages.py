"""How much better than expected each play, turn and design was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

EPSILON = 1e-6


def designer_advantages(
    rewards: Sequence[float], skills: Sequence[str], scale: float
) -> list[float]:
    """(R - mean of R over the same skill) * scale; no division by a standard deviation.

    Source: arXiv:2608.19197.
    """
    by_skill: dict[str, list[float]] = defaultdict(list)
    for reward, skill in zip(rewards, skills, strict=True):
        by_skill[skill].append(reward)
    means = {skill: float(np.mean(values)) for skill, values in by_skill.items()}
    return [(reward - means[skill]) * scale for reward, skill in zip(rewards, skills, strict=True)]


def designer_scale(
    agent_rows: int, designer_rows: int, replay_steps: int, *, cap: float = 50.0
) -> float:
    """s = min(cap, N_agent / N_designer * k): few designs against many plays.

    Source: arXiv:2608.19197, cap 50.
    """
    return min(cap, agent_rows / designer_rows * replay_steps) if designer_rows else 0.0


def group_advantages(returns: Sequence[float | None]) -> list[float]:
    """(R - mean) / std within one environment's plays.

    Args:
        returns: Episode returns; None marks a lost play.

    Returns:
        One advantage a play; 0 for lost plays, and for all where there is no variance.
    """
    values = np.array([r for r in returns if r is not None], dtype=float)
    if len(values) < 2 or values.std() < EPSILON:
        return [0.0] * len(returns)
    centre, spread = values.mean(), values.std()
    return [0.0 if r is None else float((r - centre) / spread) for r in returns]


def turn_advantages(
    rewards: Sequence[Sequence[float] | None], *, gamma: float, std_floor: float
) -> list[list[float]]:
    """Discounted reward to go of each turn against the group's mean at the same turn index.

    Args:
        rewards: By play of one environment, one reward a turn; None marks a lost play.
        gamma: Discount a turn, in (0, 1].
        std_floor: Least standard deviation to divide by, so that small differences in
            length among winning plays are not blown up.

    Returns:
        One list a play, one advantage a turn; empty for lost plays, zeros for all where
        the plays' sums do not differ.
    """
    alive = [i for i, r in enumerate(rewards) if r]
    result = [[0.0] * len(r or ()) for r in rewards]
    if len(alive) < 2 or np.std([sum(rewards[i]) for i in alive]) < EPSILON:
        return result
    to_go = {i: _discounted(rewards[i], gamma) for i in alive}
    deviations: dict[int, list[float]] = {i: [] for i in alive}
    for t in range(max(len(g) for g in to_go.values())):
        present = [i for i in alive if len(to_go[i]) > t]
        # A turn that a single play reached is held against the ends of the others.
        pool = present if len(present) > 1 else alive
        baseline = float(np.mean([to_go[i][min(t, len(to_go[i]) - 1)] for i in pool]))
        for i in present:
            deviations[i].append(to_go[i][t] - baseline)
    spread = max(float(np.std([d for ds in deviations.values() for d in ds])), std_floor)
    for i in alive:
        result[i] = [d / spread for d in deviations[i]]
    return result


def turn_rewards(
    step_rewards: Sequence[float], episode_return: float, *, keep_steps: bool
) -> list[float]:
    """One reward a turn: the episode's return at the last, and before it the steps' own.

    Args:
        step_rewards: As the environment gave them.
        episode_return: Of the whole episode; replaces the last step's reward.
        keep_steps: Whether rewards before the last count, clipped to [-1, 1]; else 0.
    """
    before = [max(-1.0, min(1.0, r)) if keep_steps else 0.0 for r in step_rewards[:-1]]
    return [*before, episode_return]


def _discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    total, result = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        result.append(total)
    return result[::-1]
