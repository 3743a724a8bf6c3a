"""Forgetting training steps: a run that resumes finds its archive as the checkpoint left it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

_WITHIN = "BETWEEN :first AND :last"


def forget_steps(db: sqlite3.Connection, first: int, last: int) -> None:
    """Forget everything that steps recorded; what they designed again is as it was before."""
    steps = {"first": first, "last": last}
    for table, column in (
        ("plays", "step"),
        ("measurements", "step"),
        ("environments", "created_step"),
    ):
        db.execute(f"DELETE FROM {table} WHERE {column} {_WITHIN}", steps)
    _put_back(db, steps)
    # What an older version designed again has no former row.
    db.execute(
        "UPDATE environments SET designed_step = MAX(created_step, :first - 1)"
        f" WHERE designed_step {_WITHIN}",
        steps,
    )


def keep_former(db: sqlite3.Connection, env_id: str, step: int) -> None:
    """Keep an environment's row that a later step is about to write again."""
    row = db.execute(
        "SELECT * FROM environments WHERE env_id = ? AND designed_step < ?", (env_id, step)
    ).fetchone()
    if row is not None:
        values = (env_id, step, json.dumps(dict(row)))
        db.execute("INSERT OR IGNORE INTO former VALUES (?, ?, ?)", values)


def _put_back(db: sqlite3.Connection, steps: Mapping[str, int]) -> None:
    known = {row["name"] for row in db.execute("PRAGMA table_info(environments)")}
    former = db.execute(
        f"SELECT env_id, row_json, MIN(step) FROM former WHERE step {_WITHIN} AND env_id IN"
        f" (SELECT env_id FROM environments WHERE designed_step {_WITHIN}) GROUP BY env_id",
        steps,
    ).fetchall()
    for entry in former:
        row = {k: v for k, v in json.loads(entry["row_json"]).items() if k in known}
        # Not replaced: the memory is read in the order in which it was written.
        changes = ", ".join(f"{name} = :{name}" for name in row)
        db.execute(f"UPDATE environments SET {changes} WHERE env_id = :env_id", row)
    db.execute(f"DELETE FROM former WHERE step {_WITHIN}", steps)
