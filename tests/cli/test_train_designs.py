"""`spadework train` and who designs for it: an endpoint, repairs and lineage, in nsjail."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.protocol_server import protocol_server

TINY = [
    "model.hidden_size=32",
    "model.layers=1",
    "design.environments=2",
    "design.attempts=1",
    "design.replay_steps=1",
    "play.group_size=2",
    "play.rehearsed=0",
    "play.max_turns=10",
    "evaluation.episodes=0",
]


def train(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spadework", "train", *arguments]
    return subprocess.run(
        [*command, "--backend", "nsjail", "--run-dir", str(folder), "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def rows(folder: Path, columns: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "archive.sqlite")) as archive:
        archive.row_factory = sqlite3.Row
        found = archive.execute(f"SELECT {columns} FROM environments ORDER BY rowid")
        return [dict(row) for row in found]


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.nsjail
@pytest.mark.timeout(600)
def test_an_endpoint_writes_programs_mends_them_and_they_are_played(tmp_path: Path):
    from tests.designer import programs

    def write(body: dict[str, Any]) -> str:
        if "You write hints" in body["messages"][0]["content"]:
            return "Follow the arrows."
        mends = "It was refused" in body["messages"][-1]["content"]
        # Two ladders that differ, or each would be the other's twin.
        program = programs.edited('"fell"', f'"fell {len(body["messages"][1]["content"])}"')
        return program if mends else program.replace("import random\n", "import random\nx = (\n")

    with protocol_server() as server:
        server.write = write
        endpoint = [f"endpoint.url={server.url}", "endpoint.model=m"]
        done = train(
            tmp_path / "run",
            *("cpu-demo", *TINY, *endpoint, "run.steps=1", "design.method=free_code"),
            *("design.skills=[memory,planning]", "design.repair_rounds=1"),
            *("design.max_tokens=2000", "design.twin_similarity=2"),
        )
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 2 + 2 + 2
    (row,) = metrics(tmp_path / "run")
    assert row["gates/PARSE"] == row["gates/OK"] == row["designer/mended"] == 2
    assert row["designer/valid_share"] == 1.0
    found = rows(tmp_path / "run", "env_id, skill, gate_reason, repair_of, round, document")
    assert [r["gate_reason"] for r in found] == ["PARSE", "PARSE", "OK", "OK"]
    assert [r["repair_of"] for r in found] == ["", "", *(r["env_id"] for r in found[:2])]
    assert {r["skill"] for r in found} == {"memory", "planning"}
    assert all(r["document"] for r in found)
    assert row["agent/return_n"] == 4


@pytest.mark.slow
@pytest.mark.nsjail
@pytest.mark.timeout(600)
def test_the_trained_model_makes_its_children_of_what_it_remembers(tmp_path: Path):
    done = train(
        tmp_path / "run",
        *("cpu-demo", *TINY, "run.steps=3", "design.environments=4"),
        *("design.lineage_easier=0.4", "design.lineage_theme=0.4", "design.repair_rounds=1"),
    )
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "run", "env_id, created_step, operator, parents_json, spec_json")
    specs = {r["env_id"]: json.loads(r["spec_json"]) for r in found if r["spec_json"]}
    children = [r for r in found if r["operator"] != "new"]
    assert children
    assert {r["operator"] for r in children} <= {"easier", "theme"}
    assert all(r["created_step"] > 1 for r in children)
    for child in children:
        (parent,) = json.loads(child["parents_json"])
        assert specs[parent]["f"] == specs[child["env_id"]]["f"]
        assert specs[parent] != specs[child["env_id"]]


@pytest.mark.slow
@pytest.mark.nsjail
@pytest.mark.timeout(600)
def test_tool_use_is_designed_played_and_trained_on(tmp_path: Path):
    done = train(
        tmp_path / "run",
        *("cpu-demo", *TINY, "run.steps=2", "design.kind=tool_use", "design.skills=[]"),
        *("play.max_action_tokens=8", "generation.context_tokens=2048", "evaluation.episodes=5"),
    )
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "run", "env_id, kind, skill, gate_reason")
    played = [r for r in found if r["gate_reason"] == "OK"]
    assert {r["kind"] for r in played} == {"TOOL_USE"}
    assert 2 <= len(played) <= 4, found  # of four drafts, some may be twins or too long
    # Two plays an arm.
    with closing(sqlite3.connect(tmp_path / "run" / "archive.sqlite")) as archive:
        (plays,) = archive.execute("SELECT count(*) FROM plays").fetchone()
    assert plays == len(played) * 2 * 2
    assert all(row["sandbox/lost_plays"] == 0 for row in metrics(tmp_path / "run"))
    oracle = json.loads(done.stdout)["policies"]["oracle"]
    assert oracle["mean_return"] > 0.5
