"""A run's metrics in real trackers, offline: each row once, a resumed run included."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spadework.cli import main
from trainer.tracking_config import TrackingConfig

TINY = [
    "model.hidden_size=32",
    "model.layers=1",
    "design.environments=2",
    "design.attempts=1",
    "play.group_size=2",
    "play.rehearsed=0",
    "evaluation.episodes=0",
]


def train(folder: Path, trackio: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "spadework", "train", "cpu-demo", *TINY, *arguments]
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(trackio)}
    done = subprocess.run(
        [*command, "--wandb", "--trackio", "--run-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | offline | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.nsjail
@pytest.mark.timeout(600)
def test_trackers_get_each_step_once_although_a_run_is_resumed_from_before_it(tmp_path: Path):
    folder, trackio = tmp_path / "run", tmp_path / "trackio"
    told = train(folder, trackio, "run.steps=2", "run.checkpoint_every=1")
    # No terminal: a line a step.
    assert "step 1/2: win " in told
    assert "step 2/2: win " in told
    # As if it had been killed behind the second step's metrics and before its checkpoint.
    shutil.rmtree(folder / "checkpoints" / "step_000002")
    (folder / "summary.json").unlink()
    train(folder, trackio, "run.steps=3", "--resume")

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    expected = [(row["step"], row["agent/mean_return"]) for row in rows]
    assert from_trackio(trackio) == expected
    assert from_wandb(folder) == expected
    assert from_tensorboard(folder) == [(step, pytest.approx(value)) for step, value in expected]


def from_trackio(folder: Path) -> list[tuple[int, float]]:
    with closing(sqlite3.connect(folder / "spadework.db")) as database:
        found = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    return [(step, json.loads(metrics)["agent/mean_return"]) for step, metrics in found]


def from_wandb(folder: Path) -> list[tuple[int, float]]:
    from wandb.proto import wandb_internal_pb2

    found = []
    for log in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        for data in records_of_a_leveldb_log(log.read_bytes(), header=7):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                found.append((items["_step"], items["agent/mean_return"]))
    return found


def records_of_a_leveldb_log(log: bytes, *, header: int) -> Iterator[bytes]:
    """Blocks of 32 KiB, with pieces of: checksum (4), length (2), type (1: whole, 4: last)."""
    parts, at = b"", header
    while at + 7 <= len(log):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(log[at + 4 : at + 6], "little"), log[at + 6]
        parts += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def from_tensorboard(folder: Path) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("agent/mean_return")]


def test_a_tracker_that_is_not_installed_is_named_before_anything_starts(monkeypatch, capsys):
    monkeypatch.setattr("trainer.tracking_config.find_spec", lambda name: None)
    assert main(["train", "--trackio"]) == 2
    assert "pip install 'spadework[trackio]'" in capsys.readouterr().err
    assert TrackingConfig().missing() == ""
