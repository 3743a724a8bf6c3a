"""Requests and answers that are small to send and dear to read: one tenant's must not stop all."""

from __future__ import annotations

import asyncio
import os
import time

import grpc
import pytest
from google.protobuf.message import Message
from sandbox_api.errors import InvalidRequestError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, checks, oracle, pieces, values
from sandbox_server.authentication import token_sha256
from sandbox_server.config import TenantConfig
from sandbox_server.poller import Poller
from tests.server.conftest import COUNTER, stepping
from tests.server.small import serving
from tests.wire import Wire

_SERVICE = "/sandbox_api.v1.SandboxService/"


def _item_of(actions: int) -> bytes:
    return pb.ResetItem(program_id="x", prefix_actions=[""] * actions).SerializeToString()


def _reset_of(item: bytes) -> bytes:
    length, size = bytearray(), len(item)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return b"\x0a" + bytes([*length, size]) + item


MANY = 1 << 21
REQUESTS: dict[str, tuple[str, type[Message], bytes]] = {
    "items": ("Reset", pb.ResetRequest, b"\x0a\x00" * MANY),
    "steps": ("Step", pb.StepRequest, b"\x0a\x00" * MANY),
    "prefix actions": ("Reset", pb.ResetRequest, _reset_of(_item_of(MANY))),
    "ids": ("Close", pb.CloseRequest, b"\x0a\x00" * MANY),
    "fields": ("Step", pb.StepRequest, b"\x78\x00" * MANY),
    "items after a group": ("Reset", pb.ResetRequest, b"\x13\x14" + b"\x0a\x00" * MANY),
    "items with long tags": ("Reset", pb.ResetRequest, b"\x8a\x80\x00\x00" * MANY),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_message_of_millions_of_pieces_is_refused_unread(
    wire: Wire, request_: tuple[str, type[Message], bytes]
) -> None:
    verb, kind, data = request_
    with pytest.raises(InvalidRequestError, match="several calls"):
        pieces.check(kind.DESCRIPTOR, data)
    if verb == "Close":
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.channel.unary_unary(_SERVICE + verb)(data, timeout=60)
    else:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.channel.unary_stream(_SERVICE + verb)(data, timeout=60).read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


LARGE: dict[str, Message] = {
    "a full batch of steps": pb.StepRequest(
        items=[pb.StepItem(episode_id="x" * 22, step_index=9, action="a" * 90)] * 8_192
    ),
    "a full batch of resets": pb.ResetRequest(
        items=[
            pb.ResetItem(
                program_id="x" * 64,
                seed=1,
                options_json=b"{}",
                max_turns=2,
                timeout_s=3,
                prefix_actions=["", "", ""],
            )
        ]
        * 8_192
    ),
    "one long episode": pb.ResetRequest(
        items=[pb.ResetItem(program_id="x", prefix_actions=["go"] * 100_000)]
    ),
    "one long source": pb.RegisterProgramRequest(source="\x0a\x00" * (1 << 19)),
}


@pytest.mark.parametrize("request_", LARGE.values(), ids=LARGE)
def test_what_is_merely_large_is_read(request_: Message) -> None:
    pieces.check(request_.DESCRIPTOR, request_.SerializeToString())


@pytest.mark.parametrize("data", [b"\xff" * MANY, b"\x80" * MANY, b"\x0f" * MANY])
def test_what_is_no_message_is_told_from_one_in_no_time(data: bytes) -> None:
    started = time.process_time()
    pieces.check(pb.ResetRequest.DESCRIPTOR, data)
    assert time.process_time() - started < 1


async def test_more_prefix_actions_than_an_episode_has_steps_are_refused(wire: Wire) -> None:
    program = await wire.register(COUNTER, max_steps=5)
    (result,) = await wire.reset(pb.ResetItem(program_id=program, prefix_actions=["-"] * 6))
    assert result.error.reason == pb.ERROR_REASON_INVALID_REQUEST


def test_options_of_many_values_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidRequestError, match="values"):
        checks.read_options(b'{"a": [' + b"[]," * 80_000 + b"0]}", 1 << 20)
    text = b'{"a": "' + b"[,{" * 80_000 + b'"}'
    assert checks.read_options(text, 1 << 20) == text


@pytest.mark.parametrize("text", [b'"\\' * 200_000, b'\\"' * 200_000, b'"' + b'\\"' * 200_000])
def test_counting_values_takes_no_longer_than_reading_them(text: bytes) -> None:
    started = time.process_time()
    values.are_more(b"," * 60_000 + text, 50_000)
    assert time.process_time() - started < 1


async def test_an_info_of_many_values_is_over_its_limit(wire: Wire) -> None:
    source = stepping("return 'x', 1.0, False, False, {'a': [[]] * 100_000}")
    (episode,) = await wire.start(source, max_info_bytes=4 << 20)
    (result,) = await wire.act((episode, 0, "x"))
    assert result.outcome == pb.OUTCOME_OUTPUT_LIMIT
    assert result.diagnostic.limit == "max_info_bytes"
    assert not result.HasField("reward")
    await wire.close(episode)


def test_many_tools_are_no_tools() -> None:
    with pytest.raises(Exception, match="too many"):
        answers.checked_tools(b"[" + b"[]," * 60_000 + b"0]")


def test_a_solution_is_no_longer_than_an_episode() -> None:
    assert [len(plan) for plan in oracle.plans_of(["a"] * 80_000, 7)] == [7, 7]


async def test_a_poller_with_much_to_do_lets_others_in_and_forgets_nobody() -> None:
    loop = asyncio.get_running_loop()
    poller = Poller(loop)
    pipes = [os.pipe() for _ in range(20)]
    served: list[int] = []
    turns = 0

    def slow(fd: int) -> None:
        os.read(fd, 1)
        served.append(fd)
        time.sleep(0.02)

    for read, _ in pipes:
        poller.add(read, lambda _, fd=read: slow(fd))
    for _, write in pipes:
        os.write(write, b"xx")
    while len(served) < 2 * len(pipes):
        turns += 1
        await asyncio.sleep(0)
    assert turns >= len(pipes)
    assert len(set(served[: len(pipes)])) == len(pipes)
    poller.close()
    for ends in pipes:
        for end in ends:
            os.close(end)


async def test_programs_that_only_episodes_remember_count_with_their_records() -> None:
    async with serving(max_programs=1, max_record_bytes=4 << 20) as small:
        bulky = ["x" * 900_000 + str(number) for number in range(9)]
        refused = 0
        for text in bulky:
            program = await small.register(COUNTER + f"# {text}\n")
            (result,) = await small.reset(pb.ResetItem(program_id=program))
            small.engine.episodes.bound_records()
            refused += result.error.reason == pb.ERROR_REASON_CAPACITY
        assert refused
        assert small.engine.episodes.record_bytes() < 5.5 * (1 << 20)


async def test_a_client_that_does_not_read_fills_no_memory() -> None:
    """Nor do many large results that one call has asked for."""
    tenants = (TenantConfig("only", token_sha256("t")),)
    async with serving(tenants=tenants, max_unread_bytes=8 << 20) as small:
        bearer = [("authorization", "Bearer t")]
        register = pb.RegisterProgramRequest(
            source=stepping("return 'x' * (4 << 20), 0.0, True, False, {}"),
            limits=pb.Limits(max_observation_bytes=4 << 20),
        )
        program = await small.stub.RegisterProgram(register, metadata=bearer)
        items = [pb.ResetItem(program_id=program.program_id)] * 12
        resets = small.stub.Reset(pb.ResetRequest(items=items), metadata=bearer)
        episodes = [r.episode_id async for response in resets for r in response.results]
        request = pb.StepRequest(items=[pb.StepItem(episode_id=e, action="x") for e in episodes])
        step = small.stub.Step(request, metadata=bearer)
        results = [r async for response in step for r in response.results]
        assert len(results) == 12
        reasons = {r.error.reason for r in results if r.HasField("error")}
        assert reasons <= {pb.ERROR_REASON_QUOTA}
        assert sum(len(r.observation) for r in results) > 0
        # What was refused has not been begun: it may come again.
        again = [
            pb.StepItem(episode_id=episodes[r.index], action="x")
            for r in results
            if r.HasField("error")
        ]
        for item in again:
            step = small.stub.Step(pb.StepRequest(items=[item]), metadata=bearer)
            (result,) = [r async for response in step for r in response.results]
            assert result.outcome == pb.OUTCOME_COMPLETED
