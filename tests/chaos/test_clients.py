"""A client that vanishes, is slow, or asks for much at once hurts nobody, itself included."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

from sandbox_api.client import AsyncSandboxClient

from sandbox_server import owner
from tests.chaos.playing import Transcript, none_live, play
from tests.chaos.server import ChaosServer
from tests.server.conftest import descendants

# Starts its own server, or uses the one named, and is killed in the middle of a call.
_CLIENT = """
import sys
from sandbox_api import Limits, ResetItem, SandboxClient, StepItem
from sandbox_server import LocalServer
from tests.chaos.playing import walk

address, phase = sys.argv[1:]
server = None if address else LocalServer()
with SandboxClient(address or server.address) as client:
    limits = Limits(idle_timeout_s=2, step_timeout_s=5)
    program = client.register_program(walk(300.0), limits=limits)
    print(server.process.pid if server else 0, flush=True)
    count = 16 if phase == "step" else 400
    episodes = client.reset([ResetItem(program.program_id, seed=s) for s in range(count)])
    print("steps", flush=True)
    client.step([StepItem(episode.episode_id, 0, "1") for episode in episodes])
"""


def _client(address: str, phase: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CLIENT, address, phase]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)


def test_a_killed_client_takes_its_own_server_along() -> None:
    with _client("", "step") as client:
        assert client.stdout is not None
        server = int(client.stdout.readline())
        assert client.stdout.readline() == "steps\n"
        time.sleep(0.5)
        names = [owner.name(pid) for pid in [server, *descendants(server)]]
        assert len(names) > 16
        client.kill()
    # The call in work is given up after the time that the server gives to calls at its end.
    deadline = time.monotonic() + 20
    while alive := [name for name in names if not owner.is_dead(name)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)
    left = [*Path("/sys/fs/cgroup").glob(f"*/spadework/{names[0]}")]
    left += Path("/run/spadework").glob(names[0])
    assert not left


async def test_a_client_killed_during_a_reset_leaves_no_episode(
    server: ChaosServer, undisturbed: dict[int, Transcript]
) -> None:
    async with AsyncSandboxClient(server.address) as other:
        with _client(server.address, "reset") as client:
            assert client.stdout is not None
            client.stdout.readline()
            while len(server.episodes()) < 20:
                await asyncio.sleep(0.01)
            client.send_signal(signal.SIGKILL)
        await none_live(other)
        assert await play(other) == undisturbed


async def test_a_client_killed_during_steps_leaves_no_episode_past_its_deadlines(
    server: ChaosServer, undisturbed: dict[int, Transcript]
) -> None:
    """The step in work goes on: a client that only lost its connection asks for it again."""
    async with AsyncSandboxClient(server.address) as other:
        with _client(server.address, "step") as client:
            assert client.stdout is not None
            client.stdout.readline()
            assert client.stdout.readline() == "steps\n"
            await asyncio.sleep(0.5)
            client.kill()
        assert await play(other) == undisturbed
        await none_live(other, within_s=30)
