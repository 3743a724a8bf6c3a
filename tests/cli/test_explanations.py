"""What people and their CI are shown of a finding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from designer import DesignRequest, Draft, Finding, GateReport, Reason
from designer.drafts import Exchange
from designer.findings import ADVICE
from designer.meanings import MEANINGS
from sandbox_server import LocalServer
from spadework.cli import main
from spadework.explanations import explain
from spadework.junit import Case, junit_xml
from tests.cli.programs import BROKEN, DOOR, RAISES

REQUEST = DesignRequest(0, "", "free_code", [], None, 8, 0)


def refused(finding: Finding, source: str = "") -> GateReport:
    draft = Draft(REQUEST, source, source=source)
    return GateReport(draft, str(finding.reason), finding.message, finding=finding)


def test_a_finding_reads_like_a_compilers() -> None:
    finding = Finding(
        Reason.FUZZ,
        "an action made it raise",
        "Check it.",
        phase="step",
        line=3,
        seed=7,
        opening="Ready.",
        transcript=(Exchange("go", "Gone.", 0.5), Exchange("\x1b[2J", "", None)),
    )
    assert explain("a.py", refused(finding, "one\ntwo\n    raise it\n")).splitlines() == [
        "a.py:3: FUZZ: an action made it raise",
        "      3 |     raise it",
        "  with seed 7, in step():",
        "    shown: Ready.",
        "    act 1: 'go'",
        "    shown: Gone.",
        "      got: reward 0.5",
        "    act 2: '\\x1b[2J'",
        "       do: Check it.",
    ]


def test_long_plays_and_texts_are_cut_and_say_so() -> None:
    steps = tuple(Exchange(f"a{n}", "x" * 5_000 if n == 19 else "ok", 0.0) for n in range(20))
    finding = Finding(Reason.BLIND_WIN, "won", seed=1, opening="1\n" * 50, transcript=steps)
    text = explain("a.py", refused(finding))
    assert "... 12 steps before ..." in text
    assert "'a11'" not in text
    assert "act 20: 'a19'" in text
    assert text.count("...") == 4
    assert len(text) < 1_500
    assert all(len(line) <= 80 for line in text.splitlines())


def test_every_reason_has_a_meaning_and_every_refusal_an_advice() -> None:
    assert set(MEANINGS) == set(Reason)
    assert set(Reason) - set(ADVICE) == {Reason.OK, Reason.UNJUDGED}


def test_junit_tells_refused_from_unjudged() -> None:
    cases = [
        Case("a.py", "OK", "", "", 0.5),
        Case("b.py", "FUZZ", "it \x1b[31mraised", "b.py:1: \x00", 0.25),
        Case("c.py", "UNJUDGED", "no server", "c.py", 0.0),
    ]
    suite = ElementTree.fromstring(junit_xml(cases))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert suite.get("time") == "0.750"
    passed, failed, without = suite
    assert len(passed) == 0
    assert failed[0].tag == "failure"
    assert failed[0].get("message") == "it \u241b[31mraised"
    assert without[0].tag == "error"


@pytest.fixture(scope="module")
def address():
    with LocalServer(backend="process") as server:
        yield server.address


def test_a_folder_stands_for_the_programs_in_it(address, tmp_path: Path, capsys) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "deep" / "door.py").write_text(DOOR)
    (tmp_path / "raises.py").write_text(RAISES)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "helper.py").write_text("class Helper:\n    pass\n")
    (tmp_path / ".hidden" / "door.py").write_text(DOOR)
    junit = tmp_path / "out" / "junit.xml"
    command = ["validate", str(tmp_path), "--server", address, "--json", "--junit", str(junit)]
    assert main(command) == 1
    out, err = capsys.readouterr()
    reports = json.loads(out)
    assert {Path(r["file"]).name: r["reason"] for r in reports} == {
        "broken.py": "PARSE",
        "door.py": "BLIND_WIN",
        "raises.py": "FUZZ",
    }
    assert "1 .py files without an environment are left out" in err
    raised = next(r for r in reports if r["reason"] == "FUZZ")["finding"]
    assert raised["line"] == 7
    assert raised["phase"] == "step"
    assert raised["transcript"][-1]["reward"] is None
    assert len(ElementTree.parse(junit).getroot()[0]) == 3


def test_people_are_shown_line_play_and_advice(address, tmp_path: Path, capsys) -> None:
    (tmp_path / "raises.py").write_text(RAISES)
    assert main(["validate", str(tmp_path / "raises.py"), "--server", address]) == 1
    shown = capsys.readouterr().out
    assert "raises.py:7: FUZZ" in shown
    assert '      7 |         raise ValueError("no such thing")' in shown
    assert re.search(r"with seed \d+, in step\(\):", shown)
    assert "do: Any text may come as an action." in shown


def test_a_folder_without_programs_is_an_error_that_says_so(tmp_path: Path, capsys) -> None:
    (tmp_path / "helper.py").write_text("x = 1\n")
    assert main(["validate", str(tmp_path)]) == 3
    assert "no environment in" in capsys.readouterr().err


def test_a_reason_is_explained(capsys) -> None:
    assert main(["validate", "--explain", "leak"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("LEAK: The first observation gives the answer away.")
    assert "What to do:" in shown
    assert main(["validate", "--explain", "nonsense"]) == 2
    assert main(["validate"]) == 2
