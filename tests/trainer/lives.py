"""A run in several lives: each is a process of its own that SIGKILL ends at a stated point.

`python -m tests.trainer.lives SERVER FOLDER CONFIG.json POINT...` runs the configuration with the
real designer and archive; a POINT is `NAME@STEP`, or `end` for a life that nothing ends. The
processes are forked from one that has imported everything, which takes longer than a life.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from sandbox_api import AsyncSandboxClient

from designer import Archive, Designer
from spadework.commands.train import evaluation_items, make_designer
from trainer import runfolder
from trainer.config import Config
from trainer.config_reading import config_from_dict
from trainer.grpo import SelfPlayGRPOTrainer
from trainer.run import _Session, run
from trainer.runfolder import RunFolder
from trainer.sandbox_calls import SandboxCalls
from trainer.selfplay import SelfPlay

# The step that is being done, from 1.
now = {"step": 0}


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, happens: Callable[..., bool]) -> None:
    """End the life when a function is called that `happens` says is the one."""
    original = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if happens(*args, **kwargs):
            kill()
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)


def nth(step: int, number: int) -> Callable[..., bool]:
    """The call of that number in a step."""
    calls = [0]

    def happens(*_: Any, **__: Any) -> bool:
        if now["step"] != step:
            return False
        calls[0] += 1
        return calls[0] == number

    return happens


def first_in(step: int) -> Callable[..., bool]:
    return nth(step, 1)


def _half_a_file(step: int) -> None:
    """The trajectories of a step are half written."""
    write = RunFolder.write_trajectories

    def broken(self: RunFolder, at: int, lines: Any) -> None:
        write(self, at, lines)
        if at == step:
            path = self.trajectories_path / f"step_{at:06d}.jsonl.gz"
            path.write_bytes(path.read_bytes()[:-40])
            kill()

    RunFolder.write_trajectories = broken  # type: ignore[method-assign]


def _half_a_row(step: int) -> None:
    """The row of a step is half written."""

    def broken(self: RunFolder, row: dict[str, Any]) -> None:
        with self.metrics_path.open("a") as file:
            text = json.dumps(row, default=str)
            file.write(text[: len(text) // 2] if row["step"] == step else text + "\n")
        if row["step"] == step:
            kill()

    append = RunFolder.append_metrics

    def chosen(self: RunFolder, row: dict[str, Any]) -> None:
        (broken if row["step"] == step else append)(self, row)

    RunFolder.append_metrics = chosen  # type: ignore[method-assign]


POINTS: dict[str, Callable[[int], None]] = {
    # One draft of the step is remembered, the others are not.
    "designing": lambda step: before(Designer, "remember", nth(step, 2)),
    "playing": lambda step: before(SandboxCalls, "step", nth(step, 8)),
    # The plays of one environment are in the archive, those of the others are not.
    "remembering": lambda step: before(Designer, "record_plays", nth(step, 2)),
    "trajectories": _half_a_file,
    "updating": lambda step: before(SelfPlayGRPOTrainer, "_compute_loss", nth(step, 2)),
    "recording": _half_a_row,
    # The weights are written, the optimizer is not.
    "saving": lambda step: before(
        SelfPlayGRPOTrainer, "_save_optimizer_and_scheduler", first_in(step)
    ),
    # All of the checkpoint is there but its name.
    "committing": lambda step: before(
        Path, "rename", lambda path, target: Path(target).name == f"step_{step:06d}"
    ),
    # The checkpoint is there, and the older one that it replaces, too.
    "dropping": lambda step: before(runfolder.shutil, "rmtree", first_in(step)),
    "evaluating": lambda step: before(
        _Session, "evaluate", lambda session, suite, name, console: name == "after"
    ),
}


def live(address: str, config: Config, point: str) -> None:
    """One life, from the start or the last checkpoint."""
    torch.set_num_threads(1)
    collect = SelfPlay.collect

    async def noted(self: SelfPlay, step: int) -> Any:
        now["step"] = step + 1
        return await collect(self, step)

    SelfPlay.collect = noted  # type: ignore[method-assign]
    if point != "end":
        name, _, step = point.partition("@")
        POINTS[name](int(step or 0))

    async def whole() -> None:
        async with AsyncSandboxClient(address) as client:
            with Archive(config.folder / "archive.sqlite") as archive:
                items = evaluation_items(config.play.max_turns, config.design.skills)[:2]
                designer = make_designer(config, client, archive)
                await run(config, client, designer, items, resume=True)

    asyncio.run(whole())


def main(address: str, file: str, *points: str) -> int:
    transformers.logging.set_verbosity_error()
    config = config_from_dict(json.loads(Path(file).read_text()))
    for point in points:
        child = os.fork()
        if child == 0:
            try:
                live(address, config, point)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        expected = 0 if point == "end" else -signal.SIGKILL
        ended = os.waitstatus_to_exitcode(status)
        print(f"{point}: {ended}", flush=True)
        if ended != expected:
            print(f"the life until {point} ended with {ended}, not {expected}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
