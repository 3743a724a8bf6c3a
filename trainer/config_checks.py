"""Which settings cannot work, alone or together: refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path

from trainer.config import Config, ConfigError
from trainer.design_config import DESIGN_CHOICES, DESIGN_MINIMUM
from trainer.endpoint_config import ENDPOINT_MINIMUM
from trainer.pool_config import POOL_MINIMUM
from trainer.vllm_config import BACKENDS, TRANSFORMERS, VLLM_MINIMUM

# Tested to be what `trainer.advantages` has, which imports more than a configuration may; and
# PPO, whose critic is in `trainer.critic`.
ESTIMATORS = ("grpo", "centred", "rloo", "reinforce++", "reinforce++-baseline", "ppo")
CREDITS = ("episode", "turn", "to_go")
TOOL_CALLING = ("tags", "native")
REHEARSALS = ("even", "prioritised")
DTYPES = ("auto", "float32", "bfloat16")
MODES = ("selfplay", "fixed", "frozen-designer")
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")


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


def _one_of(key: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{key} is {value!r}; choose one of {', '.join(choices)}")


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
