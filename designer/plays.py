"""One episode of a gate: who plays it, and what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_api.types import Diagnostic, Episode, Outcome, StepResult

from designer.probes import Policy


@dataclass
class Play:
    """One episode of a gate, filled in while it is played.

    Attributes:
        actions: All that were sent; one more than rewards where the last one failed.
        observations: The first one, then one a step.
        listed: Valid actions that the reset's info lists under "actions".
        opening_info: That info.
        outcome: Of the last call; not COMPLETED if the program failed.
        fault: The service's failure; the play says nothing about the program then.
        steps: Steps completed.
    """

    program_id: str
    seed: int
    max_turns: int
    policy: Policy
    episode_id: str = ""
    actions: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    listed: tuple[str, ...] = ()
    opening_info: dict[str, Any] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    outcome: Outcome | None = None
    diagnostic: Diagnostic | None = None
    cut_bytes: int = 0
    fault: Exception | None = None

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def failed(self) -> bool:
        """Whether the program failed; False where the service did."""
        return self.fault is None and self.outcome is not Outcome.COMPLETED

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    def failure(self) -> str:
        """What the program did wrong, for people."""
        outcome = self.outcome.name if self.outcome else "no outcome"
        what = f"{outcome} ({self.diagnostic})" if self.diagnostic else outcome
        where = f" on action {self.actions[-1][:40]!r}" if self.actions else ""
        return f"seed {self.seed}{where}: {what}"

    def won(self, win_reward: float) -> bool:
        """Whether the episode terminated with at least this reward."""
        return self.terminated and bool(self.rewards) and self.rewards[-1] >= win_reward

    def begin(self, episode: Episode) -> None:
        """Take what the reset gave."""
        self.outcome, self.diagnostic = episode.outcome, episode.diagnostic
        self.fault = episode.error
        self.cut_bytes = episode.observation_cut_bytes
        if episode.ok and episode.error is None:
            self.episode_id = episode.episode_id
            self.observations.append(episode.observation)
            self.opening_info = episode.info
            self.listed = _listed(self.opening_info)

    def next_action(self) -> str | None:
        """What to do next; None where the play is over."""
        if self.ended or self.failed or self.fault is not None:
            return None
        return self.policy(self.observations[-1], self.steps)

    def take(self, action: str, result: StepResult) -> None:
        """Take what a step gave."""
        self.outcome, self.diagnostic, self.fault = result.outcome, result.diagnostic, result.error
        if result.error is not None:
            return
        self.actions.append(action)
        if not result.ok or result.reward is None:
            return
        self.observations.append(result.observation)
        self.rewards.append(result.reward)
        self.cut_bytes = max(self.cut_bytes, result.observation_cut_bytes)
        self.terminated, self.truncated = result.terminated, result.truncated


def _listed(info: dict) -> tuple[str, ...]:
    actions = info.get("actions")
    if isinstance(actions, list) and all(isinstance(a, str) and a for a in actions):
        return tuple(actions)
    return ()


def count_work(plays: Sequence[Play]) -> Counter[str]:
    """Episodes and steps of plays."""
    return Counter(
        episodes=sum(bool(play.episode_id) for play in plays),
        steps=sum(play.steps for play in plays),
    )
