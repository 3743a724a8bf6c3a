"""The flow: hints in one batch, repairs with findings, budgets, which drafts are linked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import programs
import pytest

from designer import Archive, Designer, Finding, Reason, WritingSettings
from designer.drafts import DesignRequest, Draft, Exchange
from designer.repair_prompts import MAX_EXCHANGES, MAX_QUOTED_CHARACTERS, repair_messages


@dataclass
class Told:
    text: str
    sample: Any = None
    error: str = ""


class Script:
    """A writer that answers from a function, and keeps what it was asked."""

    def __init__(self, write: Callable[[DesignRequest], Told | str | None]) -> None:
        self.write = write
        self.batches: list[list[DesignRequest]] = []

    async def complete(
        self, requests: Sequence[DesignRequest], max_tokens: int, done: Any = None
    ) -> list[Told | None]:
        self.batches.append(list(requests))
        answers = [self.write(request) for request in requests]
        return [
            Told(answer, f"s{request.round}") if isinstance(answer, str) else answer
            for answer, request in zip(answers, requests, strict=True)
        ]


def is_hint(request: DesignRequest) -> bool:
    return "You write hints" in request.messages[0]["content"]


def distinct(request: DesignRequest, program: str = programs.SOUND) -> str:
    return program.replace('"over"', f'"over {request.slot}"')


@pytest.fixture
def make(client):
    archives = []

    def make(rounds: int = 0, **options: Any) -> Designer:
        archives.append(Archive(":memory:"))
        writing = WritingSettings(repair_rounds=rounds)
        # What is written here differs by a constant; only equal programs are to be twins.
        options = {"method": "free_code", "max_turns": 10, "twin_similarity": 2.0, **options}
        return Designer(client, archives[-1], writing=writing, **options)

    yield make
    for archive in archives:
        archive.close()


def rows(designer: Designer) -> list[tuple]:
    return [
        tuple(row)
        for row in designer.archive._connection.execute(
            "SELECT env_id, gate_reason, repair_of, round FROM environments ORDER BY rowid"
        )
    ]


async def test_hints_of_all_drafts_are_asked_for_in_one_batch(make):
    script = Script(lambda r: "Follow the arrows." if is_hint(r) else distinct(r))
    outcome = await make().write(script, 3, 0)
    assert [len(batch) for batch in script.batches] == [3, 3]
    assert [is_hint(r) for r in script.batches[1]] == [True] * 3
    assert [e.report.reason for e in outcome.written] == ["OK"] * 3
    assert [e.samples for e in outcome.written] == [["s0"]] * 3
    assert outcome.reasons == {"OK": 3}


async def test_a_program_that_its_text_refuses_is_worth_no_hint(make):
    script = Script(lambda r: distinct(r, programs.BAD_IMPORT if r.slot else programs.NO_PARSE))
    outcome = await make().write(script, 2, 0)
    assert len(script.batches) == 1
    assert outcome.reasons == {"PARSE": 1, "IMPORT": 1}


async def test_only_refused_drafts_are_mended_and_each_is_linked_to_what_it_mends(make):
    def write(request: DesignRequest) -> str:
        if is_hint(request):
            return "Follow the arrows."
        if request.slot == 1 and request.round < 2:
            return distinct(request, programs.edited("range(6)", f"range({request.round + 1})"))
        return distinct(request)

    script = Script(write)
    designer = make(rounds=3)
    outcome = await designer.write(script, 2, 0)
    assert [e.report.reason for e in outcome.written] == ["OK", "OK"]
    assert outcome.mended == 1
    assert outcome.written[1].samples == ["s0", "s1", "s2"]
    passed = {e.report.draft.request.slot: e.report.env_id for e in outcome.written}
    assert rows(designer) == [
        (passed[0], "OK", "", 0),
        ("refused:0:1", "ORACLE", "", 0),
        ("refused:0:2", "ORACLE", "refused:0:1", 1),
        (passed[1], "OK", "refused:0:2", 2),
    ]
    asked = [r for batch in script.batches for r in batch if r.round]
    # The prompt of a later round is not longer by the earlier one.
    repairs = [r for r in asked if not is_hint(r)]
    assert [len(r.messages) for r in repairs] == [4, 4]
    assert len({r.seed for r in repairs}) == 2


async def test_what_the_gate_found_is_told_with_its_episode(make):
    raises = programs.RAISES_ON_FUZZ
    script = Script(lambda r: "Follow the arrows." if is_hint(r) else raises)
    await make(rounds=1).write(script, 1, 0)
    (repair,) = [r for batch in script.batches for r in batch if r.round == 1 and not is_hint(r)]
    told = repair.messages[-1]["content"]
    assert "FUZZ" in told
    assert "reset(seed=" in told
    assert "encode" in told


async def test_a_hint_alone_is_mended_and_the_program_stays(make):
    hints = iter(["import random\nprint(1)", "Follow the arrows."])
    script = Script(lambda r: next(hints) if is_hint(r) else distinct(r))
    designer = make(rounds=1)
    outcome = await designer.write(script, 1, 0)
    (entry,) = outcome.written
    assert entry.report.passed
    assert entry.report.draft.hint == "Follow the arrows."
    assert entry.samples == ["s0"]
    assert [row[1:] for row in rows(designer)] == [("HINT", "", 0), ("OK", "refused:0:0", 1)]
    assert "refused" in script.batches[-1][0].messages[-1]["content"]


async def test_twins_and_held_out_worlds_are_not_mended(make):
    script = Script(lambda r: "Follow the arrows." if is_hint(r) else programs.SOUND)
    outcome = await make(rounds=2).write(script, 2, 0)
    assert [e.report.reason for e in outcome.written] == ["OK", Reason.DUPLICATE]
    assert all(r.round == 0 for batch in script.batches for r in batch)


async def test_a_repair_that_writes_another_slots_program_is_its_twin(make):
    def write(request: DesignRequest) -> str:
        if is_hint(request):
            return "Follow the arrows."
        return programs.NO_PARSE if request.slot and not request.round else programs.SOUND

    designer = make(rounds=1)
    outcome = await designer.write(Script(write), 2, 0)
    assert [e.report.reason for e in outcome.written] == ["OK", Reason.DUPLICATE]
    assert [row[1] for row in rows(designer)] == ["OK", "PARSE", "DUPLICATE"]
    # The environment's row is still that of the slot that wrote it.
    assert rows(designer)[0][3] == 0


async def test_what_the_budget_does_not_reach_for_is_counted_and_not_judged(make):
    def write(request: DesignRequest) -> str | None:
        if is_hint(request):
            return None if request.slot == 1 else "Follow the arrows."
        return None if request.slot == 2 else distinct(request)

    designer = make(rounds=1)
    outcome = await designer.write(Script(write), 3, 0)
    assert [e.report.draft.request.slot for e in outcome.written] == [0]
    assert outcome.unanswered == 2
    assert len(rows(designer)) == 1


async def test_a_prompt_that_could_not_be_answered_is_a_refused_draft(make):
    script = Script(lambda r: Told("", error="the prompt is too long"))
    outcome = await make(rounds=0).write(script, 1, 0)
    (entry,) = outcome.written
    assert entry.report.reason == Reason.PARSE
    assert "too long" in entry.report.detail


async def test_progress_is_told_for_each_part(make):
    told: list[Any] = []

    class Bar:
        def begin(self, description: str, total: int) -> None:
            told.append((description, total))

        def advance(self) -> None:
            told.append(1)

    script = Script(lambda r: "Follow the arrows." if is_hint(r) else distinct(r))
    await make().write(script, 2, 0, Bar())
    assert told == [("writing", 2), ("hinting", 2), ("validating", 2), 1, 1]


async def test_the_same_answers_give_the_same_rows(make):
    def write(request: DesignRequest) -> str:
        return "Follow the arrows." if is_hint(request) else distinct(request, programs.SHORT_GAME)

    seen = []
    for _ in range(2):
        designer = make(rounds=1)
        await designer.write(Script(write), 2, 0)
        first = rows(designer)
        # As a run does that resumes: the step is written anew, not twice.
        designer.rewind(-1)
        await designer.write(Script(write), 2, 0)
        assert rows(designer) == first
        seen.append(first)
    assert seen[0] == seen[1]


async def test_structured_drafts_are_mended_by_another_specification(make):
    script = Script(lambda r: '{"f":"grid"}' if r.round == 0 else "no")
    outcome = await make(rounds=1, method="structured", prompt_style="compact").write(script, 1, 0)
    assert outcome.reasons == {"SPEC": 1, "PARSE": 1}
    (repair,) = script.batches[-1]
    assert repair.json_schema == script.batches[0][0].json_schema
    assert [m["content"] for m in repair.messages[1:]] == ['{"f":"grid"}', "SPEC\n"]


def test_long_episodes_and_observations_are_shortened_in_a_repair(make_request):
    exchanges = tuple(Exchange(f"a{i}", "o" * 10_000, 0.0) for i in range(100))
    finding = Finding(
        Reason.FUZZ, "it raised", "catch it", "step", 3, 11, "first " * 1_000, exchanges
    )
    draft = Draft(make_request(), "text", source="a\nb\nc\nd\n")
    told = repair_messages(draft, finding, "chat")[-1]["content"]
    assert len(told) < (MAX_EXCHANGES + 3) * (MAX_QUOTED_CHARACTERS + 200)
    assert "step('a99')" in told
    assert "88 steps" in told
    assert ">    3 | c" in told
    assert "catch it" in told
