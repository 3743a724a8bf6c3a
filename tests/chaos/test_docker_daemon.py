"""The Docker daemon is killed: its containers and their episodes go on, or are rebuilt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL

import pytest
from sandbox_api.client import AsyncSandboxClient

from tests.chaos.conftest import StartServer
from tests.chaos.playing import Transcript, none_live, play
from tests.chaos.server import daemon_answers, kill_all

pytestmark = pytest.mark.docker

_START_TIMEOUT_S = 60.0


class Daemon:
    """A Docker daemon of the test's own: the machine's serves others, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.host = f"unix://{folder}/sock"

    def start(self) -> None:
        folder = self._folder
        command = ["dockerd", "--host", self.host, "--pidfile", f"{folder}/pid"]
        command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run"]
        command += ["--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
        with (folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not daemon_answers(self.host):
            assert time.monotonic() < deadline, (folder / "log").read_text()[-4000:]
            time.sleep(0.1)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        # Its containerd ends with it. Where init is slow to reap that, the next daemon would take
        # it for alive, and wait for it.
        for name in ("pid", "run/containerd/containerd.pid"):
            (self._folder / name).unlink()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)
        # Its containerd, which a killed daemon's successor only borrows.
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self._folder).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([m for m in mounts if m.startswith(str(self._folder))]):
            subprocess.run(["umount", "--lazy", mount], check=True)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    # A short path: those of sockets are bounded.
    daemon = Daemon(Path(tempfile.mkdtemp(prefix="dockerd-")))
    daemon.start()
    yield daemon
    daemon.stop()


async def test_the_daemon_killed_no_episode_is_lost_or_made_up(
    daemon: Daemon, start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    server = start_server("docker", variables={"DOCKER_HOST": daemon.host})

    async def disturb(turn: int) -> None:
        if turn == 1:
            # From here on there is no daemon to ask for containers; they do not need it.
            server.note()
            daemon.kill()
        elif turn == 3:
            # Nor is there a jail, nor can there be one, until the daemon is back.
            await asyncio.sleep(0.2)
            kill_all(server.zygotes())
            await asyncio.sleep(1.0)
            await asyncio.to_thread(daemon.start)

    async with AsyncSandboxClient(server.address, max_retries=12) as client:
        assert await play(client, pause_s=0.4, disturb=disturb) == undisturbed
        await none_live(client)


async def test_a_daemon_that_comes_back_ends_what_it_left_and_episodes_are_rebuilt(
    daemon: Daemon, start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    server = start_server("docker", variables={"DOCKER_HOST": daemon.host})

    async def disturb(turn: int) -> None:
        if turn == 1:
            daemon.kill()
            await asyncio.to_thread(daemon.start)

    async with AsyncSandboxClient(server.address, max_retries=12) as client:
        assert await play(client, pause_s=0.4, disturb=disturb) == undisturbed
        await none_live(client)
