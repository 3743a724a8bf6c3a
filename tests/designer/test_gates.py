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

PLANTED = {
    "NO_PARSE": Reason.PARSE,
    "BAD_IMPORT": Reason.IMPORT,
    "COMPUTED_IMPORT": Reason.IMPORT,
    "TWO_CLASSES": Reason.CONTRACT,
    "NO_CLASS": Reason.CONTRACT,
    "RAISES_ON_LOAD": Reason.LOAD,
    "HANGS_ON_LOAD": Reason.LOAD,
    "RESET_RAISES": Reason.CONTRACT,
    "EMPTY_OBSERVATION": Reason.CONTRACT,
    "LARGE_REWARD": Reason.CONTRACT,
    "HUGE_OBSERVATION": Reason.CONTRACT,
    "RAISES_ON_FUZZ": Reason.FUZZ,
    "HANGS_ON_FUZZ": Reason.FUZZ,
    "DIES_ON_FUZZ": Reason.FUZZ,
    "HASH_ORDER": Reason.NONDETERMINISTIC,
    "CLOCK": Reason.NONDETERMINISTIC,
    "SAME_START": Reason.SAME_START,
    "NO_SOLUTION": Reason.ORACLE,
    "SOLUTION_RAISES": Reason.ORACLE,
    "SOLUTION_LOSES": Reason.ORACLE,
    "SHORT_GAME": Reason.ORACLE,
    "CONSTANT_WINS": Reason.BLIND_WIN,
    "NOTHING_WINS": Reason.BLIND_WIN,
    "RANDOM_WINS": Reason.BLIND_WIN,
    "HIDDEN_STATE": Reason.OK,
    "SOUND": Reason.OK,
}


@pytest.fixture(scope="module")
def planted_reports(server):
    """All planted programs judged together, as a training step would."""
    from sandbox_api import AsyncSandboxClient

    async def judge():
        async with AsyncSandboxClient(server.address) as client:
            sources = {name: getattr(programs, name) for name in PLANTED}
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


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_program_is_refused_for_its_reason(planted_reports, name):
    report = planted_reports[0][name]
    assert report.reason == PLANTED[name], report.detail
    assert report.passed == (PLANTED[name] is Reason.OK)
    assert bool(report.detail) != report.passed


def test_reports_count_and_time_every_gate(planted_reports):
    report = planted_reports[0]["SOUND"]
    assert set(report.cost_s) == {"inspect", "load", "fuzz", "replay", "oracle", "blind"}
    assert all(seconds > 0 for seconds in report.cost_s.values())
    assert report.counts["episodes"] >= 8 + 4 + 42
    assert report.counts["verdicts"] == 6
    assert report.oracle_steps == 6
    assert report.env_id == report.program.program_id


def test_gates_leave_no_episode_behind(planted_reports):
    assert planted_reports[1].live_episodes == 0


async def test_a_hint_that_holds_the_answer_is_refused(client, make_draft):
    fixed = programs.edited('rng.choice("LR") for _ in range(6)', 'c for c in "LRRLLRL"')
    fixed = programs.edited(" + rules", " + str(seed) + rules", fixed)
    drafts = [
        make_draft(fixed, hint="Say L R R L L R L."),
        make_draft(fixed, hint="Say each arrow in turn."),
    ]
    told, fine = await Gates(client, limits=LIMITS).judge(drafts)
    assert told.reason == Reason.HINT
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
    assert [report.reason for report in reports] == [PLANTED[name] for name in names]


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

        async def call(*args, **kwargs):
            if self._failures <= 0:
                return await real(*args, **kwargs)
            self._failures -= 1
            error = UnavailableError("draining")
            if not self._by_item:
                raise error
            results = await real(*args, **kwargs)
            results[0] = dataclasses.replace(results[0], outcome=None, error=error)
            return results

        return call


@pytest.mark.parametrize("call", ["register_program", "reset", "step", "verify"])
async def test_a_failing_service_is_tried_again_and_is_no_verdict(client, make_draft, call):
    drafts = [make_draft(programs.SOUND)]
    (report,) = await Gates(FlakyClient(client, call, 1), settings=QUICK).judge(drafts)
    assert report.passed, report.detail
    assert report.counts["retries"] == 1
    (report,) = await Gates(FlakyClient(client, call, 99), settings=QUICK).judge(drafts)
    assert report.reason == Reason.UNJUDGED
    assert "draining" in report.detail


async def test_a_fault_of_one_item_leaves_the_other_drafts_alone(client, make_draft):
    drafts = [make_draft(programs.SOUND), make_draft(programs.HIDDEN_STATE)]
    flaky = FlakyClient(client, "reset", 1, by_item=True)
    first, second = await Gates(flaky, settings=QUICK).judge(drafts)
    assert first.passed
    assert first.counts["retries"] == 1
    assert second.passed
    assert not second.counts["retries"]


async def test_what_a_program_fails_stands_although_the_service_fails_too(client, make_draft):
    flaky = FlakyClient(client, "reset", 99, by_item=True)
    (report,) = await Gates(flaky, settings=QUICK).judge([make_draft(programs.HUGE_OBSERVATION)])
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
    assert {r.reason for r in reports} <= {Reason.OK, Reason.SAME_START, Reason.BLIND_WIN}


@pytest.mark.nsjail
async def test_jailed_programs_get_the_same_verdicts(make_draft):
    names = ["SOUND", "HANGS_ON_LOAD", "DIES_ON_FUZZ", "HASH_ORDER", "NO_SOLUTION"]
    with LocalServer(backend="nsjail", log_level="error") as server:
        async with AsyncSandboxClient(server.address) as client:
            drafts = [make_draft(getattr(programs, name)) for name in names]
            reports = await Gates(client, limits=LIMITS).judge(drafts)
    assert [report.reason for report in reports] == [PLANTED[name] for name in names]


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
