"""A server of an ordinary user: jailed episodes play, and it says what it cannot do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_api import (
    InvalidRequestError,
    Limits,
    Outcome,
    ResetItem,
    SandboxClient,
    StepItem,
)

from tests.server.as_nobody import NOBODY
from tests.server.conftest import COUNTER, descendants

pytestmark = [
    pytest.mark.nsjail,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

_LAUNCHER = Path(__file__).with_name("as_nobody.py")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder of nobody's own; not pytest's, which is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="spadework-nobody-"))
    folder.chmod(0o700)
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def _command(home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    variables = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    variables["SPADEWORK_CACHE"] = str(home / "cache")
    variables.pop("XDG_RUNTIME_DIR", None)
    return [sys.executable, str(_LAUNCHER), *arguments], variables


@pytest.fixture(scope="module")
def rootless(home: Path) -> Iterator[tuple[str, int]]:
    """Address and pid of a server that nobody runs."""
    command, variables = _command(home, "sandbox_server", "--address", "127.0.0.1:0")
    command += ["--max-episodes", "200", "--exit-with-stdin"]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield json.loads(server.stdout.readline())["address"], server.pid
        finally:
            server.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=30)
            server.kill()


def test_the_server_and_all_that_it_starts_are_nobody_s(rootless: tuple[str, int]) -> None:
    _, pid = rootless
    processes = [pid, *descendants(pid)]
    assert len(processes) > 4
    assert {Path(f"/proc/{p}").stat().st_uid for p in processes} == {NOBODY}


def test_episodes_play_and_are_verified_in_its_jail(rootless: tuple[str, int]) -> None:
    with SandboxClient(rootless[0]) as client:
        program = client.register_program(COUNTER)
        items = [ResetItem(program.program_id, seed=i) for i in range(8)]
        ids = [episode.episode_id for episode in client.reset(items)]
        stepped = client.step([StepItem(i, 0, "+") for i in ids])
        assert [r.observation for r in stepped] == ["at 1"] * 8
        assert all(verdict.reproduced for verdict in client.verify(ids))
        assert client.close_episodes(ids) == 8


def test_it_says_that_episodes_share_an_id_and_refuses_what_needs_one(
    rootless: tuple[str, int],
) -> None:
    with SandboxClient(rootless[0], max_retries=0) as client:
        isolation = client.server_info().isolation
        assert isolation["user"] == "one id for all episodes of a jail"
        assert isolation["cgroup"] == "none"
        with pytest.raises(InvalidRequestError, match="user id per episode"):
            client.register_program(COUNTER, limits=Limits(max_processes=2))


_NEIGHBOUR = """
import os, ctypes, signal

class NeighbourEnv:
    def reset(self, seed=None):
        with open("/tmp/mine", "w") as file:
            file.write(str(seed))
        return f"{os.getuid()} {os.getpid()}", {}

    def step(self, action):
        mine = open("/tmp/mine").read()
        tried = []
        libc = ctypes.CDLL(None, use_errno=True)
        for name, attempt in (
            ("kill", lambda: os.kill(int(action), signal.SIGKILL)),
            ("ptrace", lambda: self.check(libc.ptrace(16, int(action), 0, 0))),
            ("read", lambda: open(f"/proc/{action}/root/tmp/mine").read()),
            ("fork", os.fork),
        ):
            try:
                attempt()
                tried.append(name)
            except OSError:
                pass
        return f"{mine} {tried}", 0.0, False, False, {}

    def check(self, said):
        if said == -1:
            raise OSError("refused")
"""


def test_episodes_of_one_id_cannot_reach_each_other(rootless: tuple[str, int]) -> None:
    """No signal, no ptrace, no file and no process: the filter and the mounts see to it."""
    with SandboxClient(rootless[0]) as client:
        program = client.register_program(_NEIGHBOUR)
        items = [ResetItem(program.program_id, seed=i) for i in range(2)]
        first, second = client.reset(items)
        user, pid = second.observation.split()
        assert user == first.observation.split()[0], "they do share an id"
        (attacked,) = client.step([StepItem(first.episode_id, 0, pid)])
        assert attacked.observation == "0 []"
        (alive,) = client.step([StepItem(second.episode_id, 0, "1")])
        assert alive.outcome is Outcome.COMPLETED
        assert alive.observation == "1 []"


def test_the_doctor_says_to_an_ordinary_user_what_it_lacks(home: Path) -> None:
    command, variables = _command(home, "spadework", "doctor", "--json", "--max-episodes", "200")
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    report = json.loads(done.stdout)
    assert report["ok"], done.stdout
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["user namespaces"]["ok"]
    assert checks["seccomp"]["ok"]
    assert checks["network: no sockets"]["ok"]
    assert checks["user ids"]["remedy"].startswith("run the server as root")
    assert not checks["cgroups"]["ok"]
