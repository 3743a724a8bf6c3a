"""`spadework train` from end to end, as small as it goes, killed and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = [
    "model.hidden_size=32",
    "model.layers=1",
    "design.environments=2",
    "design.replay_steps=1",
    "play.group_size=2",
    "evaluation.episodes=0",
]


def train(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spadework", "train", *arguments]
    return subprocess.run(
        [*command, "--backend", "process", "--run-dir", str(folder), "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_leaves_its_artifacts_and_goes_on_where_it_stopped(tmp_path: Path):
    folder = tmp_path / "run"
    done = train(folder, "cpu-demo", *TINY, "run.steps=1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1
    for name in ("config.json", "metrics.jsonl", "archive.sqlite", "report.html"):
        assert (folder / name).exists()

    again = train(folder, "cpu-demo", *TINY, "run.steps=1")
    assert again.returncode == 3
    assert "--resume" in again.stderr
    assert "Traceback" not in again.stderr

    # What no version of transformers may trip us with: files of its own among checkpoints.
    (folder / "checkpoints" / "README.md").touch()
    resumed = train(folder, "--resume", "run.steps=2")
    assert resumed.returncode == 0, resumed.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]

    finished = (folder / "summary.json").read_text()
    once_more = train(folder, "--resume")
    assert once_more.returncode == 0, once_more.stderr
    assert (folder / "summary.json").read_text() == finished


GRID = """
import random


class LineEnv:
    def __init__(self, size=2, max_turns=8):
        self.size = size

    def reset(self, seed=None):
        self.at, self.goal = 0, random.Random(seed).randint(1, self.size)
        return f"goal {self.goal}", {"actions": ["+", "-"]}

    def step(self, action):
        self.at += 1 if action == "+" else -1
        won = self.at == self.goal
        return f"at {self.at}", float(won), won, False, {}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fixed_run_trains_on_a_mixture_of_sources_and_its_report_needs_no_designs(
    tmp_path: Path,
):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "line.py").write_text(GRID)
    pool = [
        "run.mode=fixed",
        f"pool.sources=[folder:{programs}=3,suite:families]",
        "difficulty.knobs=[size=1..9]",
        "design.environments=4",
    ]
    folder = tmp_path / "run"
    done = train(folder, "cpu-demo", *TINY, *pool, "run.steps=2")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row["agent/return_n"] == 8 for row in rows)
    assert all(row["sandbox/lost_plays"] == 0 for row in rows)
    assert len(rows[-1]["difficulty/tops"]) == 1 + 48
    assert "line.py" in rows[-1]["difficulty/tops"]
    page = (folder / "report.html").read_text()
    assert "Win rate of each environment" in page
    assert "Drafts left after each gate" not in page

    (programs / "line.py").write_text(GRID.replace("import random", "import rnadom"))
    refused = train(tmp_path / "other", "cpu-demo", *TINY, *pool, "run.steps=1")
    assert refused.returncode == 3, refused.stderr
    assert "1 of 49 environments" in refused.stderr
    assert "line.py" in refused.stderr
    assert "Traceback" not in refused.stderr
