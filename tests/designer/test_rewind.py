"""A run that was killed in the middle of a step records that step once."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, cast

from designer import Archive, Designer


def test_rewinding_forgets_plays_past_the_checkpoint(tmp_path: Path) -> None:
    play = {
        "arm": "plain",
        "seed": 1,
        "episode_return": 1.0,
        "terminated": True,
        "truncated": False,
        "turns": 2,
    }
    path = tmp_path / "archive.sqlite"
    with Archive(path) as archive:
        designer = Designer(cast(Any, None), archive, method="structured")
        designer.record_plays("env", 3, [play])
        designer.record_plays("env", 4, [play])
        designer.rewind(3)
        designer.record_plays("env", 4, [play])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        steps = connection.execute("SELECT step FROM plays ORDER BY step").fetchall()
    assert steps == [(3,), (4,)]
