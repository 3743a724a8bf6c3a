"""Attacks that once went through, and their kin: programs and clients that mean harm.

Clients here speak raw gRPC, since the package's own never asks for such things.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from sandbox_api.client import CHANNEL_OPTIONS
from sandbox_api.errors import SandboxError
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

from sandbox_server import LocalServer, runtime
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.host_process import open_process
from sandbox_server.jail_pool import PLAY_HASH_SEED
from sandbox_server.service import _messages
from sandbox_server.worker import seccomp
from tests.server.conftest import COUNTER, Sandbox, stepping

pytestmark = pytest.mark.nsjail


class Raw:
    """The service as it is on the wire."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: Any = sandbox_pb2_grpc.SandboxServiceStub(channel)

    async def start(self, source: str, count: int = 1, **limits: float) -> list[str]:
        program = await self.register(source, **limits)
        assert program.outcome == pb.OUTCOME_COMPLETED, program.diagnostic
        items = [pb.ResetItem(program_id=program.program_id)] * count
        call = self.stub.Reset(pb.ResetRequest(items=items), timeout=30)
        results = [result async for response in call for result in response.results]
        assert all(result.episode_id for result in results), results
        return [result.episode_id for result in results]

    async def register(self, source: str, **limits: float) -> pb.RegisterProgramResponse:
        request = pb.RegisterProgramRequest(source=source, limits=pb.Limits(**limits))
        return await self.stub.RegisterProgram(request, timeout=30)

    async def step(self, *items: tuple[str, int, str]) -> list[pb.StepResult]:
        """Results of (episode, index, action), in the order of the items."""
        wanted = [pb.StepItem(episode_id=e, step_index=i, action=a) for e, i, a in items]
        call = self.stub.Step(pb.StepRequest(items=wanted), timeout=20)
        results = [result async for response in call for result in response.results]
        return sorted(results, key=lambda result: result.index)

    async def verify(self, episode_id: str) -> pb.Verdict:
        request = pb.VerifyRequest(items=[pb.VerifyItem(episode_id=episode_id, run_oracle=True)])
        call = self.stub.Verify(request, timeout=30)
        (verdict,) = [result async for response in call for result in response.results]
        return verdict

    async def fork(self, episode_id: str, copies: int) -> list[str]:
        """The copies; none where the episode was closed, stepped or ended meanwhile."""
        request = pb.ForkRequest(episode_id=episode_id, copies=copies)
        try:
            return list((await self.stub.Fork(request, timeout=20)).episode_ids)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:
                raise
            return []

    async def load(self) -> pb.Load:
        return (await self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=5)).load

    async def close(self, *episode_ids: str) -> None:
        await self.stub.Close(pb.CloseRequest(episode_ids=episode_ids), timeout=5)

    async def live_episodes(self, expected: int) -> int:
        """How many there are, once that is what is expected or two seconds have passed."""
        for _ in range(40):
            if (await self.load()).live_episodes == expected:
                break
            await asyncio.sleep(0.05)
        return (await self.load()).live_episodes


@pytest.fixture
async def raw(jailed: Sandbox, jailed_server: LocalServer) -> AsyncIterator[Raw]:
    """A raw client; after each attack the server still works and holds nothing of it."""
    async with grpc.aio.insecure_channel(
        jailed_server.address, options=CHANNEL_OPTIONS
    ) as channel:
        raw = Raw(channel)
        before = await raw.load()
        yield raw
        await jailed.still_works()
        assert (await raw.load()).pending_items == before.pending_items


# A reply of this step, packed by hand: op, request, outcome, flags, reward, cut, lengths.
SAY = (
    "def say(outcome=1, observation=b'', info=b'', extra=b'', op=3, request=3):\n"
    "    import struct\n"
    "    lengths = len(observation), len(info), len(extra)\n"
    "    head = struct.pack('<BIBBdQIII', op, request, outcome, 0, 0.0, 0, *lengths)\n"
    "    message = head + observation + info + extra\n"
    "    while len(message) > 60_000:\n"
    "        os.write(3, b'\\x01' + message[:60_000])\n"
    "        message = message[60_000:]\n"
    "    os.write(3, b'\\x00' + message)\n"
)


def saying(body: str) -> str:
    return stepping(SAY + body)


async def test_two_steps_of_one_episode_in_one_call_do_not_share_a_result(raw: Raw) -> None:
    (episode,) = await raw.start(COUNTER)
    first, second = await raw.step((episode, 0, "+"), (episode, 1, "+"))
    assert (first.observation, first.step_index) == ("at 1", 0)
    assert second.error.reason == pb.ERROR_REASON_STEP_ORDER
    twice = await raw.step((episode, 1, "-"), (episode, 1, "-"))
    assert [result.observation for result in twice] == ["at 1", "at 1"]
    (third,) = await raw.step((episode, 2, "+"))
    assert third.observation == "at 2"
    await raw.close(episode)


async def test_a_lost_step_is_never_answered_with_the_one_before(
    raw: Raw, jailed: Sandbox
) -> None:
    (episode,) = await raw.start(stepping("if action == 'wait': time.sleep(10)"))
    (first,) = await raw.step((episode, 0, "go"))
    assert first.observation == "survived"
    waiting = asyncio.create_task(raw.step((episode, 1, "wait")))
    await asyncio.sleep(0.3)
    (process,) = jailed.episode_processes()
    os.kill(process, signal.SIGKILL)
    (lost,) = await waiting
    (again,) = await raw.step((episode, 1, "wait"))
    assert lost.error.reason == again.error.reason == pb.ERROR_REASON_EPISODE_LOST
    assert not again.HasField("reward")
    verdict = await raw.verify(episode)
    assert not verdict.HasField("error"), verdict
    assert verdict.reproduced
    await raw.close(episode)


FLOODS = {
    "tiny fragments": "while True: os.write(3, b'\\x01')",
    "empty fragments after a full one": (
        "os.write(3, b'\\x01' + bytes(60_000))\nwhile True: os.write(3, b'\\x01')"
    ),
    "an answer before it is asked for": "say()\nsay(request=4)\ntime.sleep(20)",
    "half an answer that nobody asked for": (
        "say()\nos.write(3, b'\\x01' + bytes(60_000))\ntime.sleep(20)"
    ),
}


@pytest.mark.parametrize("body", FLOODS.values(), ids=FLOODS)
async def test_what_is_no_answer_ends_the_episode_at_once(raw: Raw, body: str) -> None:
    (episode,) = await raw.start(saying(body), step_timeout_s=15)
    started = time.monotonic()
    (result,) = await raw.step((episode, 0, "x"))
    if result.outcome == pb.OUTCOME_COMPLETED:
        await asyncio.sleep(0.2)
        (result,) = await raw.step((episode, 1, "x"))
    assert result.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert time.monotonic() - started < 5
    await raw.close(episode)


@pytest.mark.parametrize("action_bytes", [10, 500_000])
async def test_a_step_after_the_end_of_the_socket_harms_no_other_item(
    raw: Raw, action_bytes: int
) -> None:
    program = saying("say()\nos.write(3, b'')\ntime.sleep(20)")
    (hostile,) = await raw.start(program, max_action_bytes=1 << 20)
    (honest,) = await raw.start(COUNTER)
    await raw.step((hostile, 0, "x"))
    await asyncio.sleep(0.05)
    results = await raw.step((honest, 0, "+"), (hostile, 1, "x" * action_bytes))
    assert results[0].observation == "at 1"
    assert results[1].outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    await raw.close(hostile, honest)


TOO_LONG = {
    "observation": "say(observation=b'x' * 2_000)",
    "info": "say(info=b'{\"x\": \"' + b'y' * 2_000 + b'\"}')",
    "extra": "say(extra=b' ' * (256 * 1024 + 1))",
}


@pytest.mark.parametrize("body", TOO_LONG.values(), ids=TOO_LONG)
async def test_a_forger_is_held_to_the_limits_of_an_answer(raw: Raw, body: str) -> None:
    (episode,) = await raw.start(saying(body), max_observation_bytes=1_000, max_info_bytes=1_000)
    (result,) = await raw.step((episode, 0, "x"))
    assert result.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert not result.observation
    await raw.close(episode)


# Infos that are no JSON object that a client could read and write again.
INFOS = [
    b"[]",
    b"{",
    b'{"x": NaN}',
    b'{"x": ' + b"9" * 5_000 + b"}",
    b"[" * 20_000,
    b'{"x": "\\ud800"}',
    b'{"x": "\xed\xa0\x80"}',
    '{"x": 1}'.encode("utf-16"),
]


@pytest.mark.parametrize("info", INFOS, ids=range(len(INFOS)))
async def test_an_info_that_is_none_gives_no_result(raw: Raw, info: bytes) -> None:
    (episode,) = await raw.start(saying(f"say(info={info!r})"))
    (result,) = await raw.step((episode, 0, "x"))
    assert result.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    await raw.close(episode)


# Diagnostics that an honest worker would not send; a result comes of each all the same.
DIAGNOSTICS = [
    b"",
    b"null",
    b"5",
    b"[[]]",
    b"[" * 20_000,
    b'{"phase": 1e999}',
    b'{"phase": [], "line": {}}',
    b'{"line": 1e999}',
    b'{"line": 99999999999999999999}',
    b'{"message": 5}',
    b'{"message": "\\ud800", "limit": null}',
    b'{"message": "' + b"x" * 100_000 + b'"}',
    b'{"signal": 9, "exit_status": 3, "exitStatus": 3}',
]


@pytest.mark.parametrize("told", DIAGNOSTICS, ids=range(len(DIAGNOSTICS)))
async def test_whatever_a_diagnostic_is_the_step_is_answered(raw: Raw, told: bytes) -> None:
    (episode,) = await raw.start(saying(f"say(outcome=2, extra={told!r})"))
    (result,) = await raw.step((episode, 0, "x"))
    assert result.outcome in (pb.OUTCOME_PROGRAM_ERROR, pb.OUTCOME_PROTOCOL_VIOLATION)
    assert len(result.diagnostic.message.encode()) <= 4_000
    # How a process ended is the server's to say.
    assert (result.diagnostic.signal, result.diagnostic.exit_status) == (0, 0)
    await raw.close(episode)


DESCRIPTIONS = [
    b"5",
    b"[1]",
    b'{"kind": 1e999, "entry": "x", "has_verify": 1, "has_solution": 1, "tools": []}',
    b'{"kind": 99, "entry": "x", "has_verify": 1, "has_solution": 1, "tools": []}',
    b'{"kind": 1, "entry": 5, "has_verify": 1, "has_solution": 1, "tools": []}',
    b'{"kind": 1, "entry": "x", "has_verify": 1, "has_solution": 1, "tools": {"a": 1}}',
    b'{"kind": 1, "entry": "x", "has_verify": 1, "has_solution": 1, "tools": [1e999]}',
]


@pytest.mark.parametrize("told", DESCRIPTIONS, ids=range(len(DESCRIPTIONS)))
async def test_a_forged_description_registers_nothing(raw: Raw, told: bytes) -> None:
    source = f"import os\n{SAY}\nsay(op=1, request=1, extra={told!r})\ntime.sleep(9)\n" + COUNTER
    program = await raw.register(source)
    assert program.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert program.kind == pb.PROGRAM_KIND_UNSPECIFIED
    assert not program.entry


@pytest.mark.parametrize("tools", [b"{}", b"[", b"[1e999]"])
async def test_forged_tools_give_no_episode(raw: Raw, tools: bytes) -> None:
    source = COUNTER.replace(
        "self.count = 0",
        f"self.count = 0\n        import os\n{_indented(SAY)}\n"
        f"        say(op=2, request=2, extra={tools!r})\n        time.sleep(9)",
    )
    program = await raw.register(source)
    request = pb.ResetRequest(items=[pb.ResetItem(program_id=program.program_id)])
    call = raw.stub.Reset(request, timeout=20)
    (result,) = [result async for response in call for result in response.results]
    assert result.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert not result.episode_id


def _indented(body: str) -> str:
    return "\n".join("        " + line for line in body.splitlines())


SOLUTIONS = {
    "surrogates": "['\\ud800', '+']",
    "spaces that a pattern would try one by one": "'1. a' + ' ' * 200_000 + 'b\\n2. c'",
    "many digits": "'9' * 200_000",
    "nothing": "[]",
    "nested": "[[[[1]]], {}]",
    "no text": "float('inf')",
}


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
async def test_no_solution_holds_the_server_up(raw: Raw, solution: str) -> None:
    (episode,) = await raw.start(COUNTER.replace('["+"] * self.target', solution))
    started = time.monotonic()
    verifying = asyncio.create_task(raw.verify(episode))
    slowest_s = 0.0
    while not verifying.done():
        asked = time.monotonic()
        await raw.load()
        slowest_s = max(slowest_s, time.monotonic() - asked)
        await asyncio.sleep(0.02)
    verdict = await verifying
    assert slowest_s < 1
    assert time.monotonic() - started < 10
    assert not verdict.HasField("error"), verdict
    assert verdict.oracle.outcome == pb.OUTCOME_COMPLETED
    await raw.close(episode)


async def test_a_forged_verdict_is_not_half_believed(raw: Raw) -> None:
    source = COUNTER.replace(
        "return self.count == self.target",
        f"import os\n{_indented(SAY)}\n"
        '        extra = b\'{"verified": true, "message": 5}\'\n'
        "        say(op=4, request=3, extra=extra)\n        time.sleep(9)",
    )
    (episode,) = await raw.start(source)
    verdict = await raw.verify(episode)
    assert verdict.verify_outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert not verdict.HasField("verified")
    await raw.close(episode)


# Ways to die of a SIGKILL, which would look as if somebody on the host had done it.
HIDDEN_DEATHS = {
    "a signal of its own choice at input": (
        "import fcntl\nr, w = os.pipe()\n"
        "fcntl.fcntl(r, fcntl.F_SETOWN, os.getpid())\n"
        "fcntl.fcntl(r, 10, 9)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\n"
        "os.write(w, b'x')\ntime.sleep(5)"
    ),
    "a lease": "import fcntl\nfd = os.open('/tmp/x', os.O_CREAT)\nfcntl.fcntl(fd, 1024, 0)",
    "a watched folder": "import fcntl\nfcntl.fcntl(os.open('/tmp', 0), fcntl.F_NOTIFY, 4)",
    "a larger pipe": "import fcntl\nfcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
}


@pytest.mark.parametrize("body", HIDDEN_DEATHS.values(), ids=HIDDEN_DEATHS)
@pytest.mark.parametrize("max_processes", [1, 4])
async def test_no_signal_by_way_of_a_descriptor(raw: Raw, body: str, max_processes: int) -> None:
    (episode,) = await raw.start(stepping(body), max_processes=max_processes)
    (result,) = await raw.step((episode, 0, "x"))
    assert result.outcome == pb.OUTCOME_PROGRAM_ERROR, result
    assert result.diagnostic.exception == "PermissionError"
    await raw.close(episode)


CLONE = """
import ctypes, platform
number = 56 if platform.machine() == "x86_64" else 220
libc = ctypes.CDLL(None)
child = libc.syscall(*[ctypes.c_long(a) for a in (number, {flags}, 0, 0, 0, 0)])
if child == 0:
    os._exit(0)
time.sleep(0.2)
return str(child), 0.0, False, False, {{}}
"""


@pytest.mark.parametrize("flags", [9, 19, 0x8000 | 17, 0x2000 | 17, 0x10000000 | 17])
async def test_no_child_whose_end_is_a_signal_or_the_zygotes_business(
    raw: Raw, flags: int
) -> None:
    (episode,) = await raw.start(stepping(CLONE.format(flags=flags)), max_processes=4)
    (result,) = await raw.step((episode, 0, "x"))
    assert result.observation == "-1", result
    await raw.close(episode)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("may_fork", [False, True])
def test_every_jump_of_the_filter_lands_inside_it(machine: str, may_fork: bool) -> None:
    program = seccomp.build(may_fork=may_fork, machine=machine)
    count = len(program) // 8
    for at in range(count):
        code, true, false = program[8 * at], program[8 * at + 2], program[8 * at + 3]
        if code & 7 == 5:
            assert at + 1 + max(true, false) < count


FORKING = """
import os
class ForkingEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        made = 0
        for _ in range(127):
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
            except OSError:
                break
            made += 1
        return str(made), 0.0, False, False, {}
"""


async def test_a_jail_out_of_processes_ends_nobodys_episode() -> None:
    """Bombs fill the jail's pids; its zygote must not die of a fork that fails."""
    with LocalServer(backend="nsjail", max_episodes=20) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            raw = Raw(channel)
            (honest,) = await raw.start(COUNTER)
            bombs = await raw.start(FORKING, 2, max_processes=128)
            made = await raw.step(*[(bomb, 0, "x") for bomb in bombs])
            if sum(int(result.observation) for result in made) == 254:
                pytest.skip("there is no pids cgroup here to exhaust")
            program = await raw.register(COUNTER)
            items = [pb.ResetItem(program_id=program.program_id)] * 3
            call = raw.stub.Reset(pb.ResetRequest(items=items), timeout=20)
            refused = [result async for response in call for result in response.results]
            assert all(result.error.retry_delay_s > 0 for result in refused)
            (result,) = await raw.step((honest, 0, "+"))
            assert result.observation == "at 1"
            # What the bombs left is swept up although there is no room for a sweeper.
            await raw.close(*bombs)
            assert await raw.live_episodes(1) == 1
            await asyncio.sleep(0.2)
            assert len(await raw.start(COUNTER, 3)) == 3


async def test_closing_or_cancelling_while_copies_are_made_leaves_nothing(
    raw: Raw, jailed: Sandbox
) -> None:
    before = (await raw.load()).live_episodes
    for delay_s in (0.0, 0.002, 0.005, 0.01):
        for cancel in (False, True):
            (episode,) = await raw.start(COUNTER, max_processes=100)
            forking = asyncio.create_task(raw.fork(episode, 60))
            await asyncio.sleep(delay_s)
            if cancel:
                forking.cancel()
            await raw.close(episode)
            copies = await asyncio.gather(forking, return_exceptions=True)
            await raw.close(*[c for made in copies if isinstance(made, list) for c in made])
    assert await raw.live_episodes(before) == before
    await jailed.nothing_left()


async def test_a_step_beside_a_copy_is_in_both_records_or_in_one_alone(raw: Raw) -> None:
    echo = stepping("return action, 0.0, False, False, {}")
    (episode,) = await raw.start(echo, max_processes=40)
    forking = asyncio.create_task(raw.fork(episode, 20))
    await asyncio.sleep(0.005)
    (first,) = await raw.step((episode, 0, "a"))
    assert first.observation == "a"
    for copy in await forking:
        # It is at its own next step, whichever that is, and its record replays.
        (behind,) = await raw.step((copy, 0, "a"))
        assert behind.observation == "a"
        assert (await raw.verify(copy)).reproduced
        await raw.close(copy)
    await raw.close(episode)


# An original that answers for its copy and dies, with the copy's hello already said.
LYING_FORK = """
import array, os, socket, struct
class LyingEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        os.write(3, b"\\x00" + struct.pack("<BIBBdQIII", 3, 3, 1, 0, 0.0, 0, 0, 0, 0))
        os.read(3, 60_001)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(3))
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if os.fork() == 0:
            os.write(descriptors[0], b"\\x00hello")
            time.sleep(60)
        time.sleep(0.01)
        os.write(3, b"\\x00" + struct.pack("<BIBBdQIII", 6, 4, 1, 0, 0.0, 0, 0, 0, 0))
        os._exit(0)
"""


async def test_a_family_that_dies_while_it_is_copied_gives_its_user_back_once() -> None:
    """Given back twice, an id would be two episodes', and the sweep of one kill the other."""
    config = ServerConfig(backend="nsjail")
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    jail = engine.jails._jails["stdlib", PLAY_HASH_SEED]
    users = sorted(jail._process.users)
    try:
        program = await engine.register(
            pb.RegisterProgramRequest(source=LYING_FORK, limits=pb.Limits(max_processes=4))
        )
        for _ in range(10):
            episode = await engine.reset(0, pb.ResetItem(program_id=program.program_id))
            answered: asyncio.Future[pb.StepResult] = asyncio.get_running_loop().create_future()
            step = pb.StepItem(episode_id=episode.episode_id, action="x")
            engine.step(0, step, answered.set_result)
            await answered
            with contextlib.suppress(SandboxError):
                request = pb.ForkRequest(episode_id=episode.episode_id, copies=1)
                engine.close_episodes(await engine.fork(request))
            engine.close_episodes([episode.episode_id])
        for _ in range(40):
            if len(jail._free_users) >= len(users):
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)
        assert sorted(jail._free_users) == users
        assert engine.info().load.live_episodes == 0
    finally:
        await engine.close()


ONE_FOR_TWO = LYING_FORK.replace("if os.fork() == 0:", "if True:").replace(
    "            time.sleep(60)\n", ""
)


async def test_an_original_cannot_be_its_own_copy(raw: Raw) -> None:
    source = ONE_FOR_TWO.replace("os._exit(0)", "time.sleep(9)")
    (episode,) = await raw.start(source, max_processes=4)
    await raw.step((episode, 0, "x"))
    assert await raw.fork(episode, 1) == []
    await raw.close(episode)


async def test_an_episode_is_not_idle_while_it_is_verified(raw: Raw) -> None:
    (episode,) = await raw.start(stepping("time.sleep(0.4)"), idle_timeout_s=1)
    for index in range(6):
        await raw.step((episode, index, "x"))
    assert (await raw.verify(episode)).reproduced
    (result,) = await raw.step((episode, 6, "x"))
    assert result.observation == "survived"
    await raw.close(episode)


def test_a_pid_that_another_process_has_by_now_is_not_taken_for_the_copy() -> None:
    mine = os.getuid()
    pidfd = open_process(os.getpid(), mine)
    assert pidfd is not None
    os.close(pidfd)
    assert open_process(os.getpid(), mine + 1) is None
    ended = subprocess.Popen(["true"])
    time.sleep(0.2)
    # Not reaped yet: there is a process of that id and user, and it is no use.
    assert open_process(ended.pid, mine) is None
    ended.wait()
    assert open_process(ended.pid, mine) is None


def test_large_results_are_put_into_several_messages() -> None:
    results = [pb.StepResult(index=i, observation="x" * (4 << 20)) for i in range(20)]
    messages = list(_messages(pb.StepResponse, results))
    assert all(message.ByteSize() <= 16 << 20 for message in messages)
    assert [result.index for message in messages for result in message.results] == list(range(20))


async def test_large_results_do_not_end_the_call(raw: Raw) -> None:
    big = stepping("return 'x' * (4 << 20), 0.0, False, False, {}")
    episodes = await raw.start(big, 20, max_observation_bytes=4 << 20)
    results = await raw.step(*[(episode, 0, "x") for episode in episodes])
    assert [len(result.observation) for result in results] == [4 << 20] * 20
    await raw.close(*episodes)


@pytest.mark.parametrize(
    "options",
    [b"[]", b'{"a":' * 900 + b"1" + b"}" * 900, b'{"a": "' + b"x" * (1 << 20) + b'"}', b"\xff"],
)
async def test_options_that_are_none_are_refused_and_not_blamed_on_the_program(
    raw: Raw, options: bytes
) -> None:
    program = await raw.register(COUNTER)
    item = pb.ResetItem(program_id=program.program_id, options_json=options)
    call = raw.stub.Reset(pb.ResetRequest(items=[item]), timeout=20)
    (result,) = [result async for response in call for result in response.results]
    assert result.error.reason == pb.ERROR_REASON_INVALID_REQUEST
    assert result.outcome == pb.OUTCOME_UNSPECIFIED


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1, 0])
async def test_any_seed_is_a_seed(raw: Raw, seed: int) -> None:
    program = await raw.register(COUNTER)
    item = pb.ResetItem(program_id=program.program_id, seed=seed)
    call = raw.stub.Reset(pb.ResetRequest(items=[item]), timeout=20)
    (result,) = [result async for response in call for result in response.results]
    assert result.outcome == pb.OUTCOME_COMPLETED
    (step,) = await raw.step((result.episode_id, 0, "\x00 \N{BOMB} \u2028"))
    assert step.outcome == pb.OUTCOME_COMPLETED
    await raw.close(result.episode_id)


async def test_records_are_bounded_by_what_they_take() -> None:
    config = ServerConfig(backend="nsjail", max_record_bytes=1 << 20)
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()

    async def step(episode_id: str, index: int) -> pb.StepResult:
        answered: asyncio.Future[pb.StepResult] = asyncio.get_running_loop().create_future()
        item = pb.StepItem(episode_id=episode_id, step_index=index, action="x" * 60_000)
        engine.step(0, item, answered.set_result)
        return await answered

    try:
        program = await engine.register(pb.RegisterProgramRequest(source=COUNTER))
        item = pb.ResetItem(program_id=program.program_id)
        episodes = [(await engine.reset(0, item)).episode_id for _ in range(4)]
        for episode in episodes:
            for index in range(6):
                assert (await step(episode, index)).outcome == pb.OUTCOME_COMPLETED
        engine.episodes.bound_records()
        full = await step(episodes[0], 6)
        assert full.error.reason == pb.ERROR_REASON_CAPACITY
        engine.close_episodes(episodes[:2])
        engine.episodes.bound_records()
        assert (await step(episodes[2], 6)).outcome == pb.OUTCOME_COMPLETED
    finally:
        await engine.close()


async def test_many_steps_with_long_timeouts_are_few_timers() -> None:
    engine = Engine(ServerConfig(backend="nsjail"), {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        program = await engine.register(pb.RegisterProgramRequest(source=COUNTER))
        episode = await engine.reset(0, pb.ResetItem(program_id=program.program_id))
        before = len(engine.jails._poller._deadlines)
        for index in range(200):
            answered: asyncio.Future[pb.StepResult] = asyncio.get_running_loop().create_future()
            item = pb.StepItem(
                episode_id=episode.episode_id, step_index=index, action="-", timeout_s=600
            )
            engine.step(0, item, answered.set_result)
            assert (await answered).outcome == pb.OUTCOME_COMPLETED
        assert len(engine.jails._poller._deadlines) <= before + 2
    finally:
        await engine.close()


async def test_cancelled_calls_leave_nothing(raw: Raw, jailed: Sandbox) -> None:
    program = await raw.register(COUNTER)
    items = [pb.ResetItem(program_id=program.program_id)] * 40
    (slow,) = await raw.start(stepping("time.sleep(0.5)"))
    before = (await raw.load()).live_episodes
    for delay_s in (0.0, 0.005, 0.02):
        call = raw.stub.Reset(pb.ResetRequest(items=items), timeout=20)
        await asyncio.sleep(delay_s)
        call.cancel()
        register = raw.stub.RegisterProgram(
            pb.RegisterProgramRequest(source=COUNTER + f"# {delay_s}"), timeout=20
        )
        await asyncio.sleep(delay_s)
        register.cancel()
    request = pb.StepRequest(items=[pb.StepItem(episode_id=slow, action="x")])
    step = raw.stub.Step(request, timeout=20)
    await asyncio.sleep(0.1)
    step.cancel()
    (again,) = await raw.step((slow, 0, "x"))
    assert again.observation == "survived"
    assert await raw.live_episodes(before) == before
    await raw.close(slow)
