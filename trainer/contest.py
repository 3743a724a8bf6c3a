"""Several policies on the same episodes: what each achieves, and by how much they differ.

A *task* is an environment with a seed; every policy tries each task the same number of times.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_api.types import Outcome, Verdict

from trainer.evaluation import WIN_RETURN, EvaluationError
from trainer.policies import Policy, RunningEpisode
from trainer.protocols import EvaluationItem, SandboxClient
from trainer.rollouts import play_all
from trainer.sandbox_calls import BusyClock, Gatherer
from trainer.statistics import (
    bootstrap_interval,
    mean,
    paired_difference,
    wilson_interval,
)
from trainer.student import Z95
from trainer.trajectories import Play, Trajectory


@dataclass(frozen=True)
class ContestSettings:
    """What is played.

    Attributes:
        seeds: Worlds of each environment.
        samples: Tries of each task.
        first_seed: Seeds of the worlds start here.
        max_turns: Turn cap of environments that name none.
        max_concurrent: Episodes in flight.
    """

    seeds: int = 8
    samples: int = 1
    first_seed: int = 1_000_000
    max_turns: int = 12
    max_concurrent: int = 256


class ScriptedPolicy(Policy):
    """The same actions in every episode, over and over."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._actions = list(actions)

    async def act(self, episode: RunningEpisode) -> str:
        return self._actions[len(episode.trajectory.turns) % len(self._actions)]


class OraclePolicy(Policy):
    """What each program's own solution() does: what can be achieved at all."""

    def __init__(self, client: SandboxClient) -> None:
        self._client = client
        self._scripts: dict[str, Sequence[str]] = {}
        self._verdicts = Gatherer[str, Verdict](
            self._verify, lambda episode_id, error: Verdict(episode_id, error=error), BusyClock()
        )

    async def start(self, episode: RunningEpisode) -> None:
        verdict = await self._verdicts.ask(episode.episode_id)
        oracle = verdict.oracle if verdict.error is None else None
        self._scripts[episode.episode_id] = oracle.actions if oracle is not None else ()

    async def _verify(self, episode_ids: Sequence[str]) -> AsyncIterator[tuple[int, Verdict]]:
        for numbered in enumerate(await self._client.verify(episode_ids, run_oracle=True)):
            yield numbered

    def end(self, episode: RunningEpisode) -> None:
        self._scripts.pop(episode.episode_id, None)

    async def act(self, episode: RunningEpisode) -> str:
        script, turn = self._scripts[episode.episode_id], len(episode.trajectory.turns)
        # An environment without a solution gets no action, as from a player who has none.
        return script[turn] if turn < len(script) else ""


class Contest:
    """Tasks, registered at the server."""

    def __init__(
        self, client: SandboxClient, plays: Sequence[Play], settings: ContestSettings
    ) -> None:
        self._client = client
        self._settings = settings
        self.plays = list(plays)

    @classmethod
    async def register(
        cls,
        client: SandboxClient,
        items: Sequence[EvaluationItem],
        settings: ContestSettings,
        *,
        runtime: str = "",
    ) -> Contest:
        """Register every program.

        Raises:
            EvaluationError: If there is none, or one does not load.
        """
        if not items:
            raise EvaluationError("the suite holds no environment")
        plays = []
        for item in items:
            program = await client.register_program(item.source, runtime=runtime)
            if program.outcome is not Outcome.COMPLETED:
                raise EvaluationError(f"{item.name} does not load: {program.diagnostic}")
            plays += [
                Play(
                    env_id=item.name,
                    program_id=program.program_id,
                    seed=settings.first_seed + world,
                    max_turns=item.max_turns or settings.max_turns,
                    actions=item.actions,
                )
                for world in range(settings.seeds)
                for _ in range(settings.samples)
            ]
        return cls(client, plays, settings)

    async def play(self, policy: Policy, *, cohorts: int = 1) -> list[Trajectory]:
        """Every task, each as often as the settings say; in the order of `plays`.

        Args:
            policy: Who plays.
            cohorts: 0 for who is not in this process; see `play_all`.
        """
        trajectories, _ = await play_all(
            self._client,
            policy,
            self.plays,
            max_concurrent=self._settings.max_concurrent,
            cohorts=cohorts,
        )
        return trajectories

    def summary(self, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        """What a policy achieved.

        Returns:
            JSON values: `n` and `lost` episodes; `mean_return` and `success` (returns of at least
            0.99) with 95% intervals; `pass_at_k` by k; `turns` and `tokens` of an episode, means;
            `by_environment`.
        """
        played = [t for t in trajectories if t.episode_return is not None]
        returns = [t.episode_return for t in played if t.episode_return is not None]
        wins = sum(value >= WIN_RETURN for value in returns)
        by_environment: dict[str, list[float]] = {}
        for trajectory, value in zip(played, returns, strict=True):
            by_environment.setdefault(trajectory.play.env_id, []).append(value)
        return {
            "n": len(played),
            "lost": len(trajectories) - len(played),
            "mean_return": mean(returns),
            "mean_return_ci95": list(bootstrap_interval(returns)),
            "success": wins / len(played) if played else math.nan,
            "success_ci95": list(wilson_interval(wins, len(played))),
            "pass_at_k": self._pass_at_k(trajectories),
            "turns": mean([len(t.turns) for t in played]),
            "tokens": mean([t.sampled_tokens for t in played]),
            "by_environment": {
                name: {"n": len(values), "mean_return": mean(values)}
                for name, values in by_environment.items()
            },
        }

    def _pass_at_k(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        samples = self._settings.samples
        tasks = [trajectories[i : i + samples] for i in range(0, len(trajectories), samples)]
        counted = []
        for task in tasks:
            returns = [t.episode_return for t in task if t.episode_return is not None]
            counted.append((len(returns), sum(value >= WIN_RETURN for value in returns)))
        result = {}
        k = 1
        while k <= samples:
            shares = [pass_at_k(n, wins, k) for n, wins in counted if n >= k]
            result[str(k)] = mean(shares)
            k *= 2
        return result

    def difference(
        self, left: Sequence[Trajectory], right: Sequence[Trajectory]
    ) -> dict[str, Any]:
        """How much more the right policy returns, task by task.

        Tries of one task are not independent of each other: a task counts once.

        Returns:
            JSON values: `mean` difference, its paired `se` and `ci95`, and `tasks` compared.
        """
        samples = self._settings.samples

        def by_task(played: Sequence[Trajectory]) -> list[float | None]:
            tasks = [played[i : i + samples] for i in range(0, len(played), samples)]
            known = [[t.episode_return for t in task] for task in tasks]
            kept = [[value for value in values if value is not None] for values in known]
            return [mean(values) if values else None for values in kept]

        centre, error, tasks = paired_difference(by_task(left), by_task(right))
        interval = [centre - Z95 * error, centre + Z95 * error]
        return {"mean": centre, "se": error, "ci95": interval, "tasks": tasks}


def pass_at_k(tries: int, wins: int, k: int) -> float:
    """The chance that at least one of k tries wins, estimated without bias from all of them.

    Args:
        tries: Tries of a task; at least k.
        wins: How many of them won.
        k: Tries that may be made.

    Source: arXiv:2107.03374.
    """
    if tries - wins < k:
        return 1.0
    return 1.0 - math.comb(tries - wins, k) / math.comb(tries, k)
