"""The agent's part of a step: from plays to rows with an advantage a token."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.advantages import Estimator, generalised_advantages, turn_rewards
from trainer.config import UpdateConfig
from trainer.critic import Critic
from trainer.rows import AGENT, Row
from trainer.trajectories import Trajectory


class AgentCredit:
    """Turns groups of plays into rows.

    Args:
        update: How episodes are credited.
        critic: For the estimator `ppo`.
    """

    def __init__(self, update: UpdateConfig, critic: Critic | None = None) -> None:
        self._update = update
        self._critic = critic
        self._estimator = (
            # PPO's advantages are each turn's own, and normalised over the step.
            Estimator("reinforce++", "turn")
            if critic is not None
            else Estimator(update.estimator, update.credit, update.gamma, update.std_floor)
        )

    def rows(
        self, groups: Sequence[Sequence[Trajectory]]
    ) -> tuple[list[Row], dict[str, float | None]]:
        """Rows of all groups that teach anything.

        Args:
            groups: Plays that are held against each other; lost ones make no row.

        Returns:
            The rows, and metrics by name. A critic has learned from the plays by then.
        """
        metrics: dict[str, float | None] = {}
        rewards = [[self._turn_rewards(play) for play in plays] for plays in groups]
        if self._critic is not None:
            rewards = self._surprises(self._critic, groups, rewards, metrics)
        advantages = self._estimator(
            rewards, [[play.decided() for play in plays] for plays in groups]
        )
        rows: list[Row] = []
        still = 0
        for plays, by_play in zip(groups, advantages, strict=True):
            if not any(a for turns in by_play for a in turns):
                still += 1
                continue
            rows += [
                _row(play, turns)
                for play, turns in zip(plays, by_play, strict=True)
                if not play.lost and any(play.decisions)
            ]
        metrics["groups/no_variance_share"] = still / len(groups) if groups else math.nan
        return rows, metrics

    def _surprises(
        self,
        critic: Critic,
        groups: Sequence[Sequence[Trajectory]],
        rewards: Sequence[Sequence[list[float] | None]],
        metrics: dict[str, float | None],
    ) -> list[list[list[float] | None]]:
        """What each turn brought beyond the critic's expectation, which it then learns from."""
        played = [
            (play, earned)
            for plays, by_play in zip(groups, rewards, strict=True)
            for play, earned in zip(plays, by_play, strict=True)
            if earned is not None and play.spans
        ]
        surprises: dict[int, list[float]] = {}
        if played:
            states = critic.states([play for play, _ in played])
            values = critic.values(states)
            targets = []
            for (play, earned), said in zip(played, values, strict=True):
                gained = generalised_advantages(
                    earned, said, gamma=self._update.gamma, decay=self._update.gae_lambda
                )
                surprises[id(play)] = gained
                targets.append([a + b for a, b in zip(gained, said, strict=True)])
            metrics["critic/explained_variance"] = critic.fit(states, targets)
        return [[surprises.get(id(play)) for play in plays] for plays in groups]

    def _turn_rewards(self, play: Trajectory) -> list[float] | None:
        if play.episode_return is None:
            return None
        rewards = [turn.reward or 0.0 for turn in play.turns]
        return turn_rewards(rewards, play.episode_return, keep_steps=self._update.step_rewards)


def _row(trajectory: Trajectory, turn_advantages: Sequence[float]) -> Row:
    advantages = [0.0] * len(trajectory.completion_ids)
    for (start, end), advantage in zip(trajectory.spans, turn_advantages, strict=True):
        advantages[start:end] = [advantage] * (end - start)
    return Row(
        role=AGENT,
        prompt_ids=trajectory.prompt_ids,
        completion_ids=trajectory.completion_ids,
        mask=trajectory.decisions,
        advantages=advantages,
        logprobs=trajectory.logprobs,
        allowed=trajectory.allowed,
    )
