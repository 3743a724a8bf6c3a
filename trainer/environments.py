"""An environment while it is being replayed, and what its plays show."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from sandbox_api.types import Limits

from trainer.grammar import AllowedTokens
from trainer.rewards import EnvironmentMeasure, regime
from trainer.statistics import mean, paired_difference, standard_error
from trainer.trajectories import Trajectory

_MEASURED = ("regret", "regret_se", "return_plain", "return_hinted")


@dataclass
class DesignSample:
    """The completion that wrote an environment, as sampled, until it can be rewarded."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    decisions: list[int]
    allowed: list[AllowedTokens]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DesignSample:
        """Read what `asdict` and JSON made of it."""
        allowed = [None if a is None else tuple(a) for a in values["allowed"]]
        return cls(**{**values, "allowed": allowed})


@dataclass
class ActiveEnvironment:
    """One environment over its k replays.

    Attributes:
        created_step: Training step (from 1) at which it was written.
        samples: Completions that its reward trains; none where an endpoint wrote it.
        returns: Plain returns over all replays, lost plays left out.
        regret: Signed paired difference of returns, hinted minus plain; NaN until measured.
        regret_se: Its standard error.
        return_plain: Plain mean over the complete pairs of the first step.
        return_hinted: Hinted mean over the same pairs.
        spread: Mean distance of the latest plain returns from their mean: what there is to learn.
        played_step: Training step at which it was last played.
    """

    env_id: str
    slot: int
    skill: str
    family: str
    source: str
    hint: str
    max_turns: int
    program_id: str
    limits: Limits
    created_step: int
    samples: list[DesignSample] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    regret: float = math.nan
    regret_se: float = math.nan
    return_plain: float = math.nan
    return_hinted: float = math.nan
    pairs: int = 0
    spread: float = 0.0
    played_step: int = 0

    @property
    def mean_return(self) -> float:
        """w: mean plain return over all replays so far."""
        return mean(self.returns)

    @property
    def regime(self) -> str:
        """What it is to the agent; see `trainer.rewards.regime`."""
        return regime(self.mean_return, self.regret, self.regret_se, self.pairs)

    def add_plain(self, plays: list[Trajectory]) -> None:
        """Take in the plain plays of a step."""
        self.returns += [t.episode_return for t in plays if t.episode_return is not None]

    def note_play(self, plays: list[Trajectory], step: int) -> None:
        """Keep what says how much there is to learn from it, for when it is played again."""
        self.played_step = step
        returns = [t.episode_return for t in plays if t.episode_return is not None]
        if returns:
            centre = mean(returns)
            self.spread = mean([abs(value - centre) for value in returns])

    def measure_regret(
        self, plain: list[Trajectory], hinted: list[Trajectory], *, paired: bool = True
    ) -> None:
        """Compare the arms over their complete pairs.

        Args:
            plain: Plays without the hint.
            hinted: Plays with it, in the same order.
            paired: Whether a pair has one seed; only then are its returns compared as a pair.
        """
        left = [t.episode_return for t in plain]
        right = [t.episode_return for t in hinted]
        self.regret, self.regret_se, self.pairs = paired_difference(left, right)
        pairs = [
            (a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None
        ]
        self.return_plain = mean([a for a, _ in pairs])
        self.return_hinted = mean([b for _, b in pairs])
        if pairs and not paired:
            self.regret_se = math.hypot(*(standard_error(arm) for arm in zip(*pairs, strict=True)))

    def measure(self, skill_average: float) -> EnvironmentMeasure:
        """What the designer's reward is computed from."""
        return EnvironmentMeasure(
            regret=max(0.0, self.regret) if self.pairs else 0.0,
            return_hinted=self.return_hinted,
            returns=self.returns,
            skill_average=skill_average,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ActiveEnvironment:
        """Read what `to_json` wrote."""
        samples = [DesignSample.from_json(sample) for sample in values["samples"]]
        missing = {k: math.nan for k in _MEASURED if values[k] is None}  # JSON has no NaN
        limits = Limits(**values["limits"])
        return cls(**{**values, **missing, "samples": samples, "limits": limits})
