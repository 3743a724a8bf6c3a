"""The competitors of `spadework bench`, in the environment of their own that it builds."""

from __future__ import annotations

import json

import pytest

from spadework.benchmark import peers
from spadework.cli import main

# The first build of that environment is a download of 250 MB.
_BUILD_TIMEOUT_S = 900


@pytest.mark.slow
@pytest.mark.timeout(_BUILD_TIMEOUT_S)
def test_competitors_run_with_packages_that_ours_does_not_have(
    capsys: pytest.CaptureFixture[str],
):
    command = ["bench", "--quick", "--seconds", "0.05", "--programs", "trivial", "--json"]
    assert main([*command, "--subjects", "sync-vector", "async-vector", "openenv"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    seen = {(case["subject"], bool(case["hanging"])): case for case in cases}
    assert set(seen) == {
        ("sync-vector", False),
        ("async-vector", False),
        ("async-vector", True),
        ("openenv", False),
        ("openenv", True),
    }
    for (subject, hanging), case in seen.items():
        if (subject, hanging) == ("async-vector", True):
            # One that hangs is all that hang.
            assert "timed out" in case["failed"]
            continue
        assert not case["failed"], case["failed"]
        assert case["median"]["steps_per_s"] > 0
    assert seen["openenv", False]["median"]["server_cpu_us"] > 0
    assert seen["async-vector", False]["median"]["environment_cpu_us"] > 0
    assert seen["sync-vector", False]["median"]["server_cpu_us"] is None


def test_the_competitors_python_sees_nothing_of_ours_but_the_benchmark(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    given = peers.environment()
    assert "elsewhere" not in given["PYTHONPATH"]
    assert "PYTHONHOME" not in given
