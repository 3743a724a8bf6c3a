"""The gates of tool use: each refuses its planted program, and sound ones pass."""

from __future__ import annotations

import asyncio

import pytest
import tool_programs
from sandbox_api import AsyncSandboxClient

from designer import DesignRequest, Draft, Gates, Reason
from designer.criterion_types import impossible_comparisons, impossible_declared
from designer.tool_values import tells

REQUEST = DesignRequest(0, "state", "free_code", [], None, 12, 0, kind="tool_use")


@pytest.fixture(scope="module")
def reports(server):
    names = [*tool_programs.PLANTED, *tool_programs.SOUND_PROGRAMS]
    sources = [getattr(tool_programs, name) for name in names]

    async def judge():
        async with AsyncSandboxClient(server.address) as client:
            drafts = [Draft(REQUEST, source, source=source) for source in sources]
            return dict(zip(names, await Gates(client).judge(drafts), strict=True))

    return asyncio.run(judge())


@pytest.mark.parametrize("name", tool_programs.SOUND_PROGRAMS)
def test_sound_tool_use_passes_every_gate(reports, name):
    assert reports[name].passed, (reports[name].reason, reports[name].detail)


@pytest.mark.parametrize("name", tool_programs.PLANTED)
def test_planted_tool_use_is_refused_for_its_reason_and_told_why(reports, name):
    report = reports[name]
    assert report.reason == tool_programs.PLANTED[name], report.detail
    finding = report.finding
    assert finding.message == report.detail
    assert finding.advice
    assert finding.phase in ("reset", "solution", "step")
    assert finding.seed is not None
    assert finding.opening
    assert bool(finding.transcript) == (finding.phase != "reset")


@pytest.mark.parametrize(
    ("name", "passage"),
    [
        ("MET_AT_RESET", "message 0 holds at reset"),
        ("WRONG_TYPE", "grams is of type int, and never == a value of type str"),
        ("WRONG_TYPE_IN_FUNCTION", "self.total == '1': int == str never holds"),
        ("NEVER_SET", "nothing in the program sets self.dispatched"),
        ("INSIDE_A_TEXT", "goes into a value of type str"),
        ("NO_ORDER", "not supported between instances of 'int' and 'str'"),
        ("CODE_UNTOLD", "the code that send is called with is 'P"),
        ("WEIGHT_UNTOLD", "the answer 2 is '"),
    ],
)
def test_a_finding_says_what_is_wrong(reports, name, passage):
    assert passage in reports[name].detail


def test_a_comparison_in_a_criterion_is_found_at_its_line(reports):
    finding = reports["WRONG_TYPE_IN_FUNCTION"].finding
    line = tool_programs.WRONG_TYPE_IN_FUNCTION.splitlines()[finding.line - 1]
    assert "self.total ==" in line


STATE = {"rows": {"a": {"n": "int"}, "b": {"n": "int"}}, "log": "list", "name": "NoneType"}


@pytest.mark.parametrize(
    "criterion",
    [
        "self.rows['a']['n'] == 1.5",
        "self.rows[key]['n'] == True",
        "self.rows.get(key) == {'n': 1}",
        "self.log == []",
        "self.name == 'x'",
        "self.other == 3",
        "len(self.log) == 2",
        "self.rows['new'] == 'x'",
        "self.rows['a']['n'] != 'x'",
    ],
)
def test_comparisons_that_can_hold_are_left_alone(criterion):
    source = f"Message('x', criterion=lambda: {criterion})"
    assert impossible_comparisons(source, STATE) == []


@pytest.mark.parametrize(
    "criterion",
    [
        "self.rows['a']['n'] == '1'",
        "self.rows[key]['n'] == '1'",
        "self.rows.get('b') == 'x'",
        "self.log == ('a',)",
        "self.log == {'a'}",
        "f'{self.name}' == 3",
        "len(self.log) == '2'",
    ],
)
def test_comparisons_that_never_hold_are_found(criterion):
    method = f"def done(self):\n    return {criterion}\nMessage('x', None, [self.done])"
    assert len(impossible_comparisons(method, STATE)) == 1


@pytest.mark.parametrize(
    "told",
    [
        {"path": "a", "op": "==", "expected": "int", "found": "float"},
        {"path": "a", "op": "==", "expected": "str", "found": "NoneType"},
        {"path": "a", "op": "contains", "expected": "str", "found": "list", "members": []},
        {"path": "a", "op": "in", "expected": "list", "found": "str", "members": ["str"]},
        {"path": "a.b", "op": "==", "expected": "int", "error": "KeyError: 'b'"},
        {"met": False},
    ],
)
def test_declared_criteria_that_can_hold_are_left_alone(told):
    assert impossible_declared(told, "self.a = 1") == ""


@pytest.mark.parametrize(
    "told",
    [
        {"path": "a", "op": "<", "expected": "str", "found": "int"},
        {"path": "a", "op": "contains", "expected": "str", "found": "int"},
        {"path": "a", "op": "contains", "expected": "int", "found": "str"},
        {"path": "a", "op": "contains", "expected": "int", "found": "list", "members": ["str"]},
        {"path": "a.b", "op": "==", "expected": "int", "error": "ValueError: invalid literal"},
    ],
)
def test_declared_criteria_that_never_hold_are_found(told):
    assert impossible_declared(told, "self.a = 1")


def test_a_value_is_told_by_its_words_in_any_order_and_numbers_are_computed():
    assert tells("the code is P-1234", "p-1234")
    assert tells("retsim Ada", "mister ada")
    assert tells("in May", "2024-05-17")
    assert not tells("the code is P-1234", "P-9999x")


def test_both_reasons_are_in_the_order_of_the_gates():
    order = list(Reason)
    assert order.index(Reason.ORACLE) < order.index(Reason.CRITERION)
    assert order.index(Reason.UNREVEALED) < order.index(Reason.BLIND_WIN)
