"""What is played, and the record of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer.generation import Completion
from trainer.grammar import AllowedTokens

PLAIN, HINTED = "plain", "hinted"


@dataclass(frozen=True)
class Play:
    """One episode to be played.

    Attributes:
        env_id: Environment in the archive.
        program_id: Program at the server.
        seed: Of the episode; both arms of a pair share it.
        arm: `plain` or `hinted`.
        hint: Appended to the first observation of a hinted play.
        max_turns: Turn cap.
        actions: Valid actions, where the environment itself lists none.
        options: Constructor arguments, or options of reset.
    """

    env_id: str
    program_id: str
    seed: int
    arm: str = PLAIN
    hint: str = ""
    max_turns: int = 8
    actions: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One message of the agent and what it led to; reward None if the step was lost."""

    observation: str
    action: str
    reward: float | None


@dataclass
class Trajectory:
    """The record of a play.

    Attributes:
        prompt_ids: Tokens up to the first action.
        completion_ids: Everything after: sampled tokens as sampled, environment text between.
        logprobs: By completion token; 0 for environment text.
        decisions: By completion token, 1 where the agent chose it, 0 where the environment
            wrote it or only one token was allowed.
        allowed: By completion token, what the environment allowed; None for anything.
        spans: By turn, the half-open range of its tokens in `completion_ids`.
        turns: What was seen, done and earned.
        episode_return: None for a lost play.
        fault: Why a lost play was lost: an outcome's name, or the error's.
        written_tokens: That a server's model wrote, as the server counts them.
    """

    play: Play
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    allowed: list[AllowedTokens] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    episode_return: float | None = None
    terminated: bool = False
    truncated: bool = False
    fault: str = ""
    written_tokens: int = 0

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the agent wrote."""
        return self.written_tokens + sum(end - start for start, end in self.spans)

    @property
    def lost(self) -> bool:
        """Whether a fault, not the agent, ended it."""
        return bool(self.fault)

    @property
    def context_ids(self) -> list[int]:
        """All tokens so far."""
        return self.prompt_ids + self.completion_ids

    def decided(self) -> list[int]:
        """By turn, how many of its tokens the agent chose."""
        return [sum(self.decisions[start:end]) for start, end in self.spans]

    def add_completion(self, completion: Completion) -> None:
        """Append an action as it was sampled."""
        start = len(self.completion_ids)
        self.completion_ids += completion.token_ids
        self.logprobs += completion.logprobs
        self.decisions += [int(free) for free in completion.free]
        self.allowed += completion.allowed
        self.spans.append((start, len(self.completion_ids)))

    def add_environment_text(self, token_ids: list[int]) -> None:
        """Append what the environment wrote."""
        self.completion_ids += token_ids
        self.logprobs += [0.0] * len(token_ids)
        self.decisions += [0] * len(token_ids)
        self.allowed += [None] * len(token_ids)

    def to_json(self, step: int) -> dict[str, Any]:
        """One line of the trajectory files."""
        return {
            "env_id": self.play.env_id,
            "step": step,
            "arm": self.play.arm,
            "seed": self.play.seed,
            "episode_return": self.episode_return,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "lost": self.lost,
            "fault": self.fault,
            "turns": [
                {"observation": t.observation, "action": t.action, "reward": t.reward}
                for t in self.turns
            ],
        }
