"""The processes that update together: one leads, the others follow.

The first plays, designs, records and evaluates; the others hold a copy of the weights, get each
step's rows from it, and compute the gradients of their part. Launchers (torchrun, accelerate) say
by environment variables how many there are.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

# The others wait for the first while it plays: as long as a step, or a whole evaluation, takes.
LONGEST_WAIT_S = 24 * 3600


class LeaderError(RuntimeError):
    """The process that leads has failed; its own message says why."""


class DividedWeightsError(RuntimeError):
    """The weights would be divided among processes, and whoever plays needs them whole."""


def count() -> int:
    """Processes of this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this process plays and records."""
    return int(os.environ.get("RANK", "0")) == 0


def join() -> None:
    """Form a group with the other processes; nothing for one alone.

    Raises:
        DividedWeightsError: If the launcher asks for FSDP or ZeRO-3.
    """
    if count() == 1:
        return
    if divided := _division():
        raise DividedWeightsError(
            f"{divided} divides the weights among the processes, and the first one plays with "
            "whole ones; launch with DDP or ZeRO of stage 1 or 2, and set model.lora_rank if the "
            "optimizer does not fit (docs/distributed.md)"
        )
    import torch
    from accelerate import PartialState

    if torch.distributed.is_initialized():
        return
    cpu = not torch.cuda.is_available()
    if cpu:  # accelerate numbers it, and torch loads no checkpoint to a CPU with a number
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    backend = "gloo" if cpu else None
    PartialState(cpu=cpu, backend=backend, timeout=timedelta(seconds=LONGEST_WAIT_S))


def _division() -> str:
    """What divides the weights, by what the launcher has set; empty if nothing does."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return "FSDP"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() != "true":
        return ""
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if file.lower() != "none":
        stage = str(json.loads(Path(file).read_text())["zero_optimization"]["stage"])
    return "ZeRO-3" if stage == "3" else ""


def leave() -> None:
    """Part from the group, once nobody needs it any more."""
    import torch

    if count() > 1 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def share(value: Any = None) -> Any:
    """What the leading process has; every process must call it, and waits for that one."""
    if count() == 1:
        return value
    from accelerate.utils import broadcast_object_list

    (shared,) = broadcast_object_list([value if leads() else None], from_process=0)
    return shared
