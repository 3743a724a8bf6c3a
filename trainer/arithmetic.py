"""What a run amounts to before it starts: plays, rows, tokens and memory of a step.

Counts follow from the configuration alone. Memory is an estimate: what is held all the time is
exact to the parameter, activations are counted by layer, and the cache at its fullest.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.architectures import Architecture
from trainer.config import Config, horizon
from trainer.vllm_config import SERVER

_FLOAT32 = 4
# Logits, their softmax and the gradient of both, in float32.
_LOGIT_COPIES = 3


@dataclass(frozen=True)
class Batch:
    """One training step, at most.

    Attributes:
        plays: Episodes of a step that designs, both arms and rehearsal together.
        replays: Episodes of a step that plays again what was designed.
        in_flight: Episodes at once.
        environment_steps: Of the step that designs, if every play uses up its turns.
        designs: Completions of the designer, repairs and hints together.
        rows: Rows that train, those of the designer's step among them.
        optimizer_steps: Of a training step.
        minibatch_rows: Rows of an optimizer step.
        piece_rows: Rows in one forward pass, of all processes.
        sampled_tokens: Of the step that designs, if every completion is as long as it may be.
    """

    plays: int
    replays: int
    in_flight: int
    environment_steps: int
    designs: int
    rows: int
    optimizer_steps: int
    minibatch_rows: int
    piece_rows: int
    sampled_tokens: int


def batch(config: Config) -> Batch:
    """The arithmetic of a step, at the longest horizon."""
    design, play, update = config.design, config.play, config.update
    _, turns = horizon(play, config.run.steps - 1)
    rehearsed = play.rehearsed * play.group_size
    replays = design.environments * play.group_size + rehearsed
    designs = config.run.mode != "fixed"
    plays = replays + (design.environments * play.group_size if designs else 0)
    drafts = design.environments * design.attempts if designs else 0
    programs = drafts * (1 + design.repair_rounds)
    hints = programs if design.method == "free_code" else 0
    pieces = update.minibatches * update.accumulation
    trains = design.train and config.run.mode == "selfplay"
    rows = replays + (design.environments if trains else 0)
    tokens = plays * turns * play.max_action_tokens
    tokens += programs * design.max_tokens + hints * design.hint_max_tokens
    return Batch(
        plays=plays,
        replays=replays,
        in_flight=min(plays, play.max_concurrent),
        environment_steps=plays * turns,
        designs=programs + hints,
        rows=rows,
        optimizer_steps=update.optimizer_steps,
        minibatch_rows=-(-rows // update.minibatches),
        piece_rows=-(-rows // pieces),
        sampled_tokens=tokens,
    )


@dataclass(frozen=True)
class Memory:
    """Bytes of one process, by what holds them."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    frozen: int
    activations: int
    logits: int
    cache: int

    @property
    def held(self) -> int:
        """What stays between steps."""
        return self.weights + self.gradients + self.optimizer + self.reference + self.frozen

    @property
    def updating(self) -> int:
        """The most while updating: nobody plays then."""
        return self.held + self.activations + self.logits

    @property
    def playing(self) -> int:
        """The most while playing, every completion that is sampled at its full length."""
        return self.held + self.cache

    @property
    def most(self) -> int:
        """The larger of both."""
        return max(self.updating, self.playing)


def memory(
    config: Config, architecture: Architecture, *, processes: int = 1, gpu: bool = False
) -> Memory:
    """Estimate the memory of one process.

    Args:
        config: The run.
        architecture: Of its model.
        processes: That divide gradients and optimizer (ZeRO-2) and the rows of a piece among
            them; each has all weights, and the first alone plays.
        gpu: Whether `model.dtype=auto` means bfloat16.
    """
    model, update = config.model, config.update
    short = model.dtype == "bfloat16" or (gpu and model.dtype == "auto")
    value_bytes = 2 if short else _FLOAT32
    every = architecture.parameters
    trained = every
    weights = every * _FLOAT32
    if model.lora_rank:
        trained = architecture.adapter_parameters(model.lora_rank)
        weights = every * value_bytes + trained * _FLOAT32
    # Under adapters the reference is the same weights without them.
    reference = every * value_bytes if update.kl_coef and not model.lora_rank else 0
    frozen = config.run.mode == "frozen-designer" and not model.lora_rank
    counted = batch(config)
    context = config.generation.context_tokens
    tokens = -(-counted.piece_rows // processes) * context
    layer = architecture.activation_values()
    kept = architecture.layers * layer
    if update.gradient_checkpointing:
        kept = architecture.layers * architecture.hidden + layer
    elsewhere = config.generation.backend == SERVER
    in_flight = 0 if elsewhere else min(counted.in_flight, config.generation.max_rows)
    return Memory(
        weights=weights,
        gradients=trained * _FLOAT32 // processes,
        optimizer=2 * trained * _FLOAT32 // processes,
        reference=reference,
        frozen=every * _FLOAT32 * frozen,
        activations=tokens * kept * value_bytes,
        logits=tokens * architecture.vocabulary * _FLOAT32 * _LOGIT_COPIES,
        cache=in_flight * context * architecture.cache_bytes(value_bytes),
    )


def checkpoint_bytes(config: Config, architecture: Architecture) -> int:
    """Of the checkpoints that a run keeps on disk: weights that train, and Adam's two states."""
    rank = config.model.lora_rank
    trained = architecture.adapter_parameters(rank) if rank else architecture.parameters
    return 3 * trained * _FLOAT32 * config.run.keep_checkpoints


def stages(config: Config) -> list[tuple[int, int]]:
    """First step (from 1) and turn cap of each horizon stage; one where there is no horizon."""
    found: list[tuple[int, int]] = []
    for step in range(config.run.steps):
        _, turns = horizon(config.play, step)
        if not found or found[-1][1] != turns:
            found.append((step + 1, turns))
    return found
