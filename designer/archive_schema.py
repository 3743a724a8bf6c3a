"""The schema of an archive, version by version, and how an older file becomes a newer one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

# Statements of each schema version; `user_version` of the file is how many were run.
MIGRATIONS = (
    """
    CREATE TABLE environments (
        env_id TEXT PRIMARY KEY,       -- program id, or refused:<step>:<number>
        created_step INTEGER NOT NULL, -- training step that designed it first
        designed_step INTEGER NOT NULL,-- training step that designed it last
        slot INTEGER NOT NULL,
        kind TEXT NOT NULL,            -- GAME, TOOL_USE, GYMNASIUM; empty when refused early
        method TEXT NOT NULL,
        skill TEXT NOT NULL,
        family TEXT NOT NULL,
        spec_json TEXT,
        source TEXT,
        hint TEXT,
        prompt TEXT NOT NULL,          -- chat messages as JSON
        completion TEXT NOT NULL,
        gate_reason TEXT NOT NULL,
        gate_detail TEXT NOT NULL,
        gate_cost_json TEXT NOT NULL,  -- wall seconds by gate
        designer_reward REAL           -- of the last measurement; NULL if there was none
    );
    CREATE INDEX environments_by_step ON environments (created_step);
    CREATE INDEX environments_by_skill ON environments (skill, gate_reason);
    CREATE TABLE plays (
        env_id TEXT NOT NULL,
        step INTEGER NOT NULL,
        arm TEXT NOT NULL CHECK (arm IN ('plain', 'hinted')),
        seed INTEGER NOT NULL,
        episode_return REAL,           -- NULL if the play was lost
        terminated INTEGER NOT NULL,
        truncated INTEGER NOT NULL,
        turns INTEGER NOT NULL
    );
    CREATE INDEX plays_by_environment ON plays (env_id, step);
    CREATE TABLE measurements (
        env_id TEXT NOT NULL,
        step INTEGER NOT NULL,
        return_plain REAL,
        return_hinted REAL,
        regret REAL,
        regret_se REAL,
        regime TEXT NOT NULL,
        n_pairs INTEGER NOT NULL,
        PRIMARY KEY (env_id, step)
    );
    """,
    """
    ALTER TABLE environments ADD COLUMN parents_json TEXT NOT NULL DEFAULT '[]'; -- env_ids
    ALTER TABLE environments ADD COLUMN operator TEXT NOT NULL DEFAULT 'new';
    -- Id of the grounding document; empty for none.
    ALTER TABLE environments ADD COLUMN document TEXT NOT NULL DEFAULT '';
    -- env_id of the refused draft that this one mends; empty for a first draft.
    ALTER TABLE environments ADD COLUMN repair_of TEXT NOT NULL DEFAULT '';
    ALTER TABLE environments ADD COLUMN round INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE environments ADD COLUMN difficulty TEXT NOT NULL DEFAULT '';
    """,
    """
    -- What the gates have against it, with the play that shows it; NULL where nothing.
    ALTER TABLE environments ADD COLUMN finding_json TEXT;
    """,
    """
    -- What a model thinks: 1 if it can be solved, 0 if not; NULL where nothing is known.
    ALTER TABLE environments ADD COLUMN opinion INTEGER;
    ALTER TABLE environments ADD COLUMN opinion_reason TEXT NOT NULL DEFAULT '';
    """,
    """
    -- Rows of `environments` as they were before a later step designed the same program again:
    -- a run that forgets that step has them back.
    CREATE TABLE former (
        env_id TEXT NOT NULL,
        step INTEGER NOT NULL,         -- training step that designed it again
        row_json TEXT NOT NULL,
        PRIMARY KEY (env_id, step)
    );
    """,
)


class ArchiveError(RuntimeError):
    """The file is not an archive that this version can use; the message says what to do."""


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring a file to the newest schema; an empty one, too.

    Raises:
        ArchiveError: If the file is newer than this version.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise ArchiveError(
            f"{path} has schema {version}, this version knows {len(MIGRATIONS)}: "
            "use a newer spadework, or another run folder"
        )
    while version < len(MIGRATIONS):
        version = _migrate_once(db)


def _migrate_once(db: sqlite3.Connection) -> int:
    """Run the next migration, whole or not at all; returns the version that then holds.

    The file is locked before its version is read: another process may be opening it.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version < len(MIGRATIONS):
            for statement in _statements(MIGRATIONS[version]):
                db.execute(statement)
            version += 1
            db.execute(f"PRAGMA user_version={version}")
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise
    return int(version)


def _statements(script: str) -> Iterator[str]:
    """Split a script at its semicolons; those in comments and texts end no statement."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
