"""Which environments a step plays: those of the cycle, and some of earlier ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from trainer.config import Config
from trainer.designing import DesignRound
from trainer.diversity import environment_class, flooding_class, similarities, vendi_score
from trainer.environments import ActiveEnvironment
from trainer.groups import Group
from trainer.protocols import SandboxClient
from trainer.replay import draw_levels, level_weights

RETIRED_KEPT = 256


class Curriculum(Protocol):
    """Deals out environments, and learns from what came of them."""

    async def deal(self, step: int, max_turns: int) -> tuple[list[Group], dict[str, Any]]:
        """What to play in a step.

        Args:
            step: From 0.
            max_turns: Turn cap in force.

        Returns:
            The groups, not yet played, and metrics by name.
        """
        ...

    def take_in(self, step: int, groups: Sequence[Group]) -> dict[str, Any]:
        """Take in the plays of the step; returns metrics by name."""
        ...

    def finished(self, step: int) -> list[ActiveEnvironment]:
        """Environments that the step is the last one for, and whose designer can be rewarded."""
        ...

    @property
    def earlier(self) -> list[ActiveEnvironment]:
        """Environments of earlier cycles."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON values."""
        ...

    async def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; the server may be another one."""
        ...


class DesignedCurriculum:
    """Environments that are designed every k steps, and replayed in between.

    Args:
        config: The run.
        client: Where programs register again after a resume.
        design_round: Has them written.
    """

    def __init__(self, config: Config, client: SandboxClient, design_round: DesignRound) -> None:
        self._config = config
        self._client = client
        self._design_round = design_round
        self._current: list[ActiveEnvironment] = []
        self._retired: list[ActiveEnvironment] = []

    @property
    def earlier(self) -> list[ActiveEnvironment]:
        """Environments of earlier cycles, the oldest first."""
        return self._retired

    async def deal(self, step: int, max_turns: int) -> tuple[list[Group], dict[str, Any]]:
        """The cycle's environments, new ones at its first step, and the rehearsed ones."""
        metrics: dict[str, Any] = {}
        if step % self._config.design.replay_steps == 0 or not self._current:
            metrics = await self._design(step, max_turns)
        groups = [Group(e, e.env_id, compared=e.created_step == step + 1) for e in self._current]
        groups += [Group(e, e.env_id, rehearsed=True) for e in self._rehearsed(step)]
        return groups, metrics

    def take_in(self, step: int, groups: Sequence[Group]) -> dict[str, Any]:
        """Add the returns to what is known of each environment."""
        for group in groups:
            if not group.rehearsed:
                group.environment.add_plain(group.plain)
            if group.compared:
                group.environment.measure_regret(
                    group.plain, group.hinted, paired=self._config.design.paired
                )
            group.environment.note_play(group.plain, step + 1)
        return {}

    def finished(self, step: int) -> list[ActiveEnvironment]:
        """The cycle's environments at its last step, if both their arms were played."""
        if step % self._config.design.replay_steps != self._config.design.replay_steps - 1:
            return []
        return [e for e in self._current if e.pairs and e.returns]

    async def _design(self, step: int, max_turns: int) -> dict[str, Any]:
        outcome = await self._design_round.run(step + 1, max_turns)
        metrics: dict[str, Any] = {f"gates/{reason}": n for reason, n in outcome.gates.items()}
        metrics["designer/valid_share"] = outcome.gates["OK"] / max(1, outcome.drafts)
        metrics["designer/mended"] = outcome.mended
        metrics |= outcome.costs
        if outcome.environments:
            metrics |= _diversity(outcome.environments)
            self._retire(self._current)
            self._current = outcome.environments
        else:  # the old ones serve another cycle, with their designers already rewarded
            for environment in self._current:
                environment.samples, environment.returns = [], []
        return metrics

    def _retire(self, environments: Sequence[ActiveEnvironment]) -> None:
        for environment in environments:
            environment.samples, environment.returns = [], []
        self._retired = [*self._retired, *environments][-RETIRED_KEPT:]

    def _rehearsed(self, step: int) -> list[ActiveEnvironment]:
        current = {e.env_id for e in self._current}
        others = {e.env_id: e for e in self._retired if e.env_id not in current}
        rng = random.Random(f"{self._config.run.seed}/{step}/rehearsed")
        play, levels = self._config.play, list(others.values())
        wanted = min(play.rehearsed, len(levels))
        if play.rehearsal == "even":
            return rng.sample(levels, wanted)
        weights = level_weights(
            [level.spread for level in levels],
            [step + 1 - level.played_step for level in levels],
            temperature=play.rehearsal_temperature,
            staleness=play.rehearsal_staleness,
        )
        return [levels[index] for index in draw_levels(weights, wanted, rng)]

    def state(self) -> dict[str, Any]:
        """The cycle's environments and those of earlier ones."""
        return {
            "environments": [e.to_json() for e in self._current],
            "retired": [e.to_json() for e in self._retired],
        }

    async def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: programs register again."""
        self._current = [ActiveEnvironment.from_json(v) for v in state["environments"]]
        self._retired = [ActiveEnvironment.from_json(v) for v in state["retired"]]
        for environment in self._current + self._retired:
            program = await self._client.register_program(
                environment.source, limits=environment.limits
            )
            environment.program_id = program.program_id


def _diversity(environments: Sequence[ActiveEnvironment]) -> dict[str, Any]:
    sources = [environment.source for environment in environments]
    classes = [environment_class(e.source, e.family) for e in environments]
    flooding, share = flooding_class(classes)
    return {
        "designer/vendi_share": vendi_score(similarities(sources)) / len(sources),
        "designer/largest_class_share": share,
        "designer/flooding_class": flooding,
    }
