"""What a server does not take: each refusal has its reason, and says what to do about it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sandbox_api.errors import (
    RETRY_DELAY_METADATA_KEY,
    CapacityError,
    InvalidRequestError,
    error_from_rpc,
)
from sandbox_api.types import Limits
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import runtime
from sandbox_server.config import DEFAULT_LIMITS, MAX_LIMITS, AddressError, ServerConfig
from sandbox_server.server import Server
from tests.server.conftest import COUNTER, Sandbox
from tests.server.small import serving
from tests.server.test_contract import SLOW

LIMITS = [field.name for field in dataclasses.fields(Limits)]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_has_a_default_and_a_maximum(limit: str) -> None:
    assert 0 < getattr(DEFAULT_LIMITS, limit) <= getattr(MAX_LIMITS, limit)
    most = getattr(MAX_LIMITS, limit)
    resolve = ServerConfig().resolve_limits
    assert getattr(resolve(Limits()), limit) == getattr(DEFAULT_LIMITS, limit)
    assert getattr(resolve(Limits(**{limit: most})), limit) == most


def test_a_default_over_a_servers_own_maximum_is_held_to_it() -> None:
    config = ServerConfig(max_limits=dataclasses.replace(MAX_LIMITS, max_steps=10))
    assert config.resolve_limits(Limits()).max_steps == 10


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_limit_over_its_maximum_is_an_invalid_request(
    sandbox: Sandbox, limit: str
) -> None:
    limits = Limits(**{limit: getattr(MAX_LIMITS, limit) + 1})
    with pytest.raises(InvalidRequestError, match=rf"limits\.{limit} is .* this server allows 0"):
        await sandbox.client.register_program(COUNTER, limits=limits)


async def test_a_wrong_program_says_what_is_wrong(sandbox: Sandbox) -> None:
    for request, told in (
        (sandbox.client.register_program(""), "empty"),
        (sandbox.client.register_program("#" * (1 << 20) + "#"), "this server allows 1048576"),
        (sandbox.client.register_program(COUNTER, runtime="cobol"), "no runtime 'cobol'"),
        (sandbox.client.register_program(COUNTER, limits=Limits(step_timeout_s=-1)), "allows 0"),
    ):
        with pytest.raises(InvalidRequestError, match=told):
            await request
    await sandbox.still_works()


async def test_every_refusal_of_an_item_has_its_reason() -> None:
    async with serving() as small:
        program_id = await small.register()
        (unknown, late, live) = await small.reset(
            pb.ResetItem(program_id="nothing"),
            pb.ResetItem(program_id=program_id, timeout_s=3_601),
            pb.ResetItem(program_id=program_id, max_turns=1),
        )
        assert unknown.error.reason == pb.ERROR_REASON_PROGRAM_NOT_FOUND
        assert late.error.reason == pb.ERROR_REASON_INVALID_REQUEST
        item = pb.StepItem(episode_id=live.episode_id, action="-")
        (nobody, early, ok) = await small.step(
            pb.StepItem(episode_id="nobody", action="-"),
            pb.StepItem(episode_id=live.episode_id, step_index=7, action="-"),
            item,
        )
        assert nobody.error.reason == pb.ERROR_REASON_EPISODE_NOT_FOUND
        assert early.error.reason == pb.ERROR_REASON_STEP_ORDER
        assert ok.truncated
        item.step_index = 1
        (ended,) = await small.step(item)
        assert ended.error.reason == pb.ERROR_REASON_EPISODE_ENDED
        for result in (unknown, late, nobody, early, ended):
            assert result.outcome == pb.OUTCOME_UNSPECIFIED
            assert result.error.message


async def test_a_batch_that_is_empty_or_too_long_is_an_invalid_request() -> None:
    async with serving(max_batch_items=2) as small:
        item = pb.StepItem(episode_id="nobody")
        for items in ([], [item] * 3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await small.step(*items)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert isinstance(error_from_rpc(caught.value), InvalidRequestError)
        assert len(await small.step(item, item)) == 2


async def test_an_item_that_fails_as_none_should_ends_the_call_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as small:

        async def break_down(index: int, item: pb.VerifyItem) -> pb.Verdict:
            raise RuntimeError("a fault of the server's own")

        monkeypatch.setattr(small.engine, "verify", break_down)
        with pytest.raises(grpc.aio.AioRpcError, match="request id") as caught:
            await small.verify("nobody")
        assert caught.value.code() is grpc.StatusCode.INTERNAL


async def test_a_sweep_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_server.episodes._SWEEP_INTERVAL_S", 0.01)
    swept = asyncio.Event()

    async with serving() as small:

        def sweep() -> None:
            if failed:
                swept.set()
            failed.append(True)
            raise RuntimeError("a fault of the server's own")

        failed: list[bool] = []
        monkeypatch.setattr(small.engine.episodes, "_end_overdue", sweep)
        async with asyncio.timeout(30):
            await swept.wait()


async def test_a_full_server_says_when_to_try_again_and_serves_when_there_is_room() -> None:
    async with serving(max_episodes=2, retry_delay_s=0.125) as small:
        program_id = await small.register()
        assert await small.live_episodes(0) == 0
        item = pb.ResetItem(program_id=program_id)
        first, second, third = await small.reset(item, item, item)
        assert [first.outcome, second.outcome] == [pb.OUTCOME_COMPLETED] * 2
        assert third.error.reason == pb.ERROR_REASON_CAPACITY
        assert third.error.retry_delay_s == 0.125
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await small.register(COUNTER + "# another")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())[RETRY_DELAY_METADATA_KEY] == "0.125"
        error = error_from_rpc(caught.value)
        assert isinstance(error, CapacityError)
        assert error.retry_delay_s == 0.125
        await small.stub.Close(pb.CloseRequest(episode_ids=[first.episode_id]))
        assert await small.live_episodes(1) == 1
        (again,) = await small.reset(item)
        assert again.outcome == pb.OUTCOME_COMPLETED


async def test_items_over_the_bound_on_those_in_work_are_refused_with_a_delay() -> None:
    async with serving(max_pending_items=1, retry_delay_s=0.125) as small:
        item = pb.ResetItem(program_id=await small.register(SLOW))
        first, refused = await small.reset(item, item)
        assert refused.error.reason == pb.ERROR_REASON_CAPACITY
        episodes = [first, *await small.reset(item)]
        ok, refused = await small.step(
            *[pb.StepItem(episode_id=e.episode_id, action="0.2") for e in episodes]
        )
        assert ok.outcome == pb.OUTCOME_COMPLETED
        assert refused.error.reason == pb.ERROR_REASON_CAPACITY
        assert refused.error.retry_delay_s == 0.125
        # A refused step was never taken: the same one is welcome later.
        (later,) = await small.step(pb.StepItem(episode_id=episodes[1].episode_id, action="0"))
        assert later.outcome == pb.OUTCOME_COMPLETED


async def test_a_server_that_stops_says_so_and_answers_what_is_in_work() -> None:
    async with serving() as small:
        (episode,) = await small.reset(pb.ResetItem(program_id=await small.register(SLOW)))
        item = pb.StepItem(episode_id=episode.episode_id, action="0.5")
        step = asyncio.create_task(small.step(item))
        health = health_pb2_grpc.HealthStub(small.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        serving_status = health_pb2.HealthCheckResponse
        assert (await watch.read()).status == serving_status.SERVING
        await asyncio.sleep(0.1)
        stop = asyncio.create_task(small.server.stop())
        assert (await watch.read()).status == serving_status.NOT_SERVING
        watch.cancel()
        (result,) = await step
        assert result.outcome == pb.OUTCOME_COMPLETED
        await stop


async def test_a_taken_address_is_told_before_any_jail_is_started() -> None:
    async with serving() as small:
        config = dataclasses.replace(small.engine.config, address=small.address)
        second = Server(config, {"stdlib": runtime.ensure("stdlib")})
        with pytest.raises(AddressError, match=r"cannot listen on .*port 0"):
            await second.start()
        assert len(second.engines["default"].jails) == 0


async def test_a_fault_of_the_server_is_a_request_id_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as small:

        def broken() -> None:
            raise ZeroDivisionError("a secret of the server")

        monkeypatch.setattr(small.engine, "info", broken)
        with (
            caplog.at_level(logging.ERROR),
            pytest.raises(grpc.aio.AioRpcError) as caught,
        ):
            await small.stub.GetServerInfo(pb.GetServerInfoRequest())
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        told = caught.value.details() or ""
        request_id = told.rpartition(" ")[2]
        assert "secret" not in told
        assert request_id == caplog.records[-1].request_id  # type: ignore[attr-defined]
        assert "a secret of the server" in caplog.text
