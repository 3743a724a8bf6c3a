"""How much better than expected each play, turn and design was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True)
class Estimator:
    """How the plays of a step become advantages, one a turn.

    Attributes:
        name: A key of `ESTIMATORS`.
        credit: What of an episode's rewards a turn is held to: a key of `CREDITS`.
        gamma: Discount a turn, in (0, 1]; for `to_go`.
        std_floor: Least standard deviation to divide by, so that small differences in length
            among winning plays are not blown up; for `grpo` with rewards by turn.
    """

    name: str = "grpo"
    credit: str = "episode"
    gamma: float = 0.9
    std_floor: float = 0.1

    def __call__(self, groups: Sequence[Rewards], tokens: Sequence[Tokens]) -> list[Turns]:
        """Advantages of the plays of a step.

        Args:
            groups: By environment and play, one reward a turn, the episode's return last; None
                marks a lost play.
            tokens: By environment and play, how many tokens each turn decides.

        Returns:
            By environment and play, one advantage a turn; zeros for lost plays and, where the
            estimator compares plays of a group, for groups whose plays do not differ.
        """
        played = [self._group(rewards, n) for rewards, n in zip(groups, tokens, strict=True)]
        return ESTIMATORS[self.name](played, self)

    def _group(self, plays: Rewards, tokens: Tokens) -> _Group:
        credit = CREDITS[self.credit]
        returns = [credit(rewards, self.gamma) if rewards else [] for rewards in plays]
        whole = self.credit == "episode"
        ends = [rewards[-1] if whole else sum(rewards) for rewards in plays if rewards]
        level = len(ends) < 2 or bool(np.std(ends) < EPSILON)
        return _Group(returns, [len(n) for n in tokens], tokens, level, whole)


Rewards = Sequence[Sequence[float] | None]
Tokens = Sequence[Sequence[int]]
Turns = list[list[float]]


class _Group(NamedTuple):
    """The plays of one environment.

    Attributes:
        returns: By play and turn, what the turn is held to; empty for lost plays.
        lengths: Turns of each, lost plays too.
        tokens: As given.
        level: Whether its plays do not differ.
        whole: Whether an episode has one return, and not one a turn.
    """

    returns: Turns
    lengths: list[int]
    tokens: Tokens
    level: bool
    whole: bool

    def shaped(self, advantages: Turns) -> Turns:
        """With zeros for lost plays."""
        return [a or [0.0] * n for a, n in zip(advantages, self.lengths, strict=True)]

    def deviations(self, *, leave_out: bool = False) -> Turns:
        """Returns against their mean over the group, at the same turn where there is one a turn.

        Args:
            leave_out: Take the mean over the other plays only.
        """
        alive = [i for i, play in enumerate(self.returns) if play]
        result: Turns = [[0.0] * len(play) for play in self.returns]
        if self.level:
            return result
        for t in range(max(len(play) for play in self.returns)):
            present = [i for i in alive if len(self.returns[i]) > t]
            # A turn that a single play reached is held against the ends of the others.
            pool = alive if self.whole or len(present) < 2 else present
            held = {i: self.returns[i][min(t, len(self.returns[i]) - 1)] for i in pool}
            total = sum(held.values())
            for i in present:
                others = (total - held[i]) / (len(pool) - 1) if leave_out else total / len(pool)
                result[i][t] = held[i] - others
        return result


def episode_credit(rewards: Sequence[float], _: float) -> list[float]:
    """The episode's return, for each of its turns."""
    return [rewards[-1]] * len(rewards)


def turn_credit(rewards: Sequence[float], _: float) -> list[float]:
    """Each turn's own reward."""
    return list(rewards)


def credit_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted sum of the rewards from a turn on."""
    total, result = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        result.append(total)
    return result[::-1]


CREDITS: dict[str, Callable[[Sequence[float], float], list[float]]] = {
    "episode": episode_credit,
    "turn": turn_credit,
    "to_go": credit_to_go,
}


def grpo(groups: Sequence[_Group], settings: Estimator) -> list[Turns]:
    """Deviation from the group's mean, divided by the group's standard deviation.

    Source: arXiv:2402.03300.
    """
    result = []
    for group in groups:
        deviations = group.deviations()
        # An episode with one return counts once, whatever its length.
        counted = [d for play in deviations for d in (play[:1] if group.whole else play)]
        spread = float(np.std(counted or [0.0]))
        spread = max(spread, EPSILON if group.whole else settings.std_floor)
        result.append(group.shaped([[d / spread for d in play] for play in deviations]))
    return result


def centred(groups: Sequence[_Group], _: Estimator) -> list[Turns]:
    """Deviation from the group's mean; with the loss `dr_grpo`, that is Dr. GRPO.

    Source: arXiv:2503.20783 (no division by the standard deviation).
    """
    return [group.shaped(group.deviations()) for group in groups]


def rloo(groups: Sequence[_Group], _: Estimator) -> list[Turns]:
    """Deviation from the mean of the *other* plays of the group.

    Source: arXiv:2402.14740.
    """
    return [group.shaped(group.deviations(leave_out=True)) for group in groups]


def reinforce(groups: Sequence[_Group], _: Estimator) -> list[Turns]:
    """Returns, normalised over all tokens of the step: it needs no group.

    The divergence from the first weights is a term of TRL's loss (`update.kl_coef`) here, and not
    a part of the reward.

    Source: REINFORCE++, arXiv:2501.03262.
    """
    return _normalised(groups, [group.returns for group in groups])


def reinforce_baseline(groups: Sequence[_Group], _: Estimator) -> list[Turns]:
    """Deviation from the group's mean, normalised over all tokens of the step.

    Source: REINFORCE++-baseline, arXiv:2501.03262.
    """
    return _normalised(groups, [group.deviations() for group in groups])


ESTIMATORS: dict[str, Callable[[Sequence[_Group], Estimator], list[Turns]]] = {
    "grpo": grpo,
    "centred": centred,
    "rloo": rloo,
    "reinforce++": reinforce,
    "reinforce++-baseline": reinforce_baseline,
}


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, decay: float
) -> list[float]:
    """GAE of one episode: exponentially weighted sums of one-turn surprises.

    Nothing comes after an episode's last turn: an episode that was cut off returns 0, too.

    Args:
        rewards: One a turn.
        values: What a critic held the episode to be worth before each turn.
        gamma: Discount a turn, in (0, 1].
        decay: Lambda, in [0, 1]: 0 trusts the critic, 1 what came.

    Returns:
        One advantage a turn; with the turn's value added, what the critic should have said.

    Source: arXiv:1506.02438.
    """
    total, result = 0.0, []
    later = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        total = reward + gamma * later - value + gamma * decay * total
        result.append(total)
        later = value
    return result[::-1]


def _normalised(groups: Sequence[_Group], values: Sequence[Turns]) -> list[Turns]:
    """(value - mean) / std, both over the tokens that the agent decided."""
    flat, weights = [], []
    for group, plays in zip(groups, values, strict=True):
        for play, tokens in zip(plays, group.tokens, strict=True):
            # A lost play has turns, and no value.
            for value, n in zip(play, tokens, strict=False):
                flat.append(value)
                weights.append(n)
    if not sum(weights):
        return [group.shaped([[] for _ in group.lengths]) for group in groups]
    centre = float(np.average(flat, weights=weights))
    spread = float(np.sqrt(np.average(np.square(np.subtract(flat, centre)), weights=weights)))
    if spread < EPSILON:
        return [group.shaped([[] for _ in group.lengths]) for group in groups]
    return [
        group.shaped([[(value - centre) / spread for value in play] for play in plays])
        for group, plays in zip(groups, values, strict=True)
    ]


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
