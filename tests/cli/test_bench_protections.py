"""bench/protections.py: it measures what it says, and each variant lacks what it says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.nsjail

_SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "protections.py"

_TELLING = """
import ctypes, os, resource

class TellingEnv:
    def reset(self, seed=None):
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 1)
            told = ["no filter"]
        except OSError:
            told = []
        if os.getuid() == 0:
            told.append("the zygote's id")
        if os.stat("/tmp").st_mode & 0o7777 != 0o700:
            told.append("a shared /tmp")
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            told.append("no rlimits")
        if os.uname().nodename != "jail":
            told.append("the host's name")
        return ", ".join(told), {}

    def step(self, action):
        return "", 0.0, False, False, {}
"""

_TOLD = {
    "nothing": "",
    "the episode's system call filter": "no filter",
    "an id of each episode's own": "the zygote's id",
    "the private /tmp and mount namespace": "a shared /tmp",
    "rlimits": "no rlimits",
    "net, ipc, uts and cgroup namespaces": "the host's name",
}


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("protections", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["protections"] = module
    spec.loader.exec_module(module)
    return module


def test_every_variant_takes_turns_with_the_whole(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--turns", "2", "--episodes", "4"]
    monkeypatch.setattr(sys, "argv", ["protections.py", *quick, "--json"])
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(script.VARIANTS) + 1
    for comparison in found.values():
        for pairs in comparison.values():
            assert len(pairs) == 2
            assert all(rate > 0 for pair in pairs for rate in pair)
    shown = script.table({name: script.Comparison(**c) for name, c in found.items()})
    assert shown.count("\n") == len(found) + 1


def test_each_variant_lacks_what_it_says_and_nothing_else(script: ModuleType) -> None:
    told = {}

    async def ask(name: str) -> str:
        engine = script.Engine(
            script.ServerConfig(backend=name, max_episodes=16),
            {"stdlib": script.runtime.ensure("stdlib")},
        )
        await engine.start()
        try:
            request = script.pb.RegisterProgramRequest(source=_TELLING)
            program = await engine.register(request)
            item = script.pb.ResetItem(program_id=program.program_id)
            return (await engine.reset(0, item)).observation
        finally:
            await engine.close()

    with script.backends() as names:
        for name in names:
            if name in _TOLD:
                told[name] = asyncio.run(ask(name))
        assert set(names) > set(_TOLD)
    assert told == _TOLD
    assert not set(script.BACKENDS) & set(_TOLD), "gone when the measuring is over"
