"""What an episode and an environment are worth.

Source: arXiv:2608.19197 for the formulas; one function each, by the name a configuration
uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.student import t_quantile

REGRET_SCALE = 0.15
REGRET_WEIGHT = 0.4
PLATEAU_WEIGHT = 0.6
PLATEAU = (0.4, 0.6)
PLATEAU_RAMP = 0.25
ELIGIBLE = (0.05, 0.95)
# Fewer pairs say nothing of a hint: six that all differ to one side are 1 in 64 by chance.
REGIME_PAIRS = 6
LEARNABLE = (0.2, 0.8)


@dataclass(frozen=True)
class EnvironmentMeasure:
    """What the plays of one environment showed.

    Attributes:
        regret: max(0, hinted mean - plain mean), over the complete pairs of the step at
            which the environment was written.
        return_hinted: Mean hinted return at that step; NaN if all plays were lost.
        returns: Plain returns over all replays.
        skill_average: Slow moving average of the skill's mean return before these plays.
    """

    regret: float
    return_hinted: float
    returns: Sequence[float]
    skill_average: float = 0.0

    @property
    def mean_return(self) -> float:
        """w: mean plain return over all replays; NaN of none."""
        return sum(self.returns) / len(self.returns) if self.returns else math.nan


def episode_return(last_reward: float, *, terminated: bool) -> float:
    """The last reward, in [-1, 1], of an episode that terminated; 0 of a truncated one."""
    return max(-1.0, min(1.0, last_reward)) if terminated else 0.0


def hint_regret(mean_plain: float, mean_hinted: float) -> float:
    """What the hint would have gained: max(0, hinted - plain)."""
    return max(0.0, mean_hinted - mean_plain)


def plateau(mean_return: float) -> float:
    """1 on [0.4, 0.6], falling linearly to 0 over a ramp of 0.25 on either side."""
    low, high = PLATEAU
    outside = max(low - mean_return, mean_return - high, 0.0)
    return max(0.0, 1.0 - outside / PLATEAU_RAMP)


def eligible(mean_return: float, return_hinted: float, *, hinted_floor: float) -> bool:
    """Whether an environment can earn its designer anything.

    It must be neither hopeless nor mastered without the hint, and winnable with it: an
    environment that only its password opens is no curriculum.
    """
    return ELIGIBLE[0] <= mean_return <= ELIGIBLE[1] and return_hinted > hinted_floor


def learnable(mean_return: float) -> bool:
    """Whether plays of the environment both win and lose often enough to learn from."""
    return LEARNABLE[0] <= mean_return <= LEARNABLE[1]


def hint_effect(regret: float, regret_error: float, pairs: int) -> int:
    """What the plays show of a hint: 1 it helps, -1 it misleads, 0 they leave it open.

    It helps or misleads where the 95% interval of the regret, with Student's quantile for
    that many pairs, lies on one side of zero. Fewer than `REGIME_PAIRS` leave it open: a few
    plays that happen to agree have a standard error of 0.

    Args:
        regret: Signed paired difference, hinted minus plain; NaN if never measured.
        regret_error: Its standard error.
        pairs: Complete pairs behind both.
    """
    if pairs < REGIME_PAIRS:
        return 0
    reach = t_quantile(pairs - 1) * regret_error
    return int(regret - reach > 0) - int(regret + reach < 0)


def regime(mean_return: float, regret: float, regret_error: float, pairs: int) -> str:
    """Name what an environment is to the agent now.

    Args:
        mean_return: Plain mean return.
        regret: Signed paired difference, hinted minus plain.
        regret_error: Its standard error.
        pairs: Complete pairs behind both.

    Returns:
        `misleading_hint` where the hint misleads (`hint_effect`), whatever the mean;
        `mastered`; `password_only` where it is never won but the hint helps;
        `intractable` where it is never won and the hint does not; or `frontier`.
    """
    effect = hint_effect(regret, regret_error, pairs)
    if effect < 0:
        return "misleading_hint"
    if mean_return > ELIGIBLE[1]:
        return "mastered"
    if mean_return < ELIGIBLE[0]:
        return "password_only" if effect > 0 else "intractable"
    return "frontier"


def regret_term(regret: float) -> float:
    """The regret in units of 0.15, held to [0, 1]."""
    return min(1.0, max(0.0, regret / REGRET_SCALE))


def blend_reward(measure: EnvironmentMeasure) -> float:
    """0.4 of the scaled regret plus 0.6 of the difficulty anchor."""
    anchor = plateau(measure.mean_return)
    return REGRET_WEIGHT * regret_term(measure.regret) + PLATEAU_WEIGHT * anchor


def regret_reward(measure: EnvironmentMeasure) -> float:
    """The regret alone."""
    return measure.regret


def plateau_reward(measure: EnvironmentMeasure) -> float:
    """The difficulty anchor alone."""
    return plateau(measure.mean_return)


def learning_potential_reward(measure: EnvironmentMeasure) -> float:
    """Distance of the mean return from the skill's slow moving average."""
    return abs(measure.mean_return - measure.skill_average)


def variance_reward(measure: EnvironmentMeasure) -> float:
    """Peaked where the returns' variance is 0.25, a fair coin's."""
    centre = measure.mean_return
    variance = sum((r - centre) ** 2 for r in measure.returns) / len(measure.returns)
    return math.exp(-((variance - 0.25) ** 2) / 0.02)


def learnability_reward(measure: EnvironmentMeasure) -> float:
    """p(1 - p) of the share of plays that won."""
    share = sum(r > 0 for r in measure.returns) / len(measure.returns)
    return share * (1 - share)


REWARDS = {
    "blend": blend_reward,
    "regret": regret_reward,
    "plateau": plateau_reward,
    "learning_potential": learning_potential_reward,
    "variance": variance_reward,
    "learnability": learnability_reward,
}


def designer_reward(name: str, measure: EnvironmentMeasure, *, hinted_floor: float) -> float:
    """The named reward, or 0 for an environment that is not eligible for any.

    Raises:
        KeyError: If there is no reward of that name.
    """
    reward = REWARDS[name]
    if not measure.returns:
        return 0.0
    if not eligible(measure.mean_return, measure.return_hinted, hinted_floor=hinted_floor):
        return 0.0
    return reward(measure)
