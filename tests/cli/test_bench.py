"""`spadework bench`: the figures' shape, not their size."""

from __future__ import annotations

import json
import shutil

import pytest

from spadework import benchmark
from spadework.cli import main
from spadework.console import CommandError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
QUICK = ["bench", "--backend", "process", "--rounds", "2", "--seconds", "0.05"]


@needs_compiler
def test_all_subjects_are_measured_in_turn_and_compared(capsys: pytest.CaptureFixture[str]):
    assert main([*QUICK, "--episodes", "3", "5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(r["subject"], r["episodes"]) for r in report["rates"]] == [
        (subject, n) for n in (3, 5) for subject in ("floor", "exec", "sandbox")
    ]
    for rate in report["rates"]:
        assert len(rate["steps_per_s"]) == 2
        assert min(rate["steps_per_s"]) > 0
        if rate["subject"] == "floor":
            assert rate["ratio_to_floor"] == 1.0
    assert report["machine"]["backend"] == "process"
    assert report["machine"]["load_before"] >= 0


@needs_compiler
def test_without_json_it_prints_a_markdown_table(capsys: pytest.CaptureFixture[str]):
    assert main([*QUICK, "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("| subject | episodes |")
    assert "load average" in shown


def test_nonsense_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--episodes", "0"]) == 2
    assert "positive" in capsys.readouterr().err


def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CommandError, match="install gcc"), benchmark.floor_binary():
        pass
