"""Each gate refuses its planted program through a real server, and a sound one passes."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import programs
import pytest
from sandbox_api import AsyncSandboxClient, Limits, Outcome, UnavailableError

from designer import DesignRequest, Draft, Gates, GateSettings, Reason
from designer.families import SKILLS, compile_spec, random_spec
from designer.probes import constant_actions, fuzz_actions, guessing
from sandbox_server import LocalServer

REQUEST = DesignRequest(
    slot=0, skill="logic", method="free_code", messages=[], json_schema=None, max_turns=10, seed=0
)
LIMITS = Limits(step_timeout_s=1.0, load_timeout_s=3.0)
QUICK = GateSettings(service_retries=1)

ALL = {**programs.PLANTED, **dict.fromkeys(programs.SOUND_PROGRAMS, Reason.OK)}


@pytest.fixture(scope="module")
def planted_reports(server):
    """All planted programs judged together, as a training step would."""

    async def judge():
        async with AsyncSandboxClient(server.address) as client:
            sources = {name: getattr(programs, name) for name in ALL}
            drafts = [Draft(REQUEST, text, source=text) for text in sources.values()]
            reports = await Gates(client, limits=LIMITS).judge(drafts)
            # Closing answers before the processes are reaped.
            for _ in range(100):
                info = await client.server_info()
                if not info.live_episodes:
                    break
                await asyncio.sleep(0.1)
            return dict(zip(sources, reports, strict=True)), info

    return asyncio.run(judge())


@pytest.mark.parametrize("name", ALL)
def test_a_planted_program_is_refused_for_its_reason(planted_reports, name):
    report = planted_reports[0][name]
    assert report.reason == ALL[name], report.detail
    assert report.passed == (ALL[name] is Reason.OK)
    assert bool(report.detail) != report.passed


@pytest.mark.parametrize("name", programs.PLANTED)
def test_a_refusal_tells_what_was_found_what_to_change_and_where(planted_reports, name):
    report = planted_reports[0][name]
    finding = report.finding
    assert (finding.reason, finding.message) == (report.reason, report.detail)
    assert finding.advice
    assert finding.phase
    if finding.phase in ("step", "verify") or finding.reason is Reason.ORACLE:
        has_solution = name not in ("NO_SOLUTION", "SOLUTION_RAISES", "HANGS_IN_SOLUTION")
        assert bool(finding.transcript) == has_solution
        assert bool(finding.opening) == (name != "NO_SOLUTION")
        assert (finding.seed is not None) == (name != "NO_SOLUTION")


@pytest.mark.parametrize(
    ("name", "phase", "passage"),
    [
        ("NO_PARSE", "parse", "self.turn +="),
        ("BAD_IMPORT", "parse", "import torch"),
        ("TWO_CLASSES", "parse", "class OtherEnv"),
        ("RAISES_ON_LOAD", "load", "raise RuntimeError"),
        ("RESET_RAISES", "reset", "0 / 0"),
        ("RAISES_ON_FUZZ", "step", "encode('ascii')"),
        ("SOLUTION_RAISES", "solution", "1 / 0"),
        ("VERIFY_RAISES", "verify", "/ 0"),
    ],
)
def test_a_finding_names_the_line_at_fault(planted_reports, name, phase, passage):
    finding = planted_reports[0][name].finding
    assert finding.phase == phase
    assert passage in getattr(programs, name).splitlines()[finding.line - 1]


def test_a_transcript_ends_where_the_program_failed(planted_reports):
    fuzzed = planted_reports[0]["RAISES_ON_FUZZ"].finding
    assert fuzzed.opening.startswith("Arrows: ")
    assert not fuzzed.transcript[-1].action.isascii()
    assert fuzzed.transcript[-1].reward is None
    nan = planted_reports[0]["LARGE_REWARD"].finding
    assert not -1 <= nan.transcript[-1].reward <= 1
    won = planted_reports[0]["CONSTANT_WINS"].finding.transcript
    assert (won[-1].reward, won[-1].terminated) == (1.0, True)
    lost = planted_reports[0]["SOLUTION_LOSES"].finding.transcript
    assert lost[-1].observation


def test_reports_count_and_time_every_gate(planted_reports):
    report = planted_reports[0]["SOUND"]
    names = ["inspect", "load", "fuzz", "replay", "oracle", "tools", "blind", "perturbed"]
    assert list(report.cost_s) == [*names, "verify", "leak", "hint"]
    assert all(seconds > 0 for seconds in report.cost_s.values())
    assert report.counts["episodes"] >= 8 + 3 + 2
    # What gate 4 has left, two blind policies and nothing done, and the perturbed solutions.
    assert report.counts["trials"] == 42 + (20 + 17 + 2) + 4 * 3
    assert report.counts["verdicts"] == 10
    assert report.oracle_steps == 6
    assert report.env_id == report.program.program_id


def test_gates_leave_no_episode_behind(planted_reports):
    assert planted_reports[1].live_episodes == 0


async def test_a_hint_that_holds_the_answer_is_refused(client, make_draft):
    # Two ladders, by parity: one way of them wins on half of the seeds.
    two = programs.edited(
        'rng.choice("LR") for _ in range(6)', 'c for c in ("LRRLLRLR", "RLLRRLRL")[seed % 2]'
    )
    hints = ["Say L R R L L R L R.", "Say each arrow in turn."]
    drafts = [make_draft(two, hint=hint) for hint in hints]
    told, fine = await Gates(client, limits=LIMITS).judge(drafts)
    assert told.reason == Reason.HINT
    assert "holds the solution" in told.detail
    assert fine.passed, fine.detail


async def test_a_hint_whose_quoted_commands_win_is_refused(client, make_draft):
    ways = "['swim', 'dive', 'swim'] if seed % 5 else ['dive', 'swim', 'swim']"
    source = programs.edited('[rng.choice("LR") for _ in range(6)]', ways)
    source = programs.edited('" ".join(self.ups) + rules', 'f"{seed}. Swim or dive."', source)
    hints = ["First 'swim', then 'dive', and 'swim' again.", "It never is 'dive', then `dive`."]
    drafts = [make_draft(source, hint=hint) for hint in hints]
    told, fine = await Gates(client, limits=LIMITS).judge(drafts)
    assert (told.reason, told.finding.transcript[-1].reward) == (Reason.HINT, 1.0)
    assert "swim" in told.detail
    assert fine.passed, fine.detail


async def test_a_turn_cap_too_low_for_the_oracle_is_refused(client, make_draft):
    (report,) = await Gates(client).judge([make_draft(programs.SOUND, max_turns=5)])
    assert report.reason == Reason.ORACLE
    assert "not terminated" in report.detail


async def test_a_draft_with_a_reason_keeps_it(client, make_draft):
    draft = dataclasses.replace(make_draft(""), source=None, reason=Reason.PARSE, detail="none")
    (report,) = await Gates(client).judge([draft])
    assert (report.reason, report.detail, report.program) == (Reason.PARSE, "none", None)


async def test_many_drafts_are_judged_a_few_at_a_time(client, make_draft):
    names = ["SHORT_GAME", "RAISES_ON_LOAD", "NO_CLASS", "NO_SOLUTION"]
    drafts = [make_draft(getattr(programs, name)) for name in names]
    reports = await Gates(client, settings=GateSettings(drafts_at_once=1)).judge(drafts)
    assert [report.reason for report in reports] == [ALL[name] for name in names]


async def test_a_program_that_hangs_holds_up_no_other(client, make_draft):
    order = []

    class Last:
        """A gate behind all others, so that it tells when a draft has passed them."""

        name = "last"

        async def judge(self, subject):
            order.append(subject.draft.request.slot)

    gates = Gates(client, limits=Limits(step_timeout_s=8.0), settings=QUICK, more=[Last()])
    drafts = [make_draft(programs.HANGS_ON_FUZZ), make_draft(programs.MAZE, slot=1)]
    judging = asyncio.create_task(gates.judge(drafts))
    while not order and not judging.done():
        await asyncio.sleep(0.02)
    assert not judging.done()
    hung, passed = await judging
    assert (hung.reason, passed.reason, order) == (Reason.FUZZ, Reason.OK, [1])
    assert "last" in passed.cost_s
    assert passed.cost_s["fuzz"] < hung.cost_s["fuzz"]


async def test_a_time_limit_counts_only_when_it_runs_out_again(client, make_draft):
    class SlowOnce:
        """The first load of this machine is too slow."""

        def __init__(self):
            self.loads = 0

        def __getattr__(self, name):
            return getattr(client, name)

        async def register_program(self, *args, **kwargs):
            self.loads += 1
            program = await client.register_program(*args, **kwargs)
            slow = dataclasses.replace(program, outcome=Outcome.TIME_LIMIT)
            return slow if self.loads == 1 else program

    slow = SlowOnce()
    (report,) = await Gates(slow).judge([make_draft(programs.SOUND)])
    assert report.passed
    assert slow.loads == 2


class FlakyClient:
    """A client whose service fails a number of times, in a chosen call."""

    def __init__(self, client, call: str, failures: int, *, by_item: bool = False) -> None:
        self._client, self._call, self._failures, self._by_item = client, call, failures, by_item

    def __getattr__(self, name):
        real = getattr(self._client, name)
        if name != self._call:
            return real

        def fails() -> bool:
            self._failures -= 1
            return self._failures >= 0

        async def call(*args, **kwargs):
            if (self._by_item and len(args[0]) < 2) or not fails():
                return await real(*args, **kwargs)
            error = UnavailableError("draining")
            if not self._by_item:
                raise error
            results = await real(*args, **kwargs)
            results[0] = dataclasses.replace(results[0], outcome=None, error=error)
            return results

        async def stream(items):
            if fails():
                raise UnavailableError("draining")
            async for result in real(items):
                yield result

        return stream if name == "step_stream" else call


@pytest.mark.parametrize("call", ["register_program", "reset", "step_stream", "verify"])
async def test_a_failing_service_is_tried_again_and_is_no_verdict(client, make_draft, call):
    drafts = [make_draft(programs.SOUND)]
    (report,) = await Gates(FlakyClient(client, call, 1), settings=QUICK).judge(drafts)
    assert report.passed, report.detail
    assert report.counts["retries"] == 1
    (report,) = await Gates(FlakyClient(client, call, 999), settings=QUICK).judge(drafts)
    assert report.reason == Reason.UNJUDGED
    assert report.finding is None
    assert "draining" in report.detail


async def test_a_fault_of_one_item_leaves_the_other_drafts_alone(client, make_draft):
    drafts = [make_draft(programs.SOUND), make_draft(programs.HIDDEN_STATE)]
    flaky = FlakyClient(client, "reset", 1, by_item=True)
    reports = await Gates(flaky, settings=QUICK).judge(drafts)
    assert [report.passed for report in reports] == [True, True]
    assert sorted(report.counts["retries"] for report in reports) == [0, 1]


async def test_what_a_program_fails_stands_although_the_service_fails_too(client, make_draft):
    huge = programs.edited(
        "if said ==",
        'if not said:\n            return "x" * 100_000, 0.0, True, False, {}\n        if said ==',
    )
    # Of the others that start together, the first is always lost.
    flaky = FlakyClient(client, "reset", 99, by_item=True)
    (report,) = await Gates(flaky, settings=QUICK).judge([make_draft(huge)])
    assert report.reason == Reason.CONTRACT, report.detail


async def test_most_structured_environments_pass_the_gates(client):

    rng = random.Random(0)
    short = dataclasses.replace(REQUEST, max_turns=8)
    drafts = []
    for skill in SKILLS:
        compiled = compile_spec(random_spec(rng, skill=skill))
        drafts.append(Draft(short, "", source=compiled.source, hint=compiled.hint))
    reports = await Gates(client).judge(drafts)
    refused = [(r.reason, r.detail) for r in reports if not r.passed]
    assert len(refused) <= 0.35 * len(reports), refused
    # A code lock of the schema's edge has one combination for all seeds.
    expected = {Reason.OK, Reason.SAME_START, Reason.BLIND_WIN, Reason.PERTURBED_WIN}
    assert {r.reason for r in reports} <= expected


@pytest.mark.nsjail
async def test_jailed_programs_get_the_same_verdicts(make_draft):
    names = ["SOUND", "HANGS_ON_LOAD", "DIES_ON_FUZZ", "HASH_ORDER", "ID_ORDER", "NO_SOLUTION"]
    with LocalServer(backend="nsjail", log_level="error") as server:
        async with AsyncSandboxClient(server.address) as client:
            drafts = [make_draft(getattr(programs, name)) for name in names]
            reports = await Gates(client, limits=LIMITS).judge(drafts)
    assert [report.reason for report in reports] == [ALL[name] for name in names]


@pytest.mark.nsjail
async def test_a_program_that_forks_behind_the_gate_for_imports_fails_in_its_jail(make_draft):
    with LocalServer(backend="nsjail", log_level="error") as server:
        async with AsyncSandboxClient(server.address) as client:
            draft = make_draft(programs.FORKS_HIDDEN)
            forks, sound = await Gates(client, limits=LIMITS).judge(
                [draft, make_draft(programs.SOUND)]
            )
    assert forks.reason == Reason.FUZZ, forks.detail
    assert forks.finding.transcript
    assert sound.passed, sound.detail


def test_fifty_distinct_fuzzed_actions_stay_within_the_programs_limit():
    assert len(set(fuzz_actions())) == 50
    assert max(len(action.encode()) for action in fuzz_actions(1000)) <= 1000


def test_guesses_come_from_the_observation_the_alphabet_or_the_listed_actions():
    policy = guessing(random.Random(0))
    guesses = {policy("go north or 17", 0) for _ in range(500)}
    assert {"\\boxed{north}", "\\boxed{17}", "\\boxed{z}", "\\boxed{Q}"} <= guesses
    listed = guessing(random.Random(0), ("left", "right"))
    assert {listed("anything", 0) for _ in range(50)} == {"left", "right"}


def test_constants_are_what_the_first_observation_names():
    assert "\\boxed{north}" in constant_actions("Say 'north' or 'south'.")
    assert constant_actions("anything", ("u", "d")) == ["u", "d"]
