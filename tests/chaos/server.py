"""A server that is made to be killed: at a fixed address, its settings free, its parts by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_server import owner
from sandbox_server.backends import docker
from sandbox_server.backends.ids import is_episode, is_zygote
from tests.server.conftest import descendants

_MAIN = """
import asyncio, json, logging, sys
from sandbox_server.__main__ import serve
from sandbox_server.config import ServerConfig

logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
asyncio.run(serve(ServerConfig(**json.loads(sys.argv[1])), exit_with_stdin=True))
"""

# How long what was killed may take to be gone, on a loaded machine.
_GONE_WITHIN_S = 10.0


class ChaosServer:
    """A server process; start it as often as it was killed.

    Args:
        folder: For its socket.
        disk: For its log and its temporary files; `folder`, unless told.
        variables: Of its environment, beside this process's.
        limits: Shell commands before it starts, as `ulimit`.
        settings: Of `ServerConfig`.

    Attributes:
        address: The same at each start.
        owners: Names of all processes that this server has been.
    """

    def __init__(
        self,
        folder: Path,
        backend: str = "nsjail",
        *,
        disk: Path | None = None,
        variables: dict[str, str] | None = None,
        limits: str = "",
        **settings: Any,
    ) -> None:
        self.address = f"unix:{folder}/socket"
        self.backend = backend
        self.owners: list[str] = []
        self.temporary = (disk or folder) / "tmp"
        self.temporary.mkdir()
        self.log_file = (disk or folder) / "log"
        self._limits = limits
        self._variables = {**os.environ, **(variables or {}), "TMPDIR": str(self.temporary)}
        self._settings = {"address": self.address, "backend": backend, **settings}
        self._seen: dict[int, str] = {}
        self._containers: set[str] = set()

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            RuntimeError: If it does not; its log is in the message.
        """
        command = [sys.executable, "-c", _MAIN, json.dumps(self._settings)]
        if self._limits:
            command = ["bash", "-c", f'{self._limits}; exec "$0" "$@"', *command]
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._variables,
            )
        self.owners.append(owner.name(self.process.pid))
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            self.process.communicate()
            raise RuntimeError(self.log_file.read_text())

    def kill(self) -> None:
        """Kill it, as nothing can refuse."""
        self.note()
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        """Have it end in an orderly way, and wait for it."""
        self.note()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=30)
        finally:
            self.process.kill()
            self.process.communicate()

    # -- its parts ---------------------------------------------------------------------

    def note(self) -> None:
        """Remember all processes there are now, to look for them later."""
        for pid in self._below():
            with contextlib.suppress(ProcessLookupError):
                self._seen[pid] = owner.name(pid)

    def episodes(self) -> list[int]:
        return [pid for pid in self._below() if is_episode(_user(pid))]

    def zygotes(self) -> list[int]:
        return [pid for pid in self._below() if is_zygote(_user(pid))]

    def kill_jails(self) -> None:
        """Kill what keeps the jails: nsjail's own processes, or the containers."""
        self.note()
        if self.backend == "docker":
            with contextlib.closing(self._daemon()) as daemon:
                for container in self._own(daemon, self.owners[-1]):
                    container.kill()
        else:
            kill_all([pid for pid in self._below() if b"nsjail" in _command(pid)])

    def _below(self) -> list[int]:
        """Every process that this server has started, also through a daemon."""
        found = descendants(self.process.pid)
        if self.backend == "docker":
            # The daemon may be dead, and its containers not.
            if daemon_answers(self._variables.get("DOCKER_HOST", "unix:///var/run/docker.sock")):
                self._find_containers(self.owners[-1])
            found += [pid for pid in _everybody() if _container(pid) in self._containers]
        return found

    def _daemon(self) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", self._variables)
            return docker.connect()

    def _own(self, daemon: Any, name: str) -> list[Any]:
        filters = {"label": f"{docker.OWNER_LABEL}={name}"}
        return list(daemon.containers.list(all=True, filters=filters, ignore_removed=True))

    def _find_containers(self, name: str) -> list[str]:
        with contextlib.closing(self._daemon()) as daemon:
            found = [container.id for container in self._own(daemon, name)]
        self._containers |= set(found)
        return found

    def memory_bytes(self) -> int:
        """Resident memory of the server itself."""
        words = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def processes(self) -> list[int]:
        """All processes of its jails."""
        return self._below()

    def jails_bytes(self) -> int:
        """What its jails are charged for, by their cgroups; 0 where there are none."""
        root = Path("/sys/fs/cgroup/memory")
        groups = [root / "spadework" / self.owners[-1]]
        groups += [root / "docker" / container for container in self._containers]
        files = [group / "memory.usage_in_bytes" for group in groups]
        return sum(int(file.read_text()) for file in files if file.exists())

    def file_count(self) -> int:
        """Files and sockets in its folders."""
        state = Path("/run/spadework", self.owners[-1])
        return len([*self.temporary.rglob("*"), *state.rglob("*")])

    # -- what is left ------------------------------------------------------------------

    def assert_nothing_left(self) -> None:
        """Nothing of any process that this server has been is on the host.

        Raises:
            AssertionError: If something stays; it names each thing.
        """
        _wait_until_empty(lambda: self._left(self.owners) + self._files())

    def assert_no_predecessor(self) -> None:
        """Nothing of the processes that this server was before is on the host.

        Raises:
            AssertionError: As above.
        """
        _wait_until_empty(lambda: self._left(self.owners[:-1]))

    def assert_no_process_left(self) -> None:
        """No process that it has ever started runs.

        Raises:
            AssertionError: As above.
        """
        _wait_until_empty(self._running)

    def _running(self) -> list[str]:
        return [_told(pid) for pid, name in self._seen.items() if not owner.is_dead(name)]

    def _left(self, owners: list[str]) -> list[str]:
        found = self._running()
        for name in owners:
            found += map(str, Path("/sys/fs/cgroup").glob(f"*/spadework/{name}"))
            found += map(str, Path("/run/spadework").glob(name))
            if self.backend == "docker":
                found += [f"container {key}" for key in self._find_containers(name)]
        return found

    def _files(self) -> list[str]:
        found = [str(path) for path in self.temporary.rglob("*")]
        listens = Path(self.address.removeprefix("unix:"))
        found += [str(listens)] if listens.exists() else []
        mounts = Path("/proc/self/mounts").read_text()
        found += [line for line in mounts.splitlines() if str(self.temporary) in line]
        return found


def daemon_answers(host: str) -> bool:
    """Whether a Docker daemon is there; its own client leaves a socket open where none is."""
    with socket.socket(socket.AF_UNIX) as daemon, contextlib.suppress(OSError):
        daemon.settimeout(5)
        daemon.connect(host.removeprefix("unix://"))
        daemon.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 " in daemon.recv(4096)
    return False


def _wait_until_empty(look: Callable[[], list[str]]) -> None:
    deadline = time.monotonic() + _GONE_WITHIN_S
    while found := look():
        assert time.monotonic() < deadline, "left behind:\n  " + "\n  ".join(found)
        time.sleep(0.05)


def kill_all(pids: list[int]) -> None:
    assert pids, "there is nothing to kill: the test would show nothing"
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _user(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def _everybody() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _container(pid: int) -> str:
    """The container that a process is in, by its cgroup."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text().partition("/docker/")[2][:64]
    except OSError:
        return ""


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def _told(pid: int) -> str:
    with contextlib.suppress(OSError):
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return f"process {pid}: {status['Name']}, {status['State']}, parent {status['PPid']}"
    return f"process {pid}"
