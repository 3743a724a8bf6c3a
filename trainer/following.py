"""What the processes do that follow the one which plays and records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from trainer import processes
from trainer.config import Config
from trainer.grpo import make_trainer
from trainer.models import load_model
from trainer.runfolder import RunFolder
from trainer.selfplay import set_seeds, update_threads


@dataclass(frozen=True)
class Start:
    """What the process that leads tells the others.

    Attributes:
        checkpoint: Where the run goes on; None at its beginning.
        over: Whether there is nothing left to do.
    """

    checkpoint: Path | None = None
    over: bool = False


def follow(config: Config) -> None:
    """Take part in the updates of a run that another process leads.

    Args:
        config: The same as there.

    Raises:
        LeaderError: If that process fails while it plays.
        ModelSourceError: If the weights cannot be had.
    """
    processes.join()
    start: Start = processes.share()
    if not start.over:
        set_seeds(config.run.seed)
        transformers_logging.disable_progress_bar()
        model, tokenizer = load_model(
            config.model, context_tokens=config.generation.context_tokens, seed=config.run.seed
        )
        folder = RunFolder(config.folder).checkpoints_path
        trainer = make_trainer(config, model, tokenizer, folder, collect=None)
        torch.set_num_threads(update_threads(config))
        checkpoint = None if start.checkpoint is None else str(start.checkpoint)
        trainer.train(resume_from_checkpoint=checkpoint)
    processes.leave()
