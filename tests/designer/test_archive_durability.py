"""The archive outlives old versions, readers beside the writer, and writers that are killed."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from designer import Archive
from designer.archive_schema import MIGRATIONS
from tests.designer.archive_processes import KILLS, PAIRS

TIMEOUT_S = 120


def start(role: str, path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.designer.archive_processes", role, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def dump(path, query: str) -> list[tuple]:
    connection = sqlite3.connect(path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


# The statements of schema 1 as they were released; never to be edited.
SCHEMA_1 = """
CREATE TABLE environments (
    env_id TEXT PRIMARY KEY, created_step INTEGER NOT NULL, designed_step INTEGER NOT NULL,
    slot INTEGER NOT NULL, kind TEXT NOT NULL, method TEXT NOT NULL, skill TEXT NOT NULL,
    family TEXT NOT NULL, spec_json TEXT, source TEXT, hint TEXT, prompt TEXT NOT NULL,
    completion TEXT NOT NULL, gate_reason TEXT NOT NULL, gate_detail TEXT NOT NULL,
    gate_cost_json TEXT NOT NULL, designer_reward REAL
);
CREATE INDEX environments_by_step ON environments (created_step);
CREATE INDEX environments_by_skill ON environments (skill, gate_reason);
CREATE TABLE plays (
    env_id TEXT NOT NULL, step INTEGER NOT NULL,
    arm TEXT NOT NULL CHECK (arm IN ('plain', 'hinted')), seed INTEGER NOT NULL,
    episode_return REAL, terminated INTEGER NOT NULL, truncated INTEGER NOT NULL,
    turns INTEGER NOT NULL
);
CREATE INDEX plays_by_environment ON plays (env_id, step);
CREATE TABLE measurements (
    env_id TEXT NOT NULL, step INTEGER NOT NULL, return_plain REAL, return_hinted REAL,
    regret REAL, regret_se REAL, regime TEXT NOT NULL, n_pairs INTEGER NOT NULL,
    PRIMARY KEY (env_id, step)
);
INSERT INTO environments VALUES ('a', 0, 2, 1, 'GAME', 'code', 'logic', '', NULL,
    'class AEnv: pass', 'Look left.', '[]', 'text', 'OK', '', '{"load": 0.5}', 0.25);
INSERT INTO environments VALUES ('refused:1:0', 1, 1, 0, '', 'code', 'logic', '', NULL,
    NULL, NULL, '[]', 'text', 'PARSE', 'no Python', '{}', NULL);
INSERT INTO plays VALUES ('a', 0, 'plain', 7, NULL, 0, 0, 3);
INSERT INTO measurements VALUES ('a', 0, 0.5, 0.75, 0.25, 0.125, 'frontier', 4);
PRAGMA user_version = 1;
"""
TABLES = ("environments", "plays", "measurements")


def test_a_file_of_schema_1_migrates_and_loses_nothing(tmp_path):
    path = tmp_path / "archive.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    connection.close()
    before = {table: dump(path, f"SELECT * FROM {table}") for table in TABLES}

    with Archive(path) as archive:
        (kept,) = archive.sample_memory("logic", 1, random.Random(0))
        assert (kept.env_id, kept.hint, kept.score) == ("a", "Look left.", 0.125)

    assert dump(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    for table in TABLES:
        after = dump(path, f"SELECT * FROM {table}")
        assert [row[: len(before[table][0])] for row in after] == before[table]
    assert (
        dump(path, "SELECT parents_json, operator, repair_of, round FROM environments")
        == [("[]", "new", "", 0)] * 2
    )


def test_a_file_that_several_open_at_once_migrates_once(tmp_path):
    path = tmp_path / "archive.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    connection.close()
    with ThreadPoolExecutor(8) as pool:
        for archive in pool.map(Archive, [path] * 8):
            archive.close()
    assert dump(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


def test_readers_in_other_processes_see_whole_steps_while_a_writer_writes(tmp_path):
    path = tmp_path / "archive.sqlite"
    writer = start("write", path)
    try:
        assert writer.stdout.readline() == "0\n"
        readers = [start("read", path) for _ in range(2)]
        for reader in readers:
            _, errors = reader.communicate(timeout=TIMEOUT_S)
            assert reader.returncode == 0, errors
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()


def test_a_writer_killed_again_and_again_corrupts_nothing_and_keeps_what_it_committed(tmp_path):
    path = tmp_path / "archive.sqlite"
    output, errors = start("kill", path).communicate(timeout=TIMEOUT_S)
    killed = [json.loads(line) for line in output.splitlines()]

    assert len(killed) == KILLS, errors
    assert {one["integrity"] for one in killed} == {"ok"}
    told = {step for one in killed for step in one["steps"]}
    assert set(dump(path, "SELECT COUNT(*) FROM plays GROUP BY step")) == {(2 * PAIRS,)}
    measured = dump(path, "SELECT step, n_pairs FROM measurements")
    assert told <= {step for step, _ in measured}
    assert {pairs for _, pairs in measured} == {PAIRS}
