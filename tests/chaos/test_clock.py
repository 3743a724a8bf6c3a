"""The wall clock jumps: no deadline comes early, none comes late, no episode ends by it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, Outcome, ResetItem, StepItem

from tests.chaos.conftest import StartServer
from tests.chaos.playing import Transcript, none_live, play, walk
from tests.chaos.server import ChaosServer

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

_DAY_S = 24 * 3_600


class Clock:
    """The wall clock of one server alone; its C code sees it, too. See clock.c."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.jump(0)
        library = folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self.variables = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    def jump(self, to_s: int) -> None:
        """Have it so far from the true time."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", to_s))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def server(start_server: StartServer, clock: Clock) -> ChaosServer:
    return start_server("nsjail", variables=clock.variables)


@needs_compiler
@pytest.mark.nsjail
@pytest.mark.parametrize("by_s", [30 * _DAY_S, -30 * _DAY_S], ids=["forward", "back"])
async def test_a_jump_of_the_clock_ends_no_episode_and_moves_no_deadline(
    server: ChaosServer, clock: Clock, undisturbed: dict[int, Transcript], by_s: int
) -> None:
    async def disturb(turn: int) -> None:
        if turn == 1:
            clock.jump(by_s)
        elif turn == 3:
            clock.jump(0)

    async with AsyncSandboxClient(server.address) as client:
        assert await play(client, pause_s=0.3, disturb=disturb) == undisturbed
        clock.jump(by_s)
        hang = await client.register_program(walk(3600.0), limits=Limits(step_timeout_s=2.0))
        (episode,) = await client.reset([ResetItem(hang.program_id)])
        started = time.monotonic()
        (result,) = await client.step([StepItem(episode.episode_id, 0, "1")])
        assert result.outcome is Outcome.TIME_LIMIT
        assert 1.9 < time.monotonic() - started < 20
        idle = await client.register_program(walk(), limits=Limits(idle_timeout_s=2.0))
        await client.reset([ResetItem(idle.program_id)])
        clock.jump(0)
        await none_live(client, within_s=20)


@needs_compiler
@pytest.mark.nsjail
async def test_the_clock_of_this_test_does_jump(server: ChaosServer, clock: Clock) -> None:
    """Else the test above would show nothing: the server's own log has the time."""
    clock.jump(30 * _DAY_S)
    async with AsyncSandboxClient(server.address) as client:
        server.kill_jails()
        program = await client.register_program(walk())
        assert program.diagnostic is None
    log = server.log_file.read_text()
    assert time.strftime("%Y-%m-%d", time.localtime(time.time() + 30 * _DAY_S)) in log
