"""The command that shows what each gate costs, and the advice that goes with each reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from designer import Reason
from designer.findings import ADVICE
from designer.subjects import SharedClock

BENCH = Path(__file__).parents[2] / "bench" / "gates.py"


def test_the_bench_shows_a_cost_for_every_gate():
    command = [sys.executable, str(BENCH), "--programs", "2", "--backend", "process", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    said = json.loads(done.stdout)
    assert said["programs"] == 2
    assert [row["gate"] for row in said["gates"]][:3] == ["inspect", "load", "fuzz"]
    assert sum(row["share"] for row in said["gates"]) == pytest.approx(1, abs=0.01)
    # What the gates took side by side is what the whole took.
    assert sum(row["seconds"] for row in said["gates"]) <= said["seconds"] + 0.1


def test_every_reason_to_refuse_comes_with_advice():
    assert set(ADVICE) == set(Reason) - {Reason.OK, Reason.UNJUDGED}


def test_a_shared_clock_divides_each_moment_among_those_at_work(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    clock, alone, both = SharedClock(), {}, {}
    with clock.charge(alone, "a"):
        now = 1.0
        with clock.charge(both, "b"):
            now = 3.0
        now = 4.0
    now = 9.0
    with clock.charge(both, "b"):
        now = 9.5
    assert alone == {"a": 3.0}
    assert both == {"b": 1.5}
