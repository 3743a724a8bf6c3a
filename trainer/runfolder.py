"""The files of a run, written so that a kill at any moment leaves them consistent.

A checkpoint is complete when its folder has its final name: everything is written under
another name first, and a rename commits it. What lies past the last checkpoint (rows of
metrics, trajectories) is dropped when the run resumes, as those steps are done again.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STATE_FILE = "selfplay.json"


class RunExistsError(RuntimeError):
    """The run folder already holds a run; the message says how to go on."""


class RunFolder:
    """Paths and formats of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.archive_path = path / "archive.sqlite"
        self.tensorboard_path = path / "tensorboard"
        self.trajectories_path = path / "trajectories"
        self.checkpoints_path = path / "checkpoints"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.json").is_file()

    def begin(self, config: dict[str, Any], *, resume: bool) -> Path | None:
        """Make the folder ready, and find where to resume.

        Returns:
            The newest complete checkpoint, or None to start from the beginning.

        Raises:
            RunExistsError: If a run is there and `resume` is off.
        """
        if self.exists and not resume:
            raise RunExistsError(
                f"{self.path} already holds a run; resume it (--resume), choose another name "
                "(run.name=...) or remove the folder"
            )
        for folder in (self.trajectories_path, self.checkpoints_path):
            folder.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", config)
        checkpoint = self.newest_checkpoint()
        self.drop_after(checkpoint_step(checkpoint) if checkpoint else 0)
        return checkpoint

    def finished(self, steps: int) -> dict[str, Any] | None:
        """The summary of a run that has done all its steps and was evaluated; else None."""
        try:
            summary = json.loads((self.path / "summary.json").read_text())
        except (OSError, json.JSONDecodeError):
            return None
        return summary if summary.get("steps") == steps else None

    def newest_checkpoint(self) -> Path | None:
        """The complete checkpoint of the latest step."""
        complete = sorted(self.checkpoints_path.glob("step_*"))
        return complete[-1] if complete else None

    def commit_checkpoint(
        self, written: Path, step: int, state: dict[str, Any], *, keep: int
    ) -> None:
        """Give a checkpoint that TRL wrote our state and its final name; drop old ones."""
        _write_synced(written / STATE_FILE, _json(state))
        final = self.checkpoints_path / f"step_{step:06d}"
        if final.exists():
            shutil.rmtree(final)
        written.rename(final)
        for old in sorted(self.checkpoints_path.glob("step_*"))[:-keep]:
            shutil.rmtree(old)

    def drop_after(self, step: int) -> None:
        """Forget everything recorded past a step, and unfinished checkpoints."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        _write_synced(self.metrics_path, "".join(_json(row) + "\n" for row in rows))
        for file in self.trajectories_path.glob("step_*.jsonl.gz"):
            if int(file.name[5:11]) > step:
                file.unlink()
        for folder in self.checkpoints_path.iterdir():
            # TRL leaves files of its own among them.
            if folder.is_dir() and not folder.name.startswith("step_"):
                shutil.rmtree(folder)

    def metrics(self) -> list[dict[str, Any]]:
        """Rows recorded so far; a row cut by a kill is left out."""
        if not self.metrics_path.is_file():
            return []
        rows = []
        for line in self.metrics_path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one step's row."""
        with self.metrics_path.open("a") as file:
            file.write(_json(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write_trajectories(self, step: int, lines: Iterable[dict[str, Any]]) -> None:
        """Write one step's trajectories."""
        path = self.trajectories_path / f"step_{step:06d}.jsonl.gz"
        with gzip.open(path, "wt", compresslevel=3) as file:
            for line in lines:
                file.write(_json(line) + "\n")

    def write_json(self, name: str, value: Any) -> None:
        """Write a whole JSON file, replacing an older one at once."""
        _write_synced(self.path / name, _json(value, indent=1))

    def read_json(self, name: str) -> Any | None:
        """Read a JSON file; None if there is none."""
        path = self.path / name
        return json.loads(path.read_text()) if path.is_file() else None


def checkpoint_step(checkpoint: Path) -> int:
    """Training steps that a checkpoint has behind it."""
    return int(checkpoint.name.removeprefix("step_"))


def _write_synced(path: Path, text: str) -> None:
    scratch = path.with_name(path.name + ".part")
    with scratch.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _json(value: Any, **options: Any) -> str:
    return json.dumps(_without_nan(value), allow_nan=False, **options)


def _without_nan(value: Any) -> Any:
    """NaN marks what there was nothing to measure from; JSON has null for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return value
