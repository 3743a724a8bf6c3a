"""What a training run would do and need, said before anything is loaded or started."""

from __future__ import annotations

import dataclasses
from typing import Any

from spadework import console
from trainer.architectures import Architecture, architecture_of
from trainer.arithmetic import Memory, batch, checkpoint_bytes, memory, stages
from trainer.config import Config
from trainer.vllm_config import SERVER

# Of an episode of a designed program in its jail; docs/results.md, 5,000 live.
EPISODE_BYTES = 2 << 20


def dry_run(config: Config, *, processes: int, memory_gib: float, gpu: bool) -> dict[str, Any]:
    """The arithmetic of a run as JSON values.

    Args:
        config: The run.
        processes: That update together.
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
            advice = "train adapters (model.lora_rank=32), or divide Adam (ZeRO-2) by processes"
        elif what == "playing":
            advice = "lower generation.max_rows, or have a server sample (vllm-server)"
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
    writes = config.run.mode != "fixed" and design.method == "free_code"
    if writes and not config.endpoint.url and architecture.parameters < 1e9:
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
    n = {name: f"{value:,}" for name, value in counted.items()}
    every = f"{counted['optimizer_steps'] * config.run.steps:,} in {config.run.steps:,} steps"
    pieces = f"{n['minibatch_rows']} an optimizer step, {n['piece_rows']} a forward pass in all"
    size = f"{told['parameters']:,} parameters"
    if told["active_parameters"] != told["parameters"]:
        size += f", {told['active_parameters']:,} of them for a token"
    step = [
        ("environments", f"{config.design.environments:,}", _drawn(config)),
        ("plays", n["plays"], _played(config, n["replays"])),
        ("episodes in flight", n["in_flight"], "play.max_concurrent, or all plays"),
        ("environment steps", n["environment_steps"], "at most"),
        ("completions of the designer", n["designs"], "at most, hints included"),
        ("sampled tokens", n["sampled_tokens"], "at most"),
        ("rows that train", n["rows"], pieces),
        ("optimizer steps", n["optimizer_steps"], every),
    ]
    console.print_table(f"{config.run.name}: {told['model']}, {size}", ("a step", "", ""), step)
    whole = "every {} at its full length"
    held = [
        ("weights", "weights", ""),
        ("gradients", "gradients", ""),
        ("optimizer", "Adam", ""),
        ("reference", "reference", "the first weights, where update.kl_coef is set"),
        ("frozen", "designer", "the first weights, where run.mode is frozen-designer"),
        ("activations", "activations", f"an estimate, {whole.format('row')}"),
        ("logits", "logits", f"an estimate, {whole.format('row')}"),
        ("cache", "keys and values", _cached(config)),
        ("updating", "while updating", "at most"),
        ("playing", "while playing", "at most"),
    ]
    cells = [(what, _gib(needed[key]), note) for key, what, note in held]
    console.print_table(f"memory of a process, of {told['processes']}", ("", "", ""), cells)
    stages = ", ".join(f"{s['max_turns']} from step {s['from_step']}" for s in told["stages"])
    print(f"Turns: {stages}.")
    print(
        f"Sandbox: about {_gib(told['sandbox_memory_bytes'])} for the episodes in flight. "
        f"Checkpoints: {_gib(told['checkpoint_bytes'])} on disk."
    )
    for warning in told["warnings"]:
        console.say(f"warning: {warning}")
    print("Nothing was loaded or started.")


def _drawn(config: Config) -> str:
    if config.run.mode == "fixed":
        return f"drawn from {', '.join(config.pool.sources)}"
    return f"new ones every {config.design.replay_steps} steps"


def _played(config: Config, replays: str) -> str:
    if config.run.mode == "fixed":
        return f"{config.play.group_size} of each"
    return f"{config.play.group_size} in each arm; {replays} where nothing is designed"


def _cached(config: Config) -> str:
    if config.generation.backend == SERVER:
        return "at the vLLM server, which holds back what has no room"
    return "every completion that is sampled at its full length"


def _gib(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 28 else f"{count / (1 << 20):,.1f} MiB"
