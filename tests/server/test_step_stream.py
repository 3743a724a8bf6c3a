"""A stream of steps keeps what single calls promise, whatever is sent on it, or not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.authentication import token_sha256
from sandbox_server.config import TenantConfig
from tests.server.conftest import COUNTER, stepping
from tests.server.small import Small, serving

_PLAY = "/sandbox_api.v1.SandboxService/Play"
# Far more than any of it takes, on a machine that is busy with other tests.
_SOON_S = 30.0

SLOW = """
import time

class SlowEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        time.sleep(float(action))
        return "done", 0.0, False, False, {}
"""


def _request(*steps: tuple[str, int, str]) -> pb.StepRequest:
    return pb.StepRequest(
        items=[pb.StepItem(episode_id=e, step_index=i, action=a) for e, i, a in steps]
    )


async def _results(call: Any, count: int) -> list[pb.StepResult]:
    found: list[pb.StepResult] = []
    async with asyncio.timeout(_SOON_S):
        while len(found) < count:
            found += (await call.read()).results
    return found


async def _ended(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(_SOON_S):
        return await call.code()


@contextlib.asynccontextmanager
async def _still_serving(small: Small) -> AsyncIterator[None]:
    """Whatever happens in the block, the next episode works."""
    yield
    (episode,) = await small.start(COUNTER)
    async with asyncio.timeout(_SOON_S):
        (result,) = await small.act((episode, 0, "+"))
    assert result.outcome == pb.OUTCOME_COMPLETED
    await small.close(episode)


async def test_items_are_numbered_over_all_messages_of_a_stream() -> None:
    async with serving() as small:
        ids = await small.start(COUNTER, 3)
        call = small.stub.Play()
        await call.write(_request(*[(i, 0, "+") for i in ids]))
        await call.write(pb.StepRequest())
        assert sorted(r.index for r in await _results(call, 3)) == [0, 1, 2]
        await call.write(_request((ids[1], 1, "+"), ("nobody", 0, "+")))
        known, unknown = sorted(await _results(call, 2), key=lambda r: r.index)
        assert (known.index, known.step_index, known.outcome) == (3, 1, pb.OUTCOME_COMPLETED)
        assert (unknown.index, unknown.error.reason) == (4, pb.ERROR_REASON_EPISODE_NOT_FOUND)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await _ended(call) is grpc.StatusCode.OK


async def test_a_message_is_not_held_up_by_the_one_before_and_each_item_has_its_deadline() -> None:
    async with serving() as small:
        slow, quick = await small.start(SLOW, 2)
        call = small.stub.Play()
        request = _request((slow, 0, "60"))
        request.items[0].timeout_s = 1.5
        await call.write(request)
        await call.write(_request((quick, 0, "0")))
        first, second = await _results(call, 2)
        assert (first.index, first.outcome) == (1, pb.OUTCOME_COMPLETED)
        assert (second.index, second.outcome) == (0, pb.OUTCOME_TIME_LIMIT)
        call.cancel()


async def test_a_repeat_on_another_stream_is_answered_from_the_record() -> None:
    async with serving() as small:
        (episode,) = await small.start(COUNTER)
        seen = []
        for _ in range(2):
            call = small.stub.Play()
            await call.write(_request((episode, 0, "+")))
            seen += await _results(call, 1)
            call.cancel()
        assert seen[0] == seen[1]
        assert small.engine.steps_total == 1


async def test_a_stream_broken_off_leaves_its_steps_done_and_nothing_behind() -> None:
    async with serving() as small, _still_serving(small):
        ids = await small.start(SLOW, 4)
        call = small.stub.Play()
        await call.write(_request(*[(i, 0, "0.3") for i in ids]))
        while small.engine.pending_items < 4:
            await asyncio.sleep(0.01)
        call.cancel()
        results = await small.act(*[(i, 0, "0.3") for i in ids])
        assert [r.outcome for r in results] == [pb.OUTCOME_COMPLETED] * 4
        assert small.engine.steps_total == 4
        await _nothing_left(small)


async def _nothing_left(small: Small) -> None:
    deadline = time.monotonic() + _SOON_S
    service, metrics, engine = small.server._service, small.server._metrics, small.engine
    while service.open_streams("default") or metrics.calls_in_flight or engine.pending_items:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert engine.unread.total_bytes == 0


@pytest.mark.parametrize(
    "data",
    [b"\xff", _request(*[("x", 0, "")] * 9).SerializeToString(), b"\x0a\x00" * (1 << 20)],
    ids=["no message", "too many items", "millions of items"],
)
async def test_a_message_that_is_refused_ends_its_stream_and_no_other(data: bytes) -> None:
    async with serving(max_batch_items=8) as small, _still_serving(small):
        (episode,) = await small.start(COUNTER)
        other, call = small.stub.Play(), small.channel.stream_stream(_PLAY)()
        await call.write(data)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await other.write(_request((episode, 0, "+")))
        await _results(other, 1)
        other.cancel()
        await _nothing_left(small)


async def test_an_idle_stream_is_ended_and_one_whose_client_waits_only_if_it_is_silent() -> None:
    async with serving(request_timeout_s=2.0) as small, _still_serving(small):
        ids = await small.start(SLOW, 2)
        idle, silent, waiting = small.stub.Play(), small.stub.Play(), small.stub.Play()
        await idle.write(_request(("nobody", 0, "")))
        await _results(idle, 1)
        await silent.write(_request((ids[0], 0, "60")))
        await waiting.write(_request((ids[1], 0, "6")))

        async def speak() -> None:
            while True:
                await waiting.write(pb.StepRequest())
                await asyncio.sleep(0.1)

        speaking = asyncio.create_task(speak())
        assert await idle.read() is grpc.aio.EOF
        assert await _ended(idle) is grpc.StatusCode.OK
        assert await _ended(silent) is grpc.StatusCode.UNAVAILABLE
        assert (await _results(waiting, 1))[0].outcome == pb.OUTCOME_COMPLETED
        speaking.cancel()
        waiting.cancel()
        await small.close(*ids)
        await _nothing_left(small)


async def test_a_client_that_is_not_listened_to_is_not_taken_for_silent() -> None:
    """A stream that is full reads nothing, whatever its client says meanwhile."""
    async with serving(request_timeout_s=1.0, max_batch_items=2) as small, _still_serving(small):
        ids = await small.start(SLOW, 2)
        call = small.stub.Play()
        await call.write(_request(*[(i, 0, "4") for i in ids]))
        results = await _results(call, 2)
        assert [r.outcome for r in results] == [pb.OUTCOME_COMPLETED] * 2
        # From then on it is.
        assert await call.read() is grpc.aio.EOF
        assert await _ended(call) is grpc.StatusCode.OK
        await _nothing_left(small)


async def test_a_message_that_never_comes_to_its_end_is_not_waited_for() -> None:
    """The half of it stays with gRPC, and goes with the stream."""
    async with serving(request_timeout_s=0.5) as small, _still_serving(small):

        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(3_600)
            yield b""

        call = small.channel.stream_stream(_PLAY)(never())
        assert await _ended(call) is grpc.StatusCode.OK
        await _nothing_left(small)


async def test_a_client_that_reads_nothing_is_held_back_and_then_ended() -> None:
    source = stepping("return 'x' * 30_000, 0.0, False, False, {}")
    async with (
        serving(max_batch_items=16, unread_timeout_s=1.0) as small,
        _still_serving(small),
    ):
        ids = await small.start(source, 16)
        call = small.stub.Play()
        most = 0

        async def flood() -> None:
            for turn in range(10_000):
                await call.write(_request(*[(i, turn, "x") for i in ids]))

        flooding = asyncio.create_task(flood())
        deadline = time.monotonic() + _SOON_S
        while small.engine.steps_total == 0 or small.server._service.open_streams("default"):
            most = max(most, small.engine.unread.total_bytes)
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        flooding.cancel()
        call.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        # Two messages' worth in the stream, and as much again on its way.
        assert most < 5 * 16 * 30_200
        assert small.engine.steps_total < 10_000
        await _nothing_left(small)


async def test_results_over_the_bound_on_unread_ones_are_refused_item_by_item() -> None:
    async with serving(max_unread_bytes=1_000) as small:
        (episode,) = await small.start(COUNTER)
        small.engine.unread.total_bytes += 2_000
        call = small.stub.Play()
        await call.write(_request((episode, 0, "+")))
        (refused,) = await _results(call, 1)
        assert refused.error.reason == pb.ERROR_REASON_CAPACITY
        small.engine.unread.total_bytes -= 2_000
        await call.write(_request((episode, 0, "+")))
        assert (await _results(call, 1))[0].outcome == pb.OUTCOME_COMPLETED
        call.cancel()


async def test_thousands_of_tiny_messages_stop_nobody_else() -> None:
    async with serving() as small, _still_serving(small):
        (episode,) = await small.start(COUNTER)
        calls = [small.stub.Play() for _ in range(4)]
        over = asyncio.Event()

        async def flood(call: Any) -> None:
            while not over.is_set():
                await call.write(pb.StepRequest())

        async def read(call: Any) -> None:
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call.read()

        flooding = [asyncio.create_task(flood(call)) for call in calls]
        reading = [asyncio.create_task(read(call)) for call in calls]
        started = time.monotonic()
        for turn in range(20):
            (result,) = await small.act((episode, turn, "-"))
            assert result.outcome == pb.OUTCOME_COMPLETED
        assert time.monotonic() - started < _SOON_S
        over.set()
        await asyncio.gather(*flooding)
        for call in calls:
            call.cancel()
        await asyncio.gather(*reading)
        await _nothing_left(small)


async def test_streams_are_bounded_and_a_tenant_has_its_share() -> None:
    tenants = tuple(TenantConfig(name, token_sha256(name)) for name in ("one",))
    async with serving(tenants=tenants, max_streams=2) as small:
        bearer = [("authorization", "Bearer one")]
        call, other = small.stub.Play(metadata=bearer), small.stub.Play(metadata=bearer)
        for stream in (call, other):
            await stream.write(_request(("nobody", 0, "")))
            await _results(stream, 1)
        third = small.stub.Play(metadata=bearer)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await third.read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call.cancel()
        while small.server._service.open_streams("one") > 1:
            await asyncio.sleep(0.02)
        again = small.stub.Play(metadata=bearer)
        await again.write(_request(("nobody", 0, "")))
        await _results(again, 1)
        again.cancel()
        other.cancel()


async def test_a_stranger_s_stream_is_refused_before_a_message() -> None:
    tenants = (TenantConfig("one", token_sha256("one")),)
    async with serving(tenants=tenants) as small:
        for metadata in ((), [("authorization", "Bearer two")]):
            call = small.stub.Play(metadata=metadata)
            assert await _ended(call) is grpc.StatusCode.UNAUTHENTICATED
        assert small.server._metrics.of("").refusals


async def test_a_rate_holds_over_a_stream_and_what_it_refuses_may_come_again() -> None:
    tenants = (TenantConfig("one", token_sha256("one"), steps_per_s=2.0),)
    async with serving(tenants=tenants) as small:
        bearer = [("authorization", "Bearer one")]
        program = await small.stub.RegisterProgram(
            pb.RegisterProgramRequest(source=COUNTER), metadata=bearer
        )
        items = [pb.ResetItem(program_id=program.program_id)] * 4
        resets = small.stub.Reset(pb.ResetRequest(items=items), metadata=bearer)
        ids = [r.episode_id async for response in resets for r in response.results]
        call = small.stub.Play(metadata=bearer)
        await call.write(_request(*[(i, 0, "+") for i in ids]))
        results = await _results(call, 4)
        refused = [r for r in results if r.HasField("error")]
        assert {r.error.reason for r in refused} == {pb.ERROR_REASON_QUOTA}
        assert 1 <= len(refused) <= 3
        await asyncio.sleep(refused[0].error.retry_delay_s + 0.1)
        await call.write(_request((ids[refused[0].index], 0, "+")))
        assert (await _results(call, 1))[0].outcome == pb.OUTCOME_COMPLETED
        call.cancel()


async def test_an_idle_stream_does_not_hold_up_the_end_of_the_server() -> None:
    async with serving(stop_grace_s=60.0) as small:
        ids = await small.start(SLOW, 1)
        idle, busy = small.stub.Play(), small.stub.Play()
        await idle.write(_request(("nobody", 0, "")))
        await _results(idle, 1)
        await busy.write(_request((ids[0], 0, "1")))
        while not small.engine.pending_items:
            await asyncio.sleep(0.01)
        started = time.monotonic()
        stopping = asyncio.create_task(small.server.stop())
        assert (await _results(busy, 1))[0].outcome == pb.OUTCOME_COMPLETED
        assert await _ended(idle) is grpc.StatusCode.OK
        assert await _ended(busy) is grpc.StatusCode.OK
        await stopping
        assert time.monotonic() - started < _SOON_S


async def test_messages_are_counted_as_calls_and_streams_by_themselves() -> None:
    async with serving() as small:
        (episode,) = await small.start(COUNTER)
        call = small.stub.Play()
        for turn in range(3):
            await call.write(_request((episode, turn, "-")))
            await _results(call, 1)
        counts = small.server._metrics.of("default")
        assert counts.calls["Step"] == 3
        assert counts.outcomes["Step", pb.OUTCOME_COMPLETED] == 3
        assert sum(counts.latency("Step").counts) == 3
        assert small.server._service.open_streams("default") == 1
        assert small.server._metrics.calls_in_flight == 0
        call.cancel()
        await _nothing_left(small)
