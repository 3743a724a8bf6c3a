"""Measuring policies on environments and seeds held out from training.

Every policy plays the same (environment, seed) pairs, so that their means differ by what
the policies do and not by what they were dealt.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sandbox_api.types import Program, ResetItem

from trainer.config import EvaluationConfig, PlayConfig
from trainer.policies import Policy, RunningEpisode
from trainer.protocols import EvaluationItem, SandboxClient
from trainer.rewards import episode_return
from trainer.rollouts import play_all
from trainer.statistics import bootstrap_interval, mean, wilson_interval
from trainer.trajectories import Play

WIN_RETURN = 0.99


class EvaluationError(RuntimeError):
    """The suite itself cannot be played; the message names the environment."""


class RandomPolicy(Policy):
    """Draws evenly from the valid actions: what no understanding at all achieves."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    async def act(self, episode: RunningEpisode) -> str:
        turn = len(episode.trajectory.turns)
        rng = random.Random(f"{self._seed}/{episode.stream}/{turn}")
        return rng.choice(episode.actions or ("",))


class EvaluationSuite:
    """Held-out environments, registered at the server, with the seeds to play."""

    def __init__(
        self,
        client: SandboxClient,
        items: Sequence[EvaluationItem],
        programs: Sequence[Program],
        evaluation: EvaluationConfig,
        play: PlayConfig,
    ) -> None:
        self._client = client
        self._items = items
        self._evaluation = evaluation
        self._max_concurrent = play.max_concurrent
        self._cohorts = play.cohorts
        repeats = math.ceil(evaluation.episodes / len(items)) if items else 0
        self._families = [item.family for item in items for _ in range(repeats)]
        self.plays = [
            Play(
                env_id=item.name,
                program_id=program.program_id,
                seed=evaluation.seed + i,
                max_turns=item.max_turns or play.max_turns,
                actions=item.actions,
            )
            for item, program in zip(items, programs, strict=True)
            for i in range(repeats)
        ]

    @classmethod
    async def register(
        cls,
        client: SandboxClient,
        items: Sequence[EvaluationItem],
        evaluation: EvaluationConfig,
        play: PlayConfig,
    ) -> EvaluationSuite:
        """Register every program of the suite.

        Raises:
            EvaluationError: If a program does not load.
        """
        programs = []
        for item in items:
            program = await client.register_program(item.source)
            if program.outcome.name != "COMPLETED":
                raise EvaluationError(
                    f"evaluation environment {item.name} does not load: {program.diagnostic}"
                )
            programs.append(program)
        return cls(client, items, programs, evaluation, play)

    def protocol(self) -> dict[str, Any]:
        """What was measured, for the record."""
        return {
            "environments": [item.name for item in self._items],
            "families": sorted(set(self._families)),
            "episodes": len(self.plays),
            "seeds": sorted({play.seed for play in self.plays}),
            "temperature": self._evaluation.temperature,
            "interval": "95% percentile bootstrap of the mean; Wilson for win rates",
            "win": f"return of at least {WIN_RETURN}",
            "same_episodes_for_every_policy": True,
        }

    async def measure(self, policy: Policy) -> dict[str, Any]:
        """Play every episode with a policy and sum up."""
        trajectories, _ = await play_all(
            self._client,
            policy,
            self.plays,
            max_concurrent=self._max_concurrent,
            cohorts=self._cohorts,
        )
        return self._summary([t.episode_return for t in trajectories])

    async def measure_oracle(self) -> dict[str, Any]:
        """Let every program's own solution() play, in a fresh process."""
        returns: list[float | None] = []
        for start in range(0, len(self.plays), self._max_concurrent):
            returns += await self._oracle_returns(self.plays[start : start + self._max_concurrent])
        return self._summary(returns)

    async def _oracle_returns(self, plays: Sequence[Play]) -> list[float | None]:
        episodes = await self._client.reset(
            [ResetItem(p.program_id, seed=p.seed, max_turns=p.max_turns) for p in plays]
        )
        ids = [e.episode_id for e in episodes if e.ok]
        try:
            verdicts = await self._client.verify(ids, run_oracle=True)
        finally:
            await self._client.close_episodes(ids)
        by_id = {v.episode_id: v.oracle for v in verdicts if v.error is None}
        returns: list[float | None] = []
        for episode in episodes:
            oracle = by_id.get(episode.episode_id)
            if oracle is None or oracle.final_reward is None:
                returns.append(None)
            else:
                returns.append(episode_return(oracle.final_reward, terminated=oracle.terminated))
        return returns

    def _summary(self, returns: Sequence[float | None]) -> dict[str, Any]:
        by_family: dict[str, list[float]] = defaultdict(list)
        for family, value in zip(self._families, returns, strict=True):
            if value is not None:
                by_family[family].append(value)
        played = [value for value in returns if value is not None]
        wins = sum(value >= WIN_RETURN for value in played)
        return {
            "n": len(played),
            "lost": len(returns) - len(played),
            "mean_return": mean(played),
            "ci95": list(bootstrap_interval(played)),
            "win_rate": wins / len(played) if played else math.nan,
            "win_ci95": list(wilson_interval(wins, len(played))),
            "by_family": {
                family: {
                    "n": len(values),
                    "mean_return": mean(values),
                    "ci95": list(bootstrap_interval(values)),
                }
                for family, values in sorted(by_family.items())
            },
            "returns": list(returns),
        }
