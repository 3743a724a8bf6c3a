"""The meter of the benchmark: whose CPU time it is, and that none is lost."""

from __future__ import annotations

import subprocess
import sys
import time

from spadework.benchmark.meter import CLIENT, ENVIRONMENTS, SERVER, Meter

# Uses so much CPU time, says so, and waits for its input to end.
_BURNS = """
import sys, time
while time.process_time() < float(sys.argv[1]):
    pass
print("done", flush=True)
sys.stdin.read()
"""
_BURNT_S = 0.3
# Of the interpreter's own start, and of the ticks that ended processes are counted in.
_SLACK_S = 0.15


def _burn() -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", _BURNS, str(_BURNT_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return child


def _wait_for(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"


def _end(child: subprocess.Popen[str]) -> None:
    with child:
        assert child.stdin is not None
        child.stdin.close()


def test_cpu_time_goes_to_the_side_of_its_process():
    meter = Meter()
    before = meter.cpu(starts=True)
    server, environment = _burn(), _burn()
    meter.servers = (server.pid,)
    _wait_for(server)
    _wait_for(environment)
    while time.process_time() < before.total[CLIENT] + _BURNT_S:
        pass
    used = meter.cpu(starts=False).since(before)
    _end(server)
    _end(environment)
    for side in (CLIENT, SERVER, ENVIRONMENTS):
        assert _BURNT_S - _SLACK_S < used.total[side] < 2 * _BURNT_S + _SLACK_S, side


def test_a_process_that_has_ended_still_counts():
    meter = Meter()
    before = meter.cpu(starts=True)
    child = _burn()
    _wait_for(child)
    _end(child)
    used = meter.cpu(starts=False).since(before)
    assert used.total[ENVIRONMENTS] > _BURNT_S - _SLACK_S


def test_memory_of_children_counts():
    meter = Meter()
    before = meter.memory_mib()
    hog = "held = bytearray(b'x' * 64 * 2**20); print('done', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", hog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _wait_for(child)
    grown = meter.memory_mib()
    child.kill()
    child.communicate()
    assert before is not None
    assert grown is not None
    # What both have mapped counts half for each, so that this process is less by now.
    assert 56 <= grown - before < 128
