"""The loop: design, validate, hint, play both arms, reward, update, remember.

TRL's trainer owns the loop over updates and runs in a thread; for each step it asks
`SelfPlay.collect` for rows, which plays on the event loop that owns the sandbox client.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from trainer.advantages import (
    Estimator,
    designer_advantages,
    designer_scale,
    generalised_advantages,
    turn_rewards,
)
from trainer.config import Config, horizon
from trainer.critic import Critic
from trainer.designing import DesignRound
from trainer.diversity import (
    environment_class,
    flooding_class,
    novelties,
    similarities,
    vendi_score,
)
from trainer.environments import ActiveEnvironment, DesignSample
from trainer.evaluation import WIN_RETURN
from trainer.generation import Generator
from trainer.protocols import Designer, SandboxClient
from trainer.replay import draw_levels, level_weights
from trainer.rewards import designer_reward, learnable
from trainer.rollouts import (
    HINTED,
    PLAIN,
    ModelPolicy,
    Play,
    RolloutCount,
    Trajectory,
    play_all,
    void_lost_pairs,
)
from trainer.rows import AGENT, DESIGNER, Row
from trainer.runfolder import RunFolder
from trainer.statistics import mean, std

SKILL_AVERAGE_DECAY = 0.9
TRAINING_SEEDS = 1_000_000
RETIRED_KEPT = 256


class SelfPlay:
    """Produces the rows of each training step, and records what happened in it."""

    def __init__(
        self,
        config: Config,
        client: SandboxClient,
        designer: Designer,
        design_round: DesignRound,
        generator: Generator,
        policy: ModelPolicy,
        folder: RunFolder,
        critic: Critic | None = None,
    ) -> None:
        """
        Args:
            critic: For `update.estimator=ppo`.
        """
        self._config = config
        self._critic = critic
        self._client = client
        self._designer = designer
        self._design_round = design_round
        self._generator = generator
        self._policy = policy
        self._folder = folder
        update = config.update
        self._estimator = (
            # PPO's advantages are each turn's own, and normalised over the step.
            Estimator("reinforce++", "turn")
            if critic is not None
            else Estimator(update.estimator, update.credit, update.gamma, update.std_floor)
        )
        self._environments: list[ActiveEnvironment] = []
        self._retired: list[ActiveEnvironment] = []
        self._skill_averages: dict[str, float] = {}
        self.row: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the weights."""
        return {
            "environments": [e.to_json() for e in self._environments],
            "retired": [e.to_json() for e in self._retired],
            "skill_averages": self._skill_averages,
            "critic": self._critic.state() if self._critic else None,
        }

    async def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; the server may be another one, so programs register again."""
        self._environments = [ActiveEnvironment.from_json(v) for v in state["environments"]]
        self._retired = [ActiveEnvironment.from_json(v) for v in state["retired"]]
        self._skill_averages = state["skill_averages"]
        if self._critic is not None:
            self._critic.restore(state["critic"])
        for environment in self._environments + self._retired:
            program = await self._client.register_program(
                environment.source, limits=environment.limits
            )
            environment.program_id = program.program_id

    async def collect(self, step: int) -> list[Row]:
        """Play one training step.

        Args:
            step: From 0.
        """
        replay = step % self._config.design.replay_steps
        stage, max_turns = horizon(self._config.play, step)
        self.row = {"step": step + 1, "time_s": time.time(), "stage": stage}
        self._generator.begin(_mixed_seed(self._config.run.seed, step))
        self._generator.count.tokens, self._generator.count.seconds = 0, 0.0
        started = time.perf_counter()
        if replay == 0 or not self._environments:
            await self._design(step, max_turns)
        self.row["time/design_s"] = time.perf_counter() - started
        started = time.perf_counter()
        new = [e for e in self._environments if e.created_step == step + 1]
        rehearsed = self._rehearsed(step)
        plain, hinted, count = await self._play(step, new, rehearsed, max_turns)
        self._measure(step, plain, hinted)
        for environment in [*self._environments, *rehearsed]:
            environment.note_play(plain[environment.env_id], step + 1)
        agent_rows = await self._agent_rows(plain)
        rows = list(agent_rows)
        if replay == self._config.design.replay_steps - 1 and self._environments:
            rows += self._reward_designer(step, len(agent_rows))
        self._record_play(step, plain, hinted, {e.env_id for e in rehearsed}, count)
        self.row["time/play_s"] = time.perf_counter() - started
        return rows

    async def _design(self, step: int, max_turns: int) -> None:
        outcome = await self._design_round.run(step + 1, max_turns)
        self.row.update({f"gates/{reason}": n for reason, n in outcome.gates.items()})
        self.row["designer/valid_share"] = outcome.gates["OK"] / max(1, outcome.drafts)
        self.row["designer/mended"] = outcome.mended
        self.row.update(outcome.costs)
        if outcome.environments:
            self._note_diversity(outcome.environments)
            self._retire(self._environments)
            self._environments = outcome.environments
        else:  # the old ones serve another cycle, with their designers already rewarded
            for environment in self._environments:
                environment.samples, environment.returns = [], []

    def _note_diversity(self, environments: Sequence[ActiveEnvironment]) -> None:
        sources = [environment.source for environment in environments]
        classes = [environment_class(e.source, e.family) for e in environments]
        flooding, share = flooding_class(classes)
        self.row.update(
            {
                "designer/vendi_share": vendi_score(similarities(sources)) / len(sources),
                "designer/largest_class_share": share,
                "designer/flooding_class": flooding,
            }
        )

    def _retire(self, environments: Sequence[ActiveEnvironment]) -> None:
        for environment in environments:
            environment.samples, environment.returns = [], []
        self._retired = [*self._retired, *environments][-RETIRED_KEPT:]

    def _rehearsed(self, step: int) -> list[ActiveEnvironment]:
        current = {e.env_id for e in self._environments}
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

    async def _play(
        self,
        step: int,
        new: Sequence[ActiveEnvironment],
        rehearsed: Sequence[ActiveEnvironment],
        max_turns: int,
    ) -> tuple[dict[str, list[Trajectory]], dict[str, list[Trajectory]], RolloutCount]:
        plays: list[Play] = []
        for environment in [*self._environments, *rehearsed]:
            # Seeded by text, so that neither the order nor the number of environments counts.
            rng = random.Random(f"{self._config.run.seed}/{step}/{environment.env_id}")
            group, paired = self._config.play.group_size, self._config.design.paired
            drawn = rng.sample(range(TRAINING_SEEDS), group if paired else 2 * group)
            # Paired, the slice of the second arm is the same as that of the first.
            seeds = {PLAIN: drawn[:group], HINTED: drawn[-group:]}
            arms = (PLAIN, HINTED) if environment in new else (PLAIN,)
            plays += [
                Play(
                    env_id=environment.env_id,
                    program_id=environment.program_id,
                    seed=seed,
                    arm=arm,
                    hint=environment.hint,
                    max_turns=min(max_turns, environment.max_turns or max_turns),
                )
                for arm in arms
                for seed in seeds[arm]
            ]
        trajectories, count = await play_all(
            self._client,
            self._policy,
            plays,
            max_concurrent=self._config.play.max_concurrent,
            cohorts=self._config.play.cohorts,
        )
        plain: dict[str, list[Trajectory]] = {
            e.env_id: [] for e in [*self._environments, *rehearsed]
        }
        hinted: dict[str, list[Trajectory]] = {e.env_id: [] for e in new}
        for trajectory in trajectories:
            arm = hinted if trajectory.play.arm == HINTED else plain
            arm[trajectory.play.env_id].append(trajectory)
        for env_id, plays_with_hint in hinted.items():
            void_lost_pairs(plain[env_id], plays_with_hint)
        return plain, hinted, count

    def _measure(
        self,
        step: int,
        plain: dict[str, list[Trajectory]],
        hinted: dict[str, list[Trajectory]],
    ) -> None:
        for environment in self._environments:
            plays = plain[environment.env_id]
            environment.add_plain(plays)
            if environment.env_id in hinted:
                environment.measure_regret(
                    plays, hinted[environment.env_id], paired=self._config.design.paired
                )
            if environment.env_id in hinted:
                self._record_measurement(environment, step, None)

        for env_id, plays in plain.items():
            both = plays + hinted.get(env_id, [])
            self._designer.record_plays(env_id, step + 1, [_archive_play(t) for t in both])

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

    async def _agent_rows(self, plain: dict[str, list[Trajectory]]) -> list[Row]:
        groups = list(plain.values())
        rewards = [[self._turn_rewards(play) for play in plays] for plays in groups]
        if self._critic is not None:
            rewards = await asyncio.to_thread(self._surprises, self._critic, groups, rewards)
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
                _agent_row(play, turns)
                for play, turns in zip(plays, by_play, strict=True)
                if not play.lost and any(play.decisions)
            ]
        self.row["groups/no_variance_share"] = still / len(plain) if plain else math.nan
        return rows

    def _surprises(
        self,
        critic: Critic,
        groups: Sequence[Sequence[Trajectory]],
        rewards: Sequence[Sequence[list[float] | None]],
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
            update = self._config.update
            states = critic.states([play for play, _ in played])
            values = critic.values(states)
            targets = []
            for (play, earned), said in zip(played, values, strict=True):
                gained = generalised_advantages(
                    earned, said, gamma=update.gamma, decay=update.gae_lambda
                )
                surprises[id(play)] = gained
                targets.append([a + b for a, b in zip(gained, said, strict=True)])
            self.row["critic/explained_variance"] = critic.fit(states, targets)
        return [[surprises.get(id(play)) for play in plays] for plays in groups]

    def _turn_rewards(self, play: Trajectory) -> list[float] | None:
        if play.episode_return is None:
            return None
        rewards = [turn.reward or 0.0 for turn in play.turns]
        keep_steps = self._config.update.step_rewards
        return turn_rewards(rewards, play.episode_return, keep_steps=keep_steps)

    def _reward_designer(self, step: int, agent_rows: int) -> list[Row]:
        design = self._config.design
        written = [e for e in self._environments if e.pairs and e.returns]
        rewards = []
        novelty = [0.0] * len(written)
        if design.novelty_weight:
            earlier = [environment.source for environment in self._retired]
            novelty = novelties([environment.source for environment in written], earlier)
        for environment, new in zip(written, novelty, strict=True):
            average = self._skill_averages.get(environment.skill, 0.0)
            reward = designer_reward(
                design.reward, environment.measure(average), hinted_floor=design.hinted_floor
            )
            # Only what earns anything earns more by being new: noise is new, too.
            reward *= 1 - design.novelty_weight * (1 - new)
            rewards.append(reward)
            self._record_measurement(environment, step, reward)
        for environment in written:
            average = self._skill_averages.get(environment.skill, environment.mean_return)
            self._skill_averages[environment.skill] = (
                SKILL_AVERAGE_DECAY * average + (1 - SKILL_AVERAGE_DECAY) * environment.mean_return
            )
        if not written:
            return []
        regrets = [e.regret for e in written]
        self.row.update(
            {
                "designer/mean_reward": mean(rewards),
                "designer/reward_std": std(rewards),
                "designer/reward_n": len(rewards),
                "designer/rewards": rewards,
                "designer/learnable_share": mean([learnable(e.mean_return) for e in written]),
                "designer/learnable_n": sum(learnable(e.mean_return) for e in written),
                "designer/families": dict(Counter(e.family for e in written)),
                "designer/regimes": dict(Counter(e.regime for e in written)),
                "regret/mean": mean(regrets),
                "regret/se": std(regrets) / math.sqrt(len(regrets)),
            }
        )
        samples = sum(len(environment.samples) for environment in written)
        if not design.train or not samples:
            return []
        scale = designer_scale(
            agent_rows, samples, design.replay_steps, cap=design.advantage_scale_cap
        )
        advantages = designer_advantages(rewards, [e.skill for e in written], scale)
        return [
            _designer_row(sample, advantage, stale=design.replay_steps > 1)
            for environment, advantage in zip(written, advantages, strict=True)
            for sample in environment.samples
            if advantage
        ]

    def _record_play(
        self,
        step: int,
        plain: dict[str, list[Trajectory]],
        hinted: dict[str, list[Trajectory]],
        rehearsed: set[str],
        count: RolloutCount,
    ) -> None:
        played = [t for plays in plain.values() for t in plays]
        by_rehearsal: dict[bool, list[float]] = {True: [], False: []}
        for play in played:
            if play.episode_return is not None:
                by_rehearsal[play.play.env_id in rehearsed].append(play.episode_return)
        returns = by_rehearsal[False]
        generated = self._generator.count
        self.row.update(
            {
                "agent/mean_return": mean(returns),
                "agent/return_std": std(returns),
                "agent/return_n": len(returns),
                "agent/win_rate": mean([r >= WIN_RETURN for r in returns]),
                "sandbox/steps_per_s": count.steps / max(count.sandbox_s, 1e-9),
                "sandbox/lost_plays": sum(count.faults.values()),
                "generation/tokens_per_s": generated.tokens / max(generated.seconds, 1e-9),
                **{f"sandbox/kills/{fault}": n for fault, n in count.faults.items()},
            }
        )
        if rehearsed:
            self.row["agent/mean_return_rehearsed"] = mean(by_rehearsal[True])
        both = [t for plays in hinted.values() for t in plays]
        if both:
            self.row["agent/mean_return_hinted"] = mean(
                [t.episode_return for t in both if t.episode_return is not None]
            )
        self._folder.write_trajectories(step + 1, (t.to_json(step + 1) for t in played + both))


def update_threads(config: Config) -> int:
    """Torch threads for the update, when the sandbox server has nothing to do."""
    return config.update.threads or len(os.sched_getaffinity(0))


def set_seeds(seed: int) -> None:
    """Seed the global generators, for whatever in the libraries uses them."""
    random.seed(seed)
    torch.manual_seed(seed)


def _mixed_seed(seed: int, step: int) -> int:
    return random.Random(f"{seed}/{step}/sampling").getrandbits(62)


def _archive_play(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "arm": trajectory.play.arm,
        "seed": trajectory.play.seed,
        "episode_return": trajectory.episode_return,
        "terminated": trajectory.terminated,
        "truncated": trajectory.truncated,
        "turns": len(trajectory.turns),
    }


def _agent_row(trajectory: Trajectory, turn_advantages: Sequence[float]) -> Row:
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


def _designer_row(sample: DesignSample, advantage: float, *, stale: bool) -> Row:
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
