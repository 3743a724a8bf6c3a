"""A process that says why it cannot start, and is gone before anybody has looked at it."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import host_process, runtime
from sandbox_server.backends import BackendError
from sandbox_server.backends.docker_container import SOCKET, Container
from sandbox_server.backends.ids import HostIds
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.failures import ProcessEnd
from sandbox_server.family import Family
from sandbox_server.poller import Poller

_SPEAK = """
import os, socket, sys
_, user, path, *words = sys.argv
if os.geteuid() == 0:
    os.setresuid(int(user), int(user), int(user))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as supervisor:
    supervisor.connect(path)
    for word in words:
        supervisor.send(word.encode())
"""


class EndedContainer:
    """What the engine has of a container that ended at once: its process is gone when asked for.

    Args:
        words: What its zygote says before.
        told: What the engine says then: "removed", "stopped", or "running" where it is late.
    """

    short_id = "0"
    status = "exited"

    def __init__(self, socket_path: Path, ids: HostIds, words: list[str], told: str) -> None:
        self._folder = socket_path.parent
        self._command = [sys.executable, "-c", _SPEAK, str(ids.user), socket_path.name, *words]
        self._told = told
        self.attrs: dict[str, Any] = {"State": {"Pid": 0}}

    def start(self) -> None:
        # From inside the folder, as the container has it: the way there is the server's alone.
        with subprocess.Popen(self._command, cwd=self._folder) as zygote:
            pass
        assert zygote.returncode == 0
        if self._told == "running":
            self.status = "running"
            self.attrs = {"State": {"Pid": zygote.pid}}

    def reload(self) -> None:
        if self._told == "removed":
            raise docker.errors.NotFound("no such container")

    def remove(self, force: bool) -> None:
        raise docker.errors.NotFound("no such container")


class Engineless:
    def close(self) -> None:
        pass


@pytest.fixture
def ids() -> Iterator[HostIds]:
    ids = HostIds()
    yield ids
    ids.release()


def why_it_failed(ids: HostIds, words: list[str], told: str) -> str:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        container = Container(
            Engineless,
            lambda _, folder: EndedContainer(folder / SOCKET, ids, words, told),
            theirs,
            ids,
        )
        assert ours.recv(1) == b""
        container.end(0)
    return container.failure


@pytest.mark.parametrize("told", ["removed", "stopped", "running"])
@pytest.mark.parametrize("words", [["no such mount"], ["unshared", "no such mount"]])
def test_what_a_containers_zygote_said_before_its_end_is_told(
    ids: HostIds, words: list[str], told: str
) -> None:
    failure = why_it_failed(ids, words, told)
    assert "could not build its jail" in failure
    assert "no such mount" in failure
    assert "spadework doctor" in failure


@pytest.mark.parametrize("told", ["removed", "stopped", "running"])
@pytest.mark.parametrize("words", [[], ["unshared"]])
def test_a_containers_zygote_that_ended_without_a_word_is_told_of(
    ids: HostIds, words: list[str], told: str
) -> None:
    failure = why_it_failed(ids, words, told)
    assert "ended before its jail was built" in failure
    assert "docker events" in failure


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's containers have users of their own")
def test_somebody_elses_last_words_are_not_told() -> None:
    ids, strangers = HostIds(), HostIds()
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def create(_: Any, folder: Path) -> EndedContainer:
            for path in (folder, folder / SOCKET):
                os.chown(path, strangers.user, strangers.group)
            return EndedContainer(folder / SOCKET, strangers, ["believe me"], "running")

        with ours:
            container = Container(Engineless, create, theirs, ids)
            assert ours.recv(1) == b""
            container.end(0)
        assert "connected in place of the zygote" in container.failure
        assert "believe me" not in container.failure
    finally:
        ids.release()
        strangers.release()


async def test_a_zygote_that_ends_as_soon_as_it_is_ready_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(pid: int) -> int:
        raise FileNotFoundError(2, "No such file or directory", f"/proc/{pid}/statm")

    monkeypatch.setattr(host_process, "address_space_bytes", gone)
    engine = Engine(ServerConfig(backend="process"), {"stdlib": runtime.ensure("stdlib")})
    before = time.monotonic()
    with pytest.raises(BackendError, match="did not start"):
        await engine.start()
    assert time.monotonic() - before < 30


async def test_why_a_process_is_not_locked_down_is_told_though_its_end_is_heard_of_first() -> None:
    loop = asyncio.get_running_loop()
    poller = Poller(loop)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended: list[Any] = []
    channel = EpisodeChannel(
        poller,
        loop.time,
        None,
        ours,
        pb.Limits(max_observation_bytes=100, max_info_bytes=100),
        key=1,
        family=Family(0, sweep=False),
        kill_timeout_s=1.0,
        on_end=ended.append,
    )
    greeted: list[str] = []
    channel.on_greeting = lambda: greeted.append(channel.lockdown_error)
    theirs.send(b"OSError: mount: not permitted")
    theirs.close()
    assert select.select([ours], [], [], 0)[0]
    channel.on_exit(ProcessEnd(256, 0.0))
    assert greeted == ["OSError: mount: not permitted"]
    assert ended == [channel]
    poller.close()
