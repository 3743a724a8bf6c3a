"""`spadework doctor`: a verdict by exit code, a remedy by failed check."""

from __future__ import annotations

import json

import pytest

from sandbox_server import doctor
from sandbox_server.doctor import Check
from spadework.cli import main


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    found = [Check("nsjail", True, "3.6"), Check("seccomp", True, "in force")]
    monkeypatch.setattr(doctor, "run_checks", lambda _: found)
    return found


def test_all_well_exits_with_0(checks, capsys):
    assert main(["doctor"]) == 0
    assert "nsjail" in capsys.readouterr().out


def test_a_failed_check_exits_with_1_and_says_what_to_do(checks, capsys):
    checks.append(Check("user namespaces", False, "forbidden", "sysctl -w something=1"))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert "FAILED" in shown.out
    assert "sysctl -w something=1" in shown.out


def test_an_optional_check_that_fails_does_not_fail_the_machine(checks, capsys):
    checks.append(Check("cgroups", False, "none", "mount them", required=False))
    assert main(["doctor"]) == 0
    assert "missing" in capsys.readouterr().out


def test_json_holds_every_check(checks, capsys):
    checks.append(Check("cgroups", False, "none", "mount them"))
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [c["name"] for c in report["checks"]] == ["nsjail", "seccomp", "cgroups"]
    assert report["checks"][2]["remedy"] == "mount them"


def test_the_real_checks_can_be_printed(capsys):
    assert main(["doctor", "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert report["checks"]
