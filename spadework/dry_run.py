"""What a training run would do and need, said before anything is loaded or started."""

from __future__ import annotations

import dataclasses
from typing import Any

from spadework import console
from trainer.architectures import Architecture, architecture_of
from trainer.arithmetic import Memory, batch, checkpoint_bytes, memory, stages
from trainer.config import Config

# Of an episode of a designed program in its jail; docs/results.md, 5,000 live.
EPISODE_BYTES = 2 << 20


def dry_run(config: Config, *, processes: int, memory_gib: float, gpu: bool) -> dict[str, Any]:
    """The arithmetic of a run as JSON values.

    Args:
        config: The run.
        processes: That share the model and the rows.
        memory_gib: Of each of them; 0 if it is not known.
        gpu: Whether they have GPUs.

    Raises:
        ConfigError: If nothing is known of the model's size.
    """
    architecture = architecture_of(config.model)
    counted = batch(config)
    needed = memory(config, architecture, processes=processes, gpu=gpu)
    return {
        "model": config.model.name,
        "parameters": architecture.parameters,
        "active_parameters": architecture.active_parameters,
        "processes": processes,
        "batch": dataclasses.asdict(counted),
        "stages": [{"from_step": step, "max_turns": turns} for step, turns in stages(config)],
        "memory_bytes": {
            **dataclasses.asdict(needed),
            "updating": needed.updating,
            "playing": needed.playing,
        },
        "sandbox_memory_bytes": counted.in_flight * EPISODE_BYTES,
        "checkpoint_bytes": checkpoint_bytes(config, architecture),
        "warnings": warnings(config, architecture, needed, memory_gib),
    }


def warnings(
    config: Config, architecture: Architecture, needed: Memory, memory_gib: float
) -> list[str]:
    """What will not work, or not as one may think; a sentence each, with what to do."""
    found = []
    if memory_gib and needed.most > memory_gib * (1 << 30):
        what = "playing" if needed.playing > needed.updating else "updating"
        if needed.held > memory_gib * (1 << 30):
            advice = "take more processes, or train adapters (model.lora_rank=32)"
        elif what == "playing":
            advice = "lower play.max_concurrent, or generation.context_tokens"
        else:
            advice = "raise update.accumulation, or set update.gradient_checkpointing=true"
        most = _gib(needed.most)
        found.append(f"{what} needs {most} a process of {memory_gib:g} GiB: {advice}")
    counted = batch(config)
    if counted.in_flight < counted.plays:
        found.append(
            f"play.max_concurrent={config.play.max_concurrent} is below the {counted.plays} plays "
            "of a step that designs: some wait for a place"
        )
    design = config.design
    if design.method == "free_code" and not config.endpoint.url and architecture.parameters < 1e9:
        found.append(
            "models below a billion parameters hardly write Python that runs: "
            "design.method=structured, or an endpoint that designs (endpoint.url)"
        )
    turns = max(turns for _, turns in stages(config))
    if turns * config.play.max_action_tokens > 4 * config.generation.context_tokens:
        found.append(
            f"{turns} turns of {config.play.max_action_tokens} tokens are more than four times "
            f"generation.context_tokens={config.generation.context_tokens}: episodes whose "
            "actions are long will be cut"
        )
    return found


def show(told: dict[str, Any], config: Config) -> None:
    """Print what `dry_run` told, for people."""
    counted, needed = told["batch"], told["memory_bytes"]
    design, play = config.design, config.play
    active = told["active_parameters"]
    size = f"{told['parameters']:,} parameters"
    if active != told["parameters"]:
        size += f", {active:,} of them for a token"
    console.print_table(
        f"{config.run.name}: {told['model']}, {size}",
        ("a step", "", ""),
        [
            (
                "environments",
                f"{design.environments:,}",
                f"new ones every {design.replay_steps} steps",
            ),
            (
                "plays",
                f"{counted['plays']:,}",
                f"{play.group_size} in each arm; {counted['replays']:,} where nothing is designed",
            ),
            (
                "episodes in flight",
                f"{counted['in_flight']:,}",
                "play.max_concurrent, or all plays",
            ),
            ("environment steps", f"{counted['environment_steps']:,}", "at most"),
            ("completions of the designer", f"{counted['designs']:,}", "at most, hints included"),
            ("sampled tokens", f"{counted['sampled_tokens']:,}", "at most"),
            (
                "rows that train",
                f"{counted['rows']:,}",
                f"{counted['minibatch_rows']:,} an optimizer "
                f"step, {counted['piece_rows']:,} a forward pass of all processes",
            ),
            (
                "optimizer steps",
                f"{counted['optimizer_steps']:,}",
                f"{counted['optimizer_steps'] * config.run.steps:,} in {config.run.steps:,} steps",
            ),
        ],
    )
    console.print_table(
        f"memory of a process, of {told['processes']}",
        ("", "at most", ""),
        [
            ("weights", _gib(needed["weights"]), ""),
            ("gradients", _gib(needed["gradients"]), ""),
            ("Adam", _gib(needed["optimizer"]), ""),
            (
                "reference",
                _gib(needed["reference"]),
                "the first weights, where update.kl_coef is set",
            ),
            (
                "activations",
                _gib(needed["activations"]),
                "an estimate, every row at its full length",
            ),
            ("logits", _gib(needed["logits"]), "an estimate, the same"),
            (
                "cache of keys and values",
                _gib(needed["cache"]),
                "every episode at its full length",
            ),
            ("while updating", _gib(needed["updating"]), ""),
            ("while playing", _gib(needed["playing"]), ""),
        ],
    )
    stages = ", ".join(f"{s['max_turns']} from step {s['from_step']}" for s in told["stages"])
    print(f"Turns: {stages}.")
    print(
        f"Sandbox: about {_gib(told['sandbox_memory_bytes'])} for the episodes in flight. "
        f"Checkpoints: {_gib(told['checkpoint_bytes'])} on disk."
    )
    for warning in told["warnings"]:
        console.say(f"warning: {warning}")
    print("Nothing was loaded or started.")


def _gib(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 28 else f"{count / (1 << 20):,.1f} MiB"
