"""The loop: design, validate, hint, play both arms, reward, update, remember.

TRL's trainer owns the loop over updates and runs in a thread; for each step it asks
`SelfPlay.collect` for rows, which plays on the event loop that owns the sandbox client.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from trainer.config import Config, horizon
from trainer.credit import AgentCredit
from trainer.critic import Critic
from trainer.curriculum import Curriculum
from trainer.designer_credit import DesignerCredit, reward_metrics
from trainer.environments import ActiveEnvironment
from trainer.generation import GenerationCount, Generator
from trainer.groups import Group, play_groups
from trainer.policies import Policy
from trainer.protocols import Designer, Progress, SandboxClient
from trainer.recording import archive_plays, play_metrics
from trainer.rollouts import RolloutCount
from trainer.rows import Row
from trainer.runfolder import RunFolder


class LostPlaysError(RuntimeError):
    """So many plays were lost to faults that what is left says little."""


class SelfPlay:
    """Produces the rows of each training step, and records what happened in it."""

    def __init__(
        self,
        config: Config,
        client: SandboxClient,
        designer: Designer,
        curriculum: Curriculum,
        generators: Sequence[Generator],
        policy: Policy,
        folder: RunFolder,
        critic: Critic | None = None,
    ) -> None:
        """
        Args:
            generators: All that sample in a step.
            critic: For `update.estimator=ppo`.
        """
        self._config = config
        self._client = client
        self._designer = designer
        self._curriculum = curriculum
        self._generators = list(generators)
        self._policy = policy
        self._folder = folder
        self._critic = critic
        self._agent_credit = AgentCredit(config.update, critic)
        self._designer_credit = DesignerCredit(
            config.design, trains=config.design.train and config.run.mode == "selfplay"
        )
        self.row: dict[str, Any] = {}
        # Shows how far it is, where somebody looks.
        self.progress: Progress | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the weights."""
        return {
            **self._curriculum.state(),
            "skill_averages": self._designer_credit.skill_averages,
            "critic": self._critic.state() if self._critic else None,
        }

    async def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        await self._curriculum.restore(state)
        self._designer_credit.skill_averages = state["skill_averages"]
        if self._critic is not None:
            self._critic.restore(state["critic"])

    async def collect(self, step: int) -> list[Row]:
        """Play one training step.

        Args:
            step: From 0.

        Raises:
            LostPlaysError: If more plays were lost than `play.lost_share_bound` allows.
        """
        config = self._config
        stage, max_turns = horizon(config.play, step)
        self.row = {"step": step + 1, "time_s": time.time(), "stage": stage}
        for generator in self._generators:
            generator.begin(mixed_seed(config.run.seed, step))
            generator.count.tokens, generator.count.seconds = 0, 0.0
        started = time.perf_counter()
        groups, metrics = await self._curriculum.deal(step, max_turns)
        self.row.update(metrics)
        self.row["time/design_s"] = time.perf_counter() - started
        started = time.perf_counter()
        count = await play_groups(
            self._client,
            self._policy,
            groups,
            size=config.play.group_size,
            max_turns=max_turns,
            seed=f"{config.run.seed}/{step}",
            paired=config.design.paired,
            max_concurrent=config.play.max_concurrent,
            cohorts=config.play.cohorts,
            progress=self.progress,
        )
        played = sum(len(group.plain) + len(group.hinted) for group in groups)
        if sum(count.faults.values()) > config.play.lost_share_bound * played:
            self._stop(step, groups, count, played)
        self.row.update(self._curriculum.take_in(step, groups))
        self._remember(step, groups)
        # In a thread: a critic reads every episode with the model.
        rows, metrics = await asyncio.to_thread(
            self._agent_credit.rows, [group.plain for group in groups]
        )
        self.row.update(metrics)
        if written := self._curriculum.finished(step):
            rows = rows + self._reward_designer(step, written, len(rows))
        self.row.update(play_metrics(groups, count, self._generated()))
        self._write_trajectories(step, groups)
        self.row["time/play_s"] = time.perf_counter() - started
        return rows

    def _stop(
        self, step: int, groups: Sequence[Group], count: RolloutCount, played: int
    ) -> NoReturn:
        """Leave what shows why in the folder, and end the run."""
        self.row.update(play_metrics(groups, count, self._generated()))
        self._write_trajectories(step, groups)
        self._folder.append_metrics(self.row)
        causes = ", ".join(f"{fault} {n}" for fault, n in count.faults.most_common())
        raise LostPlaysError(
            f"step {step + 1} lost {sum(count.faults.values())} of its {played} plays to faults "
            f"({causes}), more than play.lost_share_bound={self._config.play.lost_share_bound:g}; "
            f"nothing was trained on them. {self._folder.trajectories_path} has those plays: find "
            "the fault and go on with --resume, or raise the bound"
        )

    def _generated(self) -> GenerationCount:
        counts = [generator.count for generator in self._generators]
        return GenerationCount(sum(c.tokens for c in counts), sum(c.seconds for c in counts))

    def _remember(self, step: int, groups: Sequence[Group]) -> None:
        for group in groups:
            if group.compared:
                self._record_measurement(group.environment, step, None)
        for env_id, plays in archive_plays(groups).items():
            self._designer.record_plays(env_id, step + 1, plays)

    def _record_measurement(
        self, environment: ActiveEnvironment, step: int, reward: float | None
    ) -> None:
        self._designer.record_measurement(
            environment.env_id,
            step + 1,
            win_plain=environment.mean_return,
            win_hinted=environment.return_hinted,
            regret=environment.regret,
            regret_se=environment.regret_se,
            regime=environment.regime,
            designer_reward=reward,
        )

    def _reward_designer(
        self, step: int, written: list[ActiveEnvironment], agent_rows: int
    ) -> list[Row]:
        rewards = self._designer_credit.rewards(written, self._curriculum.earlier)
        for environment, reward in zip(written, rewards, strict=True):
            self._record_measurement(environment, step, reward)
        self.row.update(reward_metrics(written, rewards))
        return self._designer_credit.rows(written, rewards, agent_rows)

    def _write_trajectories(self, step: int, groups: Sequence[Group]) -> None:
        plain = [t for group in groups for t in group.plain]
        hinted = [t for group in groups for t in group.hinted]
        self._folder.write_trajectories(step + 1, (t.to_json(step + 1) for t in plain + hinted))


def update_threads(config: Config) -> int:
    """Torch threads for the update, when the sandbox server has nothing to do."""
    return config.update.threads or len(os.sched_getaffinity(0))


def set_seeds(seed: int) -> None:
    """Seed the global generators, for whatever in the libraries uses them."""
    random.seed(seed)
    torch.manual_seed(seed)


def mixed_seed(seed: int, step: int, what: str = "sampling") -> int:
    """A seed of one step's own, of 62 bits."""
    return random.Random(f"{seed}/{step}/{what}").getrandbits(62)
