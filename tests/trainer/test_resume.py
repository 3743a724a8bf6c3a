"""A run that is killed anywhere and resumed is the run that nobody killed, to the last bit."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sandbox_server import LocalServer
from trainer.config import Config
from trainer.config_reading import load_config
from trainer.runfolder import RunFolder

SHRUNK = [
    *("model.hidden_size=16", "model.layers=1", "model.heads=2", "model.intermediate_size=32"),
    *("design.environments=3", "design.replay_steps=2", "design.attempts=2", "run.steps=6"),
    *("design.skills=[spatial]", "play.group_size=4", "play.max_turns=10", "play.rehearsed=2"),
    *("evaluation.episodes=4", "update.minibatches=2", "update.accumulation=1"),
    # Whatever has a memory of its own.
    *("play.rehearsal=prioritised", "design.novelty_weight=0.3", "design.lineage_harder=0.5"),
    *("design.lineage_crossover=0.3", "design.reward=learning_potential"),
    "design.hinted_floor=-1",
    # What is judged is no matter here, and takes the most time.
    *("design.gates=load", "run.checkpoint_every=2"),
]

# Every point at which something is half done, in steps with and without designing, before the
# first checkpoint and after the last.
POINTS = [
    *("designing@1", "playing@2", "saving@2", "recording@3", "updating@4", "committing@4"),
    *("designing@5", "remembering@5", "trajectories@6", "dropping@6", "evaluating", "end"),
]

CASES = {
    "whole weights": (["update.estimator=ppo", "update.step_rewards=true"], POINTS),
    "adapters with dropout and a reference": (
        ["model.lora_rank=2", "model.lora_dropout=0.2", "update.kl_coef=0.01"],
        ["updating@2", "designing@3", "playing@4", "end"],
    ),
    "frozen designer": (
        ["run.mode=frozen-designer", "run.checkpoint_every=1"],
        ["playing@3", "designing@5", "end"],
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with closing(LocalServer(backend="process")) as server:
        yield server.address


def run_lives(server: str, config: Config, points: list[str]) -> None:
    config.folder.mkdir(parents=True)
    file = config.folder.parent / f"{config.run.name}.json"
    file.write_text(json.dumps(config.to_dict()))
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.lives", server, str(file), *points],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def metrics(config: Config) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if not k.startswith("time") and not k.endswith("_per_s")}
        for row in RunFolder(config.folder).metrics()
    ]


def archive(config: Config) -> dict[str, list[dict[str, Any]]]:
    with closing(sqlite3.connect(config.folder / "archive.sqlite")) as db:
        db.row_factory = sqlite3.Row
        tables = {}
        for table in ("environments", "plays", "measurements"):
            rows = [dict(row) for row in db.execute(f"SELECT * FROM {table}")]
            for row in rows:
                row.pop("gate_cost_json", None)  # seconds
            tables[table] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
        return tables


def trajectories(config: Config) -> dict[str, list[str]]:
    found = {}
    for path in sorted((config.folder / "trajectories").iterdir()):
        with gzip.open(path, "rt") as file:
            found[path.name] = list(file)
    return found


def weights(config: Config) -> dict[str, torch.Tensor]:
    checkpoint = RunFolder(config.folder).newest_checkpoint()
    (file,) = checkpoint.glob("*.safetensors")
    return load_file(file)


def optimizer(config: Config) -> Any:
    checkpoint = RunFolder(config.folder).newest_checkpoint()
    return torch.load(checkpoint / "optimizer.pt", weights_only=True)


def state(config: Config) -> dict[str, Any]:
    checkpoint = RunFolder(config.folder).newest_checkpoint()
    return json.loads((checkpoint / "selfplay.json").read_text())


def curves(config: Config) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(config.folder / "tensorboard"))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not tag.startswith("time") and not tag.endswith("_per_s")
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_anywhere_is_the_run_that_nobody_killed(tmp_path: Path, server: str, case):
    overrides, points = CASES[case]
    config = load_config("cpu-demo", [*SHRUNK, *overrides, f"run.root={tmp_path}"])
    whole = replace(config, run=replace(config.run, name="whole"))
    broken = replace(config, run=replace(config.run, name="broken"))
    run_lives(server, whole, ["end"])
    run_lives(server, broken, points)

    assert len(metrics(whole)) == config.run.steps
    # There was something to be lost: returns, rewards of designers, worlds played again.
    assert any(any(row.get("designer/rewards", ())) for row in metrics(whole))
    assert sum("agent/mean_return_rehearsed" in row for row in metrics(whole)) >= 3
    for row, expected in zip(metrics(broken), metrics(whole), strict=True):
        assert row == expected
    for table, rows in archive(whole).items():
        assert archive(broken)[table] == rows, table
    assert trajectories(broken) == trajectories(whole)
    ours, theirs = weights(broken), weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    torch.testing.assert_close(optimizer(broken), optimizer(whole), rtol=0, atol=0)
    assert state(broken) == state(whole)
    assert curves(broken) == curves(whole)
    evaluations = [RunFolder(c.folder).read_json("eval.json") for c in (broken, whole)]
    assert evaluations[0] == evaluations[1]
