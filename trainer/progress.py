"""How far a run is, for people: a live line where there is a terminal, else a line a step."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class RunProgress:
    """Shows steps done with what the last one gave, and what is going on in this one.

    What is designed, validated and played reports through `begin` and `advance`.
    """

    def __init__(self, console: Console, steps: int, done: int) -> None:
        """
        Args:
            console: Where to; a quiet one shows nothing.
            steps: Training steps of the whole run.
            done: Those that are done already.
        """
        self._console = console
        self._steps = steps
        self._bars = Progress(
            TextColumn("{task.fields[what]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._run = self._bars.add_task("", total=steps, completed=done, what="step")
        self._part = self._bars.add_task("", visible=False, what="")

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, description: str, total: int) -> None:
        """Show a part of the step, of so many pieces."""
        self._bars.reset(self._part, total=total, visible=total > 0, what=description)

    def advance(self) -> None:
        """Show that a piece of it is done; hide the part after the last."""
        self._bars.advance(self._part)
        (task,) = (task for task in self._bars.tasks if task.id == self._part)
        self._bars.update(self._part, visible=not task.finished)

    def step(self, row: dict[str, Any]) -> None:
        """Show what a step gave."""
        told = step_line(row)
        self._bars.update(self._run, completed=row["step"], description=told)
        if not self._console.is_terminal:
            self._console.print(f"step {row['step']}/{self._steps}: {told}", highlight=False)


def step_line(row: dict[str, Any]) -> str:
    """A step's metrics in one short line."""
    parts = [f"win {row['agent/win_rate']:.0%}", f"return {row['agent/mean_return']:+.2f}"]
    if "regret/mean" in row:
        parts.append(f"regret {row['regret/mean']:+.2f}")
    parts.append(f"{row['sandbox/episodes']:,} episodes")
    parts.append(f"{_short(row['sandbox/steps_per_s'])} steps/s")
    parts.append(f"{_short(row['generation/tokens_per_s'])} tok/s")
    if row["sandbox/lost_plays"]:
        parts.append(f"{row['sandbox/lost_plays']} lost")
    return " ".join(parts)


def _short(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"
