"""`spadework bench`: the figures' shape, not their size."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spadework.benchmark import peers, plan, plot, rounds, subjects
from spadework.benchmark.case import BenchmarkProgram, Case, Figures
from spadework.benchmark.programs import PROGRAMS
from spadework.benchmark.ratios import COMPARISONS
from spadework.benchmark.report import Machine, Report, Row
from spadework.cli import main
from spadework.console import CommandError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
QUICK = ["bench", "--quick", "--seconds", "0.05", "--backend", "process", "--programs", "trivial"]
OWN = ["floor", "exec", "sandbox"]


def _cases(text: str) -> list[dict[str, Any]]:
    return json.loads(text)["cases"]


@needs_compiler
def test_subjects_take_turns_and_each_side_of_a_step_is_measured(
    capsys: pytest.CaptureFixture[str],
):
    command = [*QUICK, "--rounds", "2", "--episodes", "3", "--subjects", *OWN, "--json"]
    assert main(command) == 0
    cases = _cases(capsys.readouterr().out)
    assert [(c["subject"], c["episodes"], c["hanging"]) for c in cases] == [
        *((subject, 3, 0.0) for subject in OWN),
        ("sandbox", 3, 0.25),
    ]
    for case in cases:
        assert not case["failed"]
        assert [r["steps_per_s"] > 0 for r in case["rounds"]] == [True, True]
        median = case["median"]
        assert median["item_p99_ms"] >= median["item_p50_ms"] > 0
        assert median["other_cpus"] >= 0
        assert median["starts_per_s"] > 0
        assert median["close_all_s"] >= 0
    for case in cases[2:]:
        assert case["median"]["client_cpu_us"] > 0
        assert case["median"]["server_cpu_us"] > 0
        assert case["median"]["environment_cpu_us"] > 0
    assert cases[2]["median"]["cold_program_ms"] > cases[2]["median"]["warm_program_ms"] / 4 > 0


@needs_compiler
def test_a_folder_gets_figures_table_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([*QUICK, "--subjects", *OWN, "--out", str(tmp_path / "new")]) == 0
    shown = capsys.readouterr().out
    assert "| program | episodes |" in shown
    assert "Load average" in shown
    assert (tmp_path / "new" / "table.md").read_text() == shown
    assert len(_cases((tmp_path / "new" / "bench.json").read_text())) == 4
    ElementTree.fromstring((tmp_path / "new" / "plot.svg").read_text())


@pytest.mark.nsjail
@needs_compiler
def test_a_fresh_jail_a_step_is_measured(capsys: pytest.CaptureFixture[str]):
    command = [*QUICK, "--subjects", "fresh-jail", "--episodes", "2", "--json"]
    assert main(command) == 0
    (case,) = _cases(capsys.readouterr().out)
    assert not case["failed"]
    assert case["median"]["steps_per_s"] > 0
    # What ran was not in the caller's process.
    assert case["median"]["environment_cpu_us"] > case["median"]["client_cpu_us"]


def _figures(rate: float) -> Figures:
    values = dict.fromkeys(("item_p50_ms", "item_p99_ms", "mib_per_episode", "starts_per_s"), 2.0)
    costs = dict.fromkeys(("client_cpu_us", "server_cpu_us", "start_cpu_ms"), 10.0)
    return Figures(steps_per_s=rate, other_cpus=0.5, **values, **costs)


def _report(seen: dict[tuple[str, int, float], list[Figures]]) -> Report:
    program = BenchmarkProgram("trivial", "", "", ("a",), 64)
    rows = [
        Row(Case(subject, program, episodes, 1.0, hanging), figures)
        for (subject, episodes, hanging), figures in seen.items()
    ]
    return Report(rows, Machine("a CPU", 2, 1_000, "6", "3.11", 0.1, 0.2, 60.0), 3, 1.0, "bench")


def test_a_ratio_is_the_median_of_the_ratios_of_each_round():
    report = _report(
        {
            ("sandbox", 64, 0.0): [_figures(rate) for rate in (100, 20, 90)],
            ("openenv", 64, 0.0): [_figures(rate) for rate in (10, 1, 3)],
        }
    )
    (ratio,) = report.ratios()
    assert ratio.rounds == [10, 20, 30]
    assert (ratio.value, ratio.by_cpu, ratio.reached) == (20, 1.0, True)
    assert "not quiet" in report.to_markdown()


@pytest.mark.parametrize("full", [False, True])
def test_every_goal_is_measured_by_default_as_well(full: bool):
    keys = {case.key for case in plan.cases(plan.Selection(full=full), 1.0, {})}
    for comparison in COMPARISONS:
        assert comparison.ours in keys
        assert comparison.theirs is None or comparison.theirs in keys


def test_a_default_run_takes_a_quarter_of_an_hour_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rounds, "trial", lambda case, python: _figures(1.0))
    monkeypatch.setattr(peers, "ensure", lambda: Path(sys.executable))
    assert main(["bench"]) == 0
    (minutes,) = re.findall(r"about (\d+) min", capsys.readouterr().err)
    assert 2 <= int(minutes) <= 15


def test_the_whole_matrix_has_every_program_and_subject():
    cases = plan.cases(plan.Selection(full=True), 1.0, {})
    assert {case.subject for case in cases} == set(subjects.SUBJECTS)
    assert {case.program.name for case in cases} == set(PROGRAMS)


def test_a_subject_that_fails_says_why_and_the_others_are_shown(tmp_path: Path):
    report = _report(
        {
            ("async-vector", 64, 0.01): [Figures(failed="TimeoutError: one hung\nmore")] * 3,
            ("sandbox", 64, 0.0): [_figures(10.0)] * 3,
        }
    )
    table = report.to_markdown()
    assert "| async-vector | none: TimeoutError: one hung |" in table
    assert "| sandbox | 10 |" in table
    assert "async-vector" not in plot.draw(report)


def test_a_trial_that_breaks_is_a_finding(tmp_path: Path):
    case = Case("floor", PROGRAMS["trivial"](), 2, 0.05, settings={"binary": "/no/such/binary"})
    (report,) = rounds.run([case], 1, command="bench")
    assert report.rows[0].failed.startswith("FileNotFoundError")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--episodes", "0"], "positive"),
        (["--rounds", "0"], "positive"),
        (["--subjects", "abacus"], "there are floor, exec"),
        (["--programs", "chess"], "there are trivial"),
        (["--subjects", "floor", "--programs", "game"], "none of these"),
    ],
)
def test_nonsense_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CommandError, match="install gcc"), rounds.floor_binary():
        pass


def test_every_subject_has_a_colour_of_its_own():
    assert set(plot.COLORS) == set(subjects.SUBJECTS)
    assert len(set(plot.COLORS.values())) == len(plot.COLORS)


def test_sigterm_ends_the_running_trial_too(tmp_path: Path):
    pids = tmp_path / "pids"
    # A trial that would run for a minute, and writes down who it is.
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 60\n")
    python.chmod(0o755)
    code = "import sys\nfrom spadework.cli import main\nexecutable = sys.argv.pop(1)\n"
    code += "sys.executable = executable\nsys.exit(main(sys.argv[1:]))\n"
    command = [*QUICK, "--subjects", "exec"]
    bench = subprocess.Popen([sys.executable, "-c", code, str(python), *command])
    until = time.monotonic() + 60
    while not (pids.exists() and pids.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.05)
    bench.terminate()
    assert bench.wait(timeout=30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)
