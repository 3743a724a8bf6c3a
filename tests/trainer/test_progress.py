"""How far a run is, on a terminal and without one."""

from __future__ import annotations

import io
import re

from rich.console import Console

from trainer.progress import RunProgress, step_line

ROW = {
    "step": 3,
    "agent/win_rate": 0.25,
    "agent/mean_return": 0.125,
    "sandbox/episodes": 1_200,
    "sandbox/steps_per_s": 5_310.0,
    "sandbox/lost_plays": 0,
    "generation/tokens_per_s": 812.0,
}


def shown(columns: int, *, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=columns)
    with RunProgress(console, steps=60, done=2) as progress:
        progress.begin("playing", 2)
        progress.advance()
        progress.step(ROW)
    text = console.file.getvalue()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_step_is_told_in_a_line():
    assert step_line(ROW) == "win 25% return +0.12 1,200 episodes 5.3k steps/s 812 tok/s"
    more = ROW | {"regret/mean": -0.031, "sandbox/lost_plays": 2}
    assert "return +0.12 regret -0.03 1,200" in step_line(more)
    assert step_line(more).endswith("tok/s 2 lost")


def test_a_terminal_shows_the_step_and_what_it_is_at():
    text = shown(120, terminal=True)
    assert "3/60" in text
    assert "playing" in text
    assert "1/2" in text
    assert "win 25%" in text


def test_a_terminal_of_80_columns_shows_it_too():
    assert "win 25% return +0.12 1,200 episodes 5.3k" in " ".join(shown(80, terminal=True).split())


def test_without_a_terminal_each_step_is_a_line_and_nothing_else_is():
    assert shown(200, terminal=False) == f"step 3/60: {step_line(ROW)}\n"


def test_a_part_is_shown_until_it_is_done():
    console = Console(file=io.StringIO(), force_terminal=True)
    with RunProgress(console, steps=1, done=0) as progress:
        part = progress._bars.tasks[1]
        progress.begin("validating", 2)
        assert (part.visible, part.fields["what"]) == (True, "validating")
        progress.advance()
        assert (part.visible, part.completed) == (True, 1)
        progress.advance()
        assert not part.visible
        progress.begin("hinting", 0)
        assert not part.visible
