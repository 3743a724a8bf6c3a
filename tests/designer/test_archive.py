"""The archive keeps what it is told, once, across resumes and for readers beside the writer."""

from __future__ import annotations

import dataclasses
import json
import random
import sqlite3

import pytest
from sandbox_api import Outcome, Program, ProgramKind

from designer import Archive, ArchiveError, Draft, GateReport, Reason
from designer.families import compile_spec, random_spec


@pytest.fixture
def archive(tmp_path):
    with Archive(tmp_path / "run" / "archive.sqlite") as opened:
        yield opened


@pytest.fixture
def make_report(make_request):
    """Makes the verdict on a structured draft."""

    def make(number: int = 0, reason: Reason = Reason.OK) -> GateReport:
        compiled = compile_spec(random_spec(random.Random(number), skill="logic"))
        draft = Draft(
            make_request(8, "structured", slot=number),
            json.dumps(compiled.spec),
            source=compiled.source,
            hint=compiled.hint,
            family=compiled.family,
            spec=compiled.spec,
        )
        program = Program(f"program-{number}", Outcome.COMPLETED, kind=ProgramKind.GAME)
        return GateReport(draft, reason, "why", program, {"load": 0.25}, env_id=program.program_id)

    return make


def rows(archive: Archive, query: str) -> list[tuple]:
    with sqlite3.connect(archive.path) as connection:
        result = connection.execute(query).fetchall()
    connection.close()
    return result


def play(seed: int, arm: str = "plain", episode_return: float | None = 1.0) -> dict:
    return {
        "arm": arm,
        "seed": seed,
        "episode_return": episode_return,
        "terminated": episode_return is not None,
        "truncated": False,
        "turns": 3,
    }


def measure(
    archive: Archive,
    env_id: str,
    step: int,
    regret: float,
    error: float,
    *,
    regime: str = "frontier",
) -> None:
    archive.record_measurement(
        env_id,
        step,
        return_plain=0.5,
        return_hinted=0.5 + regret,
        regret=regret,
        regret_se=error,
        regime=regime,
        designer_reward=0.75,
    )


def test_passed_and_refused_drafts_are_kept(archive, make_report):
    assert archive.record_design(make_report(1), 0, 0) == "program-1"
    assert archive.record_design(make_report(2, Reason.ORACLE), 0, 1) == "refused:0:1"
    assert archive.reason_counts() == {"OK": 1, "ORACLE": 1}
    (row,) = rows(
        archive,
        "SELECT kind, method, skill, spec_json, gate_detail, gate_cost_json, prompt"
        " FROM environments WHERE env_id = 'program-1'",
    )
    assert row[:3] == ("GAME", "structured", "logic")
    assert row[4:6] == ("why", '{"load": 0.25}')
    assert json.loads(row[6]) == [{"role": "user", "content": "design"}]
    assert len(archive.programs()) == 1


def test_writing_a_step_again_replaces_its_rows(archive, make_report):
    for _ in range(2):
        archive.discard_step(3)
        archive.record_design(make_report(1), 3, 0)
        archive.record_design(make_report(2, Reason.FUZZ), 3, 1)
        archive.record_plays("program-1", 3, [play(7), play(7, "hinted"), play(8, "plain", None)])
        measure(archive, "program-1", 3, 0.1, 0.05)
    assert rows(archive, "SELECT COUNT(*) FROM environments") == [(2,)]
    assert rows(archive, "SELECT COUNT(*), SUM(episode_return IS NULL) FROM plays") == [(3, 1)]
    assert rows(archive, "SELECT n_pairs FROM measurements") == [(1,)]
    assert rows(archive, "SELECT MAX(designer_reward) FROM environments") == [(0.75,)]


def test_an_environment_designed_again_keeps_its_first_step(archive, make_report):
    archive.record_design(make_report(1), 2, 0)
    archive.record_design(make_report(1), 6, 0)
    query = "SELECT created_step, designed_step FROM environments"
    assert rows(archive, query) == [(2, 6)]
    archive.discard_from(5)
    assert rows(archive, query) == [(2, 2)]


def test_a_resume_forgets_what_came_after(archive, make_report):
    for step in range(4):
        archive.record_design(make_report(step), step, 0)
        archive.record_plays(f"program-{step}", step, [play(1)])
        measure(archive, f"program-{step}", step, 0.1, 0.1)
    assert archive.next_step() == 4
    archive.discard_from(2)
    assert archive.next_step() == 2
    for table, column in (("environments", "created_step"), ("plays", "step")):
        assert rows(archive, f"SELECT MAX({column}), COUNT(*) FROM {table}") == [(1, 2)]


def test_memory_ranks_by_the_lower_bound_of_the_regret(archive, make_report):
    for number, (regret, error) in enumerate([(0.9, 0.9), (0.4, 0.1), (0.2, 0.01), (0.0, 0.0)]):
        archive.record_design(make_report(number), 0, number)
        measure(archive, f"program-{number}", 0, regret, error)
    drawn = archive.sample_memory("logic", 2, random.Random(0))
    assert drawn[0].env_id == "program-1"
    assert drawn[0].score == pytest.approx(0.3)
    assert drawn[0].regime == "frontier"
    assert len({entry.env_id for entry in drawn}) == 2
    assert archive.sample_memory("math", 2, random.Random(0)) == []
    assert archive.sample_memory("logic", 2, random.Random(0), before_step=0) == []


def test_what_only_its_password_opens_leads_no_prompt(archive, make_report):
    for number, (regret, regime) in enumerate([(1.0, "password_only"), (0.2, "frontier")]):
        archive.record_design(make_report(number), 0, number)
        measure(archive, f"program-{number}", 0, regret, 0.0, regime=regime)
    (first,) = archive.sample_memory("logic", 1, random.Random(0))
    assert first.env_id == "program-1"


def test_a_refused_draft_is_drawn_from_those_that_say_something(archive, make_report):
    assert archive.sample_refused("logic", random.Random(0)) is None
    for number, reason in enumerate((Reason.PARSE, Reason.LEAK, Reason.UNJUDGED)):
        archive.record_design(make_report(number, reason=reason), number, 0)
    drawn = archive.sample_refused("logic", random.Random(0))
    assert drawn is not None
    assert drawn.why.startswith("LEAK: ")
    assert archive.sample_refused("math", random.Random(0)) is None
    assert archive.sample_refused("logic", random.Random(0), before_step=1) is None


def test_numbers_that_are_not_finite_become_null(archive, make_report):
    archive.record_design(make_report(1), 0, 0)
    measure(archive, "program-1", 0, float("nan"), float("inf"))
    assert rows(archive, "SELECT regret, regret_se FROM measurements") == [(None, None)]


def test_a_reader_sees_committed_rows_while_the_writer_holds_the_file(archive, make_report):
    archive.record_design(make_report(1), 0, 0)
    assert rows(archive, "PRAGMA journal_mode") == [("wal",)]
    assert rows(archive, "SELECT COUNT(*) FROM environments") == [(1,)]


def test_an_archive_opens_again_and_a_newer_one_is_refused(tmp_path, make_report):
    path = tmp_path / "archive.sqlite"
    with Archive(path) as archive:
        archive.record_design(make_report(1), 0, 0)
    with Archive(path) as archive:
        assert archive.next_step() == 1
        archive._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ArchiveError, match="newer"):
        Archive(path)


def test_forgetting_a_step_gives_back_what_it_designed_again(archive, make_report):
    first = make_report(1)
    archive.record_design(first, 1, 0)
    archive.record_design(make_report(2), 1, 1)
    archive.record_opinion("program-1", True, "short")
    tables = ("environments", "plays", "measurements", "former")
    before = {table: rows(archive, f"SELECT * FROM {table} ORDER BY env_id") for table in tables}

    def again(step: int) -> None:
        request = dataclasses.replace(first.draft.request, document=f"d{step}", slot=5)
        draft = dataclasses.replace(first.draft, request=request, hint=f"hint {step}")
        archive.record_design(dataclasses.replace(first, draft=draft), step, 0)
        archive.record_opinion("program-1", False, "long")
        archive.record_plays("program-1", step, [play(1)])

    again(3)
    third = {table: rows(archive, f"SELECT * FROM {table} ORDER BY env_id") for table in tables}
    again(4)
    again(5)
    assert archive.document_counts(before_step=6) == {"d5": 1}
    archive.discard_from(4)
    assert {t: rows(archive, f"SELECT * FROM {t} ORDER BY env_id") for t in tables} == third
    archive.discard_step(3)
    assert {t: rows(archive, f"SELECT * FROM {t} ORDER BY env_id") for t in tables} == before
    assert archive.document_counts(before_step=6) == {}
    archive.discard_from(1)
    assert not any(rows(archive, f"SELECT * FROM {table}") for table in tables)
