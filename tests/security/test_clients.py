"""Clients that mean harm, or are careless: they harm no other, and get no second result."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.chunks import messages
from tests.security.conftest import Target
from tests.server.conftest import COUNTER, JAILS, stepping
from tests.server.small import serving
from tests.wire import Wire


async def test_two_steps_of_one_episode_in_one_call_do_not_share_a_result(wire: Wire) -> None:
    (episode,) = await wire.start(COUNTER)
    first, second = await wire.act((episode, 0, "+"), (episode, 1, "+"))
    assert (first.observation, first.step_index) == ("at 1", 0)
    assert second.error.reason == pb.ERROR_REASON_STEP_ORDER
    twice = await wire.act((episode, 1, "-"), (episode, 1, "-"))
    assert [result.observation for result in twice] == ["at 1", "at 1"]
    (third,) = await wire.act((episode, 2, "+"))
    assert third.observation == "at 2"
    await wire.close(episode)


async def test_a_lost_step_is_never_answered_with_the_one_before(
    wire: Wire, target: Target
) -> None:
    neighbours = set(target.host.episodes())
    (episode,) = await wire.start(stepping("if action == 'wait': time.sleep(10)"))
    (first,) = await wire.act((episode, 0, "go"))
    assert first.observation == "survived"
    waiting = asyncio.create_task(wire.act((episode, 1, "wait")))
    await asyncio.sleep(0.3)
    (process,) = set(target.host.episodes()) - neighbours
    os.kill(process, signal.SIGKILL)
    (lost,) = await waiting
    (again,) = await wire.act((episode, 1, "wait"))
    assert lost.error.reason == again.error.reason == pb.ERROR_REASON_EPISODE_LOST
    assert not again.HasField("reward")
    verdict = await wire.verify(episode)
    assert not verdict.HasField("error"), verdict
    assert verdict.reproduced
    await wire.close(episode)


async def test_an_episode_is_not_idle_while_it_is_verified(wire: Wire) -> None:
    (episode,) = await wire.start(stepping("time.sleep(0.4)"), idle_timeout_s=1)
    for index in range(6):
        await wire.act((episode, index, "x"))
    assert (await wire.verify(episode)).reproduced
    (result,) = await wire.act((episode, 6, "x"))
    assert result.observation == "survived"
    await wire.close(episode)


def test_large_results_are_put_into_several_messages() -> None:
    results = [pb.StepResult(index=i, observation="x" * (4 << 20)) for i in range(20)]
    made = list(messages(pb.StepResponse, results))
    assert all(message.ByteSize() <= 16 << 20 for message in made)
    assert [result.index for message in made for result in message.results] == list(range(20))


async def test_large_results_do_not_end_the_call(wire: Wire) -> None:
    big = stepping("return 'x' * (4 << 20), 0.0, False, False, {}")
    episodes = await wire.start(big, 20, max_observation_bytes=4 << 20)
    results = await wire.act(*[(episode, 0, "x") for episode in episodes])
    assert [len(result.observation) for result in results] == [4 << 20] * 20
    await wire.close(*episodes)


OPTIONS = {
    "an array": b"[]",
    "nested": b'{"a":' * 900 + b"1" + b"}" * 900,
    "long": b'{"a": "' + b"x" * (1 << 20) + b'"}',
    "no text": b"\xff",
    "a number of many digits": b'{"a": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_options_that_are_none_are_refused_and_not_blamed_on_the_program(
    wire: Wire, options: bytes
) -> None:
    item = pb.ResetItem(program_id=await wire.register(COUNTER), options_json=options)
    (result,) = await wire.reset(item)
    assert result.error.reason == pb.ERROR_REASON_INVALID_REQUEST
    assert result.outcome == pb.OUTCOME_UNSPECIFIED


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1, 0])
async def test_any_seed_is_a_seed(wire: Wire, seed: int) -> None:
    (result,) = await wire.reset(pb.ResetItem(program_id=await wire.register(COUNTER), seed=seed))
    assert result.outcome == pb.OUTCOME_COMPLETED
    (step,) = await wire.act((result.episode_id, 0, "\x00 \N{BOMB} \u2028"))
    assert step.outcome == pb.OUTCOME_COMPLETED
    await wire.close(result.episode_id)


async def test_cancelled_calls_leave_nothing(wire: Wire) -> None:
    items = [pb.ResetItem(program_id=await wire.register(COUNTER))] * 40
    (slow,) = await wire.start(stepping("time.sleep(0.5)"))
    # The neighbour and the slow one.
    assert await wire.live_episodes(2) == 2
    for delay_s in (0.0, 0.005, 0.02):
        call = wire.stub.Reset(pb.ResetRequest(items=items), timeout=20)
        await asyncio.sleep(delay_s)
        call.cancel()
        register = wire.stub.RegisterProgram(
            pb.RegisterProgramRequest(source=COUNTER + f"# {delay_s}"), timeout=20
        )
        await asyncio.sleep(delay_s)
        register.cancel()
    request = pb.StepRequest(items=[pb.StepItem(episode_id=slow, action="x")])
    step = wire.stub.Step(request, timeout=20)
    await asyncio.sleep(0.1)
    step.cancel()
    (again,) = await wire.act((slow, 0, "x"))
    assert again.observation == "survived"
    assert await wire.live_episodes(2) == 2
    await wire.close(slow)


@pytest.mark.parametrize("backend", JAILS)
async def test_records_are_bounded_by_what_they_take(backend: str) -> None:
    async with serving(backend=backend, max_record_bytes=1 << 20) as small:
        episodes = await small.start(COUNTER, 4)
        action = "x" * 60_000
        for index in range(4):
            for result in await small.act(*[(episode, index, action) for episode in episodes]):
                assert result.outcome == pb.OUTCOME_COMPLETED
        # At once: not only when somebody looks.
        late = await small.act(*[(episode, 4, action) for episode in episodes])
        assert {result.error.reason for result in late} >= {pb.ERROR_REASON_CAPACITY}
        assert small.engine.episodes.record_bytes() < 1.2 * (1 << 20)
        (item,) = await small.reset(pb.ResetItem(program_id=await small.register()))
        assert item.error.reason == pb.ERROR_REASON_CAPACITY
        await small.close(*episodes[:2])
        small.engine.episodes.bound_records()
        assert (await small.act((episodes[3], 4, action)))[0].outcome == pb.OUTCOME_COMPLETED


async def test_many_steps_with_long_timeouts_are_few_timers() -> None:
    async with serving() as small:
        (episode,) = await small.start(COUNTER)
        before = len(small.engine.jails.poller._deadlines)
        for index in range(200):
            item = pb.StepItem(episode_id=episode, step_index=index, action="-", timeout_s=600)
            (result,) = await small.step(item)
            assert result.outcome == pb.OUTCOME_COMPLETED
        assert len(small.engine.jails.poller._deadlines) <= before + 2
