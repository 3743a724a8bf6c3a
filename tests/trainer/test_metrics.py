"""The page of metrics names what runs write, no more and no less."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

from tests.trainer.test_modes import LADDER, fixed, played
from tests.trainer.test_run import configuration, start

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training-metrics.md"
# What no run of this test does: ask an endpoint, lose a play, sample elsewhere.
ELSEWHERE = {"`endpoint.url`", "lost plays", "stale or inexact rows"}


def documented() -> dict[str, str]:
    """Name, or pattern, to when it is written."""
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]*) ?\|$", PAGE.read_text(), re.MULTILINE)
    return {name: when.strip() for name, when in rows}


def written(folder: Path) -> set[str]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {name for line in lines for name in json.loads(line)}


async def test_every_metric_of_a_run_is_on_the_page_and_the_other_way_round(tmp_path: Path):
    names: set[str] = set()
    runs: list[Any] = [
        configuration(tmp_path / "selfplay", "play.rehearsed=1", "run.steps=4"),
        configuration(
            *(tmp_path / "critic", "update.estimator=ppo", "update.credit=to_go"), "run.steps=1"
        ),
    ]
    for config in runs:
        await start(config)
        names |= written(config.folder)
    pool = fixed(tmp_path / "pool", "run.steps=1")
    await played(pool, [LADDER])
    names |= written(pool.folder)

    page = documented()
    unknown = {n for n in names if not any(fnmatch.fnmatch(n, pattern) for pattern in page)}
    assert not unknown
    stale = {
        pattern
        for pattern, when in page.items()
        if when not in ELSEWHERE and not fnmatch.filter(names, pattern)
    }
    assert not stale
