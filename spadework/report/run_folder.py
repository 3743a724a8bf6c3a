"""What a run folder holds, read leniently: a killed run leaves torn and missing files.

Nothing here raises for what a file holds; every fault becomes a sentence in
`RunRecord.faults`, which the report prints.
"""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spadework.report.intervals import Estimate

# Episodes kept of each environment: this many seeds at its first and at its last step.
SEEDS_KEPT = 2
# A play is won when it ended by itself with at least this return.
WIN_RETURN = 0.99

_QUERIES = {
    "environments": "SELECT * FROM environments ORDER BY created_step, slot",
    "measurements": "SELECT * FROM measurements ORDER BY step",
    "plays": f"""
        SELECT env_id, step, arm, COUNT(*) AS all_plays, COUNT(episode_return) AS n,
            AVG(episode_return) AS mean_return,
            SUM(terminated AND episode_return >= {WIN_RETURN}) AS wins
        FROM plays GROUP BY env_id, step, arm ORDER BY step
    """,
}


@dataclass
class RunRecord:
    """A run folder in memory.

    Attributes:
        metrics: One mapping a training step, ordered by step; keys as in metrics.jsonl.
        environments: Rows of the archive's table of that name, refused drafts included.
        plays: Plays by environment, step and arm: `n` that were not lost, their
            `mean_return`, and `wins` among them.
        play_count: All plays, lost ones too.
        measurements: Rows of the archive's table of that name, ordered by step.
        trajectories: env_id -> (step, seed) -> arm -> the recorded line.
        faults: What could not be read, in sentences.
    """

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    environments: list[dict[str, Any]] = field(default_factory=list)
    plays: list[dict[str, Any]] = field(default_factory=list)
    play_count: int = 0
    measurements: list[dict[str, Any]] = field(default_factory=list)
    trajectories: dict[str, dict[tuple[int, int], dict[str, dict[str, Any]]]] = field(
        default_factory=dict
    )
    faults: list[str] = field(default_factory=list)

    @property
    def last_step(self) -> int | None:
        return self.metrics[-1]["step"] if self.metrics else None

    @property
    def finished(self) -> bool:
        """A run writes summary.json as its last act."""
        return bool(self.summary)


def number(value: Any) -> float | None:
    """The value as a finite float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def estimate(record: Any, value_key: str, interval_key: str, n_key: str = "n") -> Estimate | None:
    """A value and its 95% interval out of a JSON object; None if the value is not there."""
    if not isinstance(record, dict):
        return None
    value = number(record.get(value_key))
    if value is None:
        return None
    n = int(number(record.get(n_key)) or 0)
    interval = record.get(interval_key)
    if isinstance(interval, list) and len(interval) == 2:
        low, high = number(interval[0]), number(interval[1])
        if low is not None and high is not None:
            return Estimate(n, value, low, high)
    return Estimate(n, value, None, None)


def read_run(path: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a run folder: there is no such directory")
    run = RunRecord(path)
    run.config = _read_json(run, "config.json")
    run.summary = _read_json(run, "summary.json")
    run.evaluation = _read_json(run, "eval.json")
    run.metrics = _read_metrics(run)
    _read_archive(run)
    _read_trajectories(run)
    return run


def _read_json(run: RunRecord, name: str) -> dict[str, Any]:
    try:
        value = json.loads((run.path / name).read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        run.faults.append(f"{name} cannot be read ({error}).")
        return {}
    if isinstance(value, dict):
        return value
    run.faults.append(f"{name} holds no JSON object.")
    return {}


def _read_metrics(run: RunRecord) -> list[dict[str, Any]]:
    by_step: dict[int, dict[str, Any]] = {}
    torn = 0
    try:
        with (run.path / "metrics.jsonl").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    continue
                row = _json_object(line)
                step = number(row.get("step")) if row else None
                if row is None or step is None:
                    torn += 1
                    continue
                # A resumed run repeats the steps after its checkpoint: the last one counts.
                by_step[int(step)] = {**row, "step": int(step)}
    except FileNotFoundError:
        run.faults.append("metrics.jsonl is missing: no training step was finished.")
    except OSError as error:
        run.faults.append(f"metrics.jsonl cannot be read ({error}).")
    if torn:
        run.faults.append(f"metrics.jsonl: {torn} unreadable line{'s'[: torn > 1]} left out.")
    return [by_step[step] for step in sorted(by_step)]


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_archive(run: RunRecord) -> None:
    file = run.path / "archive.sqlite"
    if not file.exists():
        run.faults.append("archive.sqlite is missing: no environment was kept.")
        return
    uri = file.resolve().as_uri() + "?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=10.0)
    except sqlite3.Error as error:
        run.faults.append(f"archive.sqlite cannot be opened ({error}).")
        return
    connection.row_factory = sqlite3.Row
    # A model's text may hold bytes that are no UTF-8.
    connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    try:
        run.environments = _rows(run, connection, "environments")
        run.plays = _rows(run, connection, "plays")
        run.measurements = _rows(run, connection, "measurements")
        run.play_count = sum(int(row["all_plays"]) for row in run.plays)
    finally:
        connection.close()


def _rows(run: RunRecord, connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    try:
        return [dict(row) for row in connection.execute(_QUERIES[table])]
    except sqlite3.Error as error:
        run.faults.append(f"archive.sqlite: {table} cannot be read ({error}).")
        return []


def _read_trajectories(run: RunRecord) -> None:
    for file in sorted((run.path / "trajectories").glob("*.jsonl.gz")):
        try:
            for line in _gzip_lines(file, run.faults.append):
                row = _json_object(line)
                if row is not None:
                    _keep(run, row)
        except OSError as error:
            run.faults.append(f"trajectories/{file.name} cannot be read ({error}).")


def _gzip_lines(file: Path, complain: Callable[[str], None]) -> Iterator[str]:
    with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
        try:
            yield from lines
        except (EOFError, zlib.error, gzip.BadGzipFile):
            complain(f"trajectories/{file.name} ends in the middle: its readable part is used.")


def _keep(run: RunRecord, row: dict[str, Any]) -> None:
    """Keep an episode if it belongs to the first or the latest step of its environment."""
    step, seed = number(row.get("step")), number(row.get("seed"))
    if step is None or seed is None or row.get("arm") not in ("plain", "hinted"):
        return
    pairs = run.trajectories.setdefault(str(row.get("env_id")), {})
    steps = {s for s, _ in pairs}
    if steps and step not in steps and len(steps) > 1:
        for key in [k for k in pairs if k[0] == max(steps)]:
            del pairs[key]
    key = (int(step), int(seed))
    if key not in pairs and sum(s == key[0] for s, _ in pairs) >= SEEDS_KEPT:
        return
    pairs.setdefault(key, {})[row["arm"]] = row
