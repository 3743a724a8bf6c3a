"""What a process says in an answer's free parts: read as hostile, and never half believed."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from tests.security.attack import HELPERS, indented
from tests.server.conftest import COUNTER, stepping
from tests.wire import Wire

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
async def test_whatever_a_diagnostic_is_the_step_is_answered(wire: Wire, told: bytes) -> None:
    program = HELPERS + stepping(f"send(answer(outcome=2, extra={told!r}))")
    (episode,) = await wire.start(program)
    (result,) = await wire.act((episode, 0, "{}"))
    assert result.outcome in (pb.OUTCOME_PROGRAM_ERROR, pb.OUTCOME_PROTOCOL_VIOLATION)
    assert len(result.diagnostic.message.encode()) <= 4_000
    # How a process ended is the server's to say.
    assert (result.diagnostic.signal, result.diagnostic.exit_status) == (0, 0)
    await wire.close(episode)


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
async def test_a_forged_description_registers_nothing(wire: Wire, told: bytes) -> None:
    forged = f"send(answer(op=1, request=1, extra={told!r}))\ntime.sleep(9)\n"
    program = await wire.describe(HELPERS + forged + COUNTER)
    assert program.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert program.kind == pb.PROGRAM_KIND_UNSPECIFIED
    assert not program.entry


def _counter_that(instead_of: str, body: str) -> str:
    """The counter, which does something else in one place."""
    return HELPERS + COUNTER.replace(instead_of, indented(body).lstrip())


@pytest.mark.parametrize("tools", [b"{}", b"[", b"[1e999]"])
async def test_forged_tools_give_no_episode(wire: Wire, tools: bytes) -> None:
    body = f"send(answer(op=2, request=2, extra={tools!r}))\ntime.sleep(9)"
    program_id = await wire.register(_counter_that("self.count = 0", "self.count = 0\n" + body))
    (result,) = await wire.reset(pb.ResetItem(program_id=program_id))
    assert result.outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert not result.episode_id


SOLUTIONS = {
    "surrogates": "['\\ud800', '+']",
    "spaces that a pattern would try one by one": "'1. a' + ' ' * 200_000 + 'b\\n2. c'",
    "many digits": "'9' * 200_000",
    "nothing": "[]",
    "nested": "[[[[1]]], {}]",
    "no text": "float('inf')",
}


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
async def test_no_solution_holds_the_server_up(wire: Wire, solution: str) -> None:
    (episode,) = await wire.start(COUNTER.replace('["+"] * self.target', solution))
    started = time.monotonic()
    verifying = asyncio.create_task(wire.verify(episode))
    slowest_s = 0.0
    while not verifying.done():
        asked = time.monotonic()
        await wire.load()
        slowest_s = max(slowest_s, time.monotonic() - asked)
        await asyncio.sleep(0.02)
    verdict = await verifying
    assert slowest_s < 2
    assert time.monotonic() - started < 20
    assert not verdict.HasField("error"), verdict
    assert verdict.oracle.outcome == pb.OUTCOME_COMPLETED
    await wire.close(episode)


async def test_a_forged_verdict_is_not_half_believed(wire: Wire) -> None:
    body = (
        'extra = b\'{"verified": true, "message": 5}\'\n'
        "send(answer(op=4, request=3, extra=extra))\ntime.sleep(9)"
    )
    (episode,) = await wire.start(_counter_that("return self.count == self.target", body))
    verdict = await wire.verify(episode)
    assert verdict.verify_outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    assert not verdict.HasField("verified")
    await wire.close(episode)


async def test_a_reward_that_is_made_up_is_not_reproduced(wire: Wire) -> None:
    """A program's reward is its own to say; one that it takes from elsewhere is found out."""
    lucky = "return said('x')[0], float(int.from_bytes(os.urandom(8))), False, False, {}"
    (episode,) = await wire.start(HELPERS + stepping(lucky))
    (result,) = await wire.act((episode, 0, "{}"))
    assert result.outcome == pb.OUTCOME_COMPLETED
    verdict = await wire.verify(episode)
    assert not verdict.reproduced
    assert verdict.divergence.field == "reward"
    await wire.close(episode)


@pytest.mark.parametrize("action_bytes", [10, 500_000])
async def test_a_step_after_the_end_of_the_socket_harms_no_other_item(
    wire: Wire, action_bytes: int
) -> None:
    ends = HELPERS + stepping("send(answer())\nos.write(3, b'')\ntime.sleep(20)")
    (hostile,) = await wire.start(ends, max_action_bytes=1 << 20)
    (honest,) = await wire.start(COUNTER)
    await wire.act((hostile, 0, "x"))
    await asyncio.sleep(0.05)
    results = await wire.act((honest, 0, "+"), (hostile, 1, "x" * action_bytes))
    assert results[0].observation == "at 1"
    assert results[1].outcome == pb.OUTCOME_PROTOCOL_VIOLATION
    await wire.close(hostile, honest)
