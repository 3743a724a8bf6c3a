"""`--ray`: shards on the nodes of a Ray cluster, one of which may be lost at any time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_api import AsyncSandboxClient

from sandbox_server.config import ServerConfig
from sandbox_server.shards.child import ShardError
from sandbox_server.shards.cluster import RayFleet
from tests.chaos.playing import none_live, play
from tests.scale.ray_nodes import RayNodes, ray_nodes
from tests.scale.test_shards import all_back, shards_of
from tests.server.processes import serving

pytestmark = [pytest.mark.slow, pytest.mark.nsjail, pytest.mark.timeout(300)]

_SOON_S = 60.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes() as nodes:
        yield nodes


def all_shards() -> set[int]:
    """Processes of shards on this machine, whatever Ray has started them under."""
    return set(shards_of(1))


def directories() -> list[int]:
    """Processes of directories, by what Ray calls them."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(
                b"ray::DirectoryActor"
            ):
                found.append(int(process.name))
    return found


async def test_a_node_killed_in_the_middle_of_a_batch_costs_nothing(nodes: RayNodes) -> None:
    others = all_shards()
    with serving("--ray", backend="nsjail", variables={"RAY_ADDRESS": nodes.address}) as server:
        async with AsyncSandboxClient(server.address) as client:
            info = await client.server_info()
            assert set(info.shards) == {"0", "1"}
            assert info.max_episodes == 2 * 500
            assert nodes.directory(server.address) == info.shards
            quiet = await play(client)
            victim = min(all_shards() - others)

            async def kill(turn: int) -> None:
                if turn == 2:
                    await asyncio.sleep(0.1)
                    await asyncio.to_thread(nodes.kill_node, victim)

            assert await play(client, pause_s=0.3, disturb=kill) == quiet
            # Ray starts the shard again, on the node that is left.
            await all_back(client)
            assert await play(client) == quiet
            await none_live(client)
            assert nodes.directory(server.address) == (await client.server_info()).shards
            # The same where only a shard's server dies: its actor goes with it.
            both = all_shards() - others
            assert len(both) == 2
            victim = min(both)
            os.kill(victim, signal.SIGKILL)
            assert await play(client) == quiet
            await all_back(client)
            assert victim not in all_shards()
            # Nor does the directory's end lose anything: Ray makes it again.
            for pid in directories():
                os.kill(pid, signal.SIGKILL)
            await all_back(client)
            assert await play(client) == quiet
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=_SOON_S) == 0, server.log()
    async with asyncio.timeout(_SOON_S):
        while all_shards() - others:
            await asyncio.sleep(0.1)
    assert "ray" not in sys.modules


def test_a_cluster_that_does_not_answer_is_one_sentence() -> None:
    command = [sys.executable, "-m", "sandbox_server", "--ray", "--backend", "process"]
    done = subprocess.run(
        [*command, "--address", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=_SOON_S,
        check=False,
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:9"},
    )
    assert done.returncode == 1
    assert "no Ray cluster answers at 127.0.0.1:9" in done.stderr


async def test_without_ray_it_says_what_to_install_and_ray_is_to_report_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with pytest.raises(ShardError, match=r"pip install 'spadework\[ray\]'"):
        await RayFleet(ServerConfig(backend="process"), 0, "text", "info").start("unix:/book")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
