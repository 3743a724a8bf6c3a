"""Something runs out: disk, memory, descriptors. Who is not at fault goes on undisturbed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, Outcome, ResetItem, StepItem

from sandbox_server import cgroups, runtime
from tests.chaos.conftest import StartServer
from tests.chaos.playing import Transcript, none_live, play
from tests.chaos.server import ChaosServer
from tests.server.test_limits import stepping

_MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = "size=2m,nr_inodes=200,mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    with contextlib.suppress(OSError):
        for number in range(1_000):
            (folder / f"filler-{number}").touch()


async def test_disk_full_around_a_running_server(
    backend: str,
    small_disk: Path,
    start_server: StartServer,
    undisturbed: dict[int, Transcript],
) -> None:
    """Its log, its temporary folder: a jail that is restarted then needs neither."""
    server = start_server(backend, disk=small_disk)

    async def disturb(turn: int) -> None:
        if turn == 1:
            fill(small_disk)
        elif turn == 2:
            await asyncio.to_thread(server.kill_jails)

    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        assert await play(client, pause_s=0.1, disturb=disturb) == undisturbed
        await none_live(client)
        fill(small_disk)
        assert await play(client) == undisturbed
    for path in small_disk.glob("filler*"):
        path.unlink()


@pytest.mark.nsjail
def test_without_disk_for_a_runtime_a_server_says_so_and_leaves_nothing(
    small_disk: Path, tmp_path: Path
) -> None:
    server = ChaosServer(tmp_path, variables={"SPADEWORK_CACHE": str(small_disk)})
    with pytest.raises(RuntimeError, match=r"2 MiB free\n +free .* MiB"):
        server.start()
    server.assert_nothing_left()


def test_a_build_that_runs_out_of_disk_says_so_and_leaves_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPADEWORK_CACHE", str(small_disk))
    monkeypatch.setattr("sandbox_server.cache._held", {})
    with pytest.raises(runtime.RuntimeBuildError, match="free some disk"):
        runtime.ensure("stdlib")
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path.stat().st_size]
    assert shutil.disk_usage(small_disk).used < _MIB


@pytest.mark.nsjail
def test_a_server_whose_jails_do_not_come_up_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """Its hard limit on open files is below what a zygote needs."""
    server = ChaosServer(tmp_path, limits="ulimit -n 320", max_episodes=32)
    with pytest.raises(RuntimeError, match="spadework doctor"):
        server.start()
    server.assert_nothing_left()


@pytest.mark.nsjail
def test_what_a_killed_build_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPADEWORK_CACHE", str(tmp_path))
    monkeypatch.setattr("sandbox_server.cache._held", {})
    name = runtime.ensure("stdlib").root.name
    left = tmp_path / "runtimes" / f".{name}.half-built"
    left.mkdir()
    shutil.rmtree(tmp_path / "runtimes" / name)
    monkeypatch.setattr("sandbox_server.cache._held", {})
    assert runtime.ensure("stdlib").root.name == name
    assert not left.exists()


async def test_a_full_scratch_folder_is_its_own_episodes_alone(
    server: ChaosServer, undisturbed: dict[int, Transcript]
) -> None:
    body = "open('/tmp/x', 'wb').write(bytes(1 << 30))"
    limits = Limits(scratch_bytes=4 * _MIB, memory_bytes=2048 * _MIB)
    async with AsyncSandboxClient(server.address) as client:
        program = await client.register_program(stepping(body), limits=limits)

        async def disturb(turn: int) -> None:
            (episode,) = await client.reset([ResetItem(program.program_id)])
            (result,) = await client.step([StepItem(episode.episode_id, 0, "")])
            assert result.outcome is Outcome.OUTPUT_LIMIT
            await client.close_episodes([episode.episode_id])

        assert await play(client, disturb=disturb) == undisturbed
        await none_live(client)


# Holds as much memory as it is told, for as long as it lives, within its own limit.
_HOLDER = """
import os
class HolderEnv:
    def reset(self, seed=None):
        self.held = []
        return "nothing", {}
    def step(self, action):
        # Written to, so that it is really there.
        self.held.append(bytearray(os.urandom(1 << 20)) * int(action))
        return f"{sum(map(len, self.held)) >> 20} MiB", 1.0, False, False, {}
"""


async def test_memory_full_takes_episodes_and_never_the_zygote(
    backend: str, start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    """Twelve episodes, each within its own limit, want twice what their jail has."""
    if backend == "nsjail" and "memory" not in cgroups.usable_controllers():
        pytest.skip("this machine has no memory cgroups that the server could use")
    server = start_server(backend, jail_memory_bytes=640 * _MIB)
    async with AsyncSandboxClient(server.address, max_retries=3) as client:
        zygotes = server.zygotes()
        holder = await client.register_program(_HOLDER, limits=Limits(memory_bytes=256 * _MIB))
        told: list[str] = []

        async def disturb(turn: int) -> None:
            if turn != 1:
                return
            episodes = await client.reset([ResetItem(holder.program_id) for _ in range(12)])
            items = [StepItem(e.episode_id, 0, "100") for e in episodes if e.ok]
            assert len(items) == 12
            results = await client.step(items)
            # Each is answered: by its own result, or as lost. No outcome is made up.
            for result in results:
                if result.ok:
                    assert (result.observation, result.reward) == ("100 MiB", 1.0)
                else:
                    assert result.outcome is None, result
                    assert result.reward is None
                told.append("ok" if result.ok else "lost")
            await client.close_episodes([e.episode_id for e in episodes])

        assert await play(client, disturb=disturb) == undisturbed
        assert told.count("ok") > 0
        assert server.zygotes() == zygotes
        assert "is dead" not in server.log_file.read_text()
        info = await client.server_info()
        # The kernel did end some: else this has shown nothing.
        assert info.ended_total["lost"] > 0
        await none_live(client)


async def test_no_descriptors_left_is_a_full_server_and_no_lost_episode(
    start_server: StartServer, undisturbed: dict[int, Transcript]
) -> None:
    """Idle connections take every descriptor: what runs goes on, what is new has to wait."""
    server = start_server("nsjail", limits="ulimit -Sn 320", max_episodes=32)
    path = server.address.removeprefix("unix:")
    idle: list[socket.socket] = []

    async def disturb(turn: int) -> None:
        if turn == 1:
            for _ in range(400):
                connection = socket.socket(socket.AF_UNIX)
                connection.setblocking(False)
                with contextlib.suppress(OSError):
                    connection.connect(path)
                idle.append(connection)
            await asyncio.sleep(0.5)
        elif turn == 2:
            # Every jail is lost meanwhile, and can be started only when there is room again.
            await asyncio.to_thread(server.kill_jails)
            await asyncio.sleep(1.5)
            for connection in idle:
                connection.close()

    async with AsyncSandboxClient(server.address, max_retries=8) as client:
        before = server.descriptors()
        assert await play(client, pause_s=0.1, disturb=disturb) == undisturbed
        await none_live(client)
        async with asyncio.timeout(10):
            while server.descriptors() > before + 2:
                await asyncio.sleep(0.1)
        assert await play(client) == undisturbed
