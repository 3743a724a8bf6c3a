"""Each row of metrics.jsonl, sent on to trackers.

The folder is the source of all: a row is in it before it goes anywhere else. A resumed run does
steps again that were sent before it was killed, and gets the same values; what a tracker has is
not sent a second time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.tensorboard import SummaryWriter

from trainer.config import Config
from trainer.runfolder import RunFolder
from trainer.tracking_config import SINKS

SENT_FILE = "tracked.json"
_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes the numbers of training steps."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Take in one step, from 1."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class _TensorBoard:
    def __init__(self, folder: RunFolder, done: int) -> None:
        self._writer = SummaryWriter(str(folder.tensorboard_path), purge_step=done + 1)

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, config: Config, folder: RunFolder, run_id: str) -> None:
        import wandb

        self._run = wandb.init(
            project=config.tracking.project,
            name=config.run.name,
            id=run_id,
            resume="allow",
            dir=str(folder.path),
            config=config.to_dict(),
        )

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, config: Config, folder: RunFolder, run_id: str) -> None:
        import trackio

        self._run = trackio.init(
            project=config.tracking.project,
            # Runs are told apart by name alone.
            name=f"{config.run.name}-{run_id}",
            config=config.to_dict(),
            resume="allow",
            embed=False,
        )

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def close(self) -> None:
        self._run.finish()


_OPENERS: dict[str, Callable[[Config, RunFolder, str], Tracker]] = {
    "wandb": _WandB,
    "trackio": _Trackio,
}


class Tracking:
    """All trackers of a run."""

    def __init__(self, config: Config, folder: RunFolder, done: int) -> None:
        """
        Args:
            config: Which there are.
            folder: Of the run; it holds what was sent.
            done: Steps that the checkpoint has which the run goes on from.
        """
        self._folder = folder
        self._sent = folder.read_json(SENT_FILE) or {"run_id": uuid.uuid4().hex[:8]}
        self._board = _TensorBoard(folder, done)
        self._others = {
            name: _OPENERS[name](config, folder, self._sent["run_id"])
            for name in SINKS
            if getattr(config.tracking, name)
        }

    def log(self, row: dict[str, Any]) -> None:
        """Send the numbers of a row that is in metrics.jsonl."""
        step = row["step"]
        numbers = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        self._board.log(numbers, step)
        for name, tracker in self._others.items():
            if step > self._sent.get(name, 0):
                tracker.log(numbers, step)
                self._sent[name] = step
        if self._others:
            self._folder.write_json(SENT_FILE, self._sent)

    def close(self) -> None:
        """Close all; a tracker that fails at it does not fail the run, and is named."""
        self._board.close()
        for name, tracker in self._others.items():
            try:
                tracker.close()
            except Exception:
                _log.exception("%s could not be closed; metrics.jsonl has all of it", name)


@contextlib.contextmanager
def tracking(config: Config, folder: RunFolder, done: int) -> Iterator[Tracking]:
    """Trackers that are closed at the end."""
    trackers = Tracking(config, folder, done)
    try:
        yield trackers
    finally:
        trackers.close()
