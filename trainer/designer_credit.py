"""The designer's part of a step: what its environments earned, and the rows that it trains on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainer.advantages import designer_advantages, designer_scale
from trainer.design_config import DesignConfig
from trainer.diversity import novelties
from trainer.environments import ActiveEnvironment, DesignSample
from trainer.rewards import designer_reward, learnable
from trainer.rows import DESIGNER, Row
from trainer.statistics import mean, std

SKILL_AVERAGE_DECAY = 0.9


class DesignerCredit:
    """Rewards environments at the end of their cycle.

    Args:
        design: Which reward, and how it is weighed.
        trains: Whether it makes rows at all; rewards are measured in any case.
    """

    def __init__(self, design: DesignConfig, *, trains: bool) -> None:
        self._design = design
        self._trains = trains
        # Slow averages of the plain returns, by skill.
        self.skill_averages: dict[str, float] = {}

    def rewards(
        self, written: Sequence[ActiveEnvironment], earlier: Sequence[ActiveEnvironment]
    ) -> list[float]:
        """What each environment earned; the averages of their skills move on.

        Args:
            written: Environments whose returns and regret are known.
            earlier: Those of earlier cycles, for what is new.
        """
        design = self._design
        novelty = [0.0] * len(written)
        if design.novelty_weight:
            novelty = novelties([e.source for e in written], [e.source for e in earlier])
        rewards = []
        for environment, new in zip(written, novelty, strict=True):
            average = self.skill_averages.get(environment.skill, 0.0)
            reward = designer_reward(
                design.reward, environment.measure(average), hinted_floor=design.hinted_floor
            )
            # Only what earns anything earns more by being new: noise is new, too.
            rewards.append(reward * (1 - design.novelty_weight * (1 - new)))
        for environment in written:
            average = self.skill_averages.get(environment.skill, environment.mean_return)
            self.skill_averages[environment.skill] = (
                SKILL_AVERAGE_DECAY * average + (1 - SKILL_AVERAGE_DECAY) * environment.mean_return
            )
        return rewards

    def rows(
        self,
        written: Sequence[ActiveEnvironment],
        rewards: Sequence[float],
        agent_rows: int,
    ) -> list[Row]:
        """Rows of the completions that wrote the environments; none where nothing trains.

        Args:
            written: Environments.
            rewards: What each earned.
            agent_rows: Rows of the agent in the same update, for the scale.
        """
        design = self._design
        samples = sum(len(environment.samples) for environment in written)
        if not self._trains or not samples:
            return []
        scale = designer_scale(
            agent_rows, samples, design.replay_steps, cap=design.advantage_scale_cap
        )
        advantages = designer_advantages(rewards, [e.skill for e in written], scale)
        return [
            _row(sample, advantage, stale=design.replay_steps > 1)
            for environment, advantage in zip(written, advantages, strict=True)
            for sample in environment.samples
            if advantage
        ]


def reward_metrics(
    written: Sequence[ActiveEnvironment], rewards: Sequence[float]
) -> dict[str, Any]:
    """What a cycle's environments showed, by the names of a run's metrics."""
    regrets = [e.regret for e in written]
    return {
        "designer/mean_reward": mean(rewards),
        "designer/reward_std": std(rewards),
        "designer/reward_n": len(rewards),
        "designer/rewards": list(rewards),
        "designer/learnable_share": mean([learnable(e.mean_return) for e in written]),
        "designer/learnable_n": sum(learnable(e.mean_return) for e in written),
        "designer/families": dict(Counter(e.family for e in written)),
        "designer/regimes": dict(Counter(e.regime for e in written)),
        "regret/mean": mean(regrets),
        "regret/se": std(regrets) / math.sqrt(len(regrets)),
    }


def _row(sample: DesignSample, advantage: float, *, stale: bool) -> Row:
    return Row(
        role=DESIGNER,
        prompt_ids=sample.prompt_ids,
        completion_ids=sample.completion_ids,
        mask=sample.decisions,
        advantages=[advantage] * len(sample.completion_ids),
        logprobs=sample.logprobs,
        allowed=sample.allowed,
        stale=stale,
    )
