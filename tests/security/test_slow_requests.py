"""Messages that are announced and never come, and long ones of strangers: not waited for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as refl
from grpc_reflection.v1alpha import reflection_pb2_grpc
from sandbox_api.v1 import sandbox_pb2 as pb

from tests.server.small import serving


async def _never() -> AsyncIterator[bytes]:
    await asyncio.sleep(3_600)
    yield b""


async def test_a_request_that_does_not_come_ends_its_call() -> None:
    async with serving(request_timeout_s=0.5) as small:
        for method in (
            "/sandbox_api.v1.SandboxService/GetServerInfo",
            "/sandbox_api.v1.SandboxService/Step",
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/Watch",
        ):
            # To the server one message and the first of a stream are the same.
            call = small.channel.stream_stream(method)(_never(), timeout=30)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "did not come" in (refused.value.details() or "")
        assert (await small.info()).version


async def test_what_a_stranger_asks_health_about_is_not_kept() -> None:
    async with serving() as small:
        before = _resident_bytes()
        stub = health_pb2_grpc.HealthStub(small.channel)
        watches = []
        for number in range(6):
            name = str(number) + "x" * (40 << 20)
            watches.append(stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await watches[-1].read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
        del name
        assert not small.server._health._server_watchers
        assert _resident_bytes() < before + (400 << 20)


async def test_health_and_reflection_answer_as_ever() -> None:
    async with serving() as small:
        health = health_pb2_grpc.HealthStub(small.channel)
        asked = health_pb2.HealthCheckRequest()
        serving_now = health_pb2.HealthCheckResponse.SERVING
        assert (await health.Check(asked, timeout=10)).status == serving_now
        watch = health.Watch(asked, timeout=10)
        assert (await watch.read()).status == serving_now
        watch.cancel()
        listed = refl.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(small.channel)
        call = stub.ServerReflectionInfo(iter([listed]), timeout=10)
        names = {s.name for s in (await call.read()).list_services_response.service}
        assert "sandbox_api.v1.SandboxService" in names
        long = refl.ServerReflectionRequest(file_by_filename="x" * 5_000)
        call = stub.ServerReflectionInfo(iter([long]), timeout=10)
        assert not (await call.read()).error_response.error_message.count("x" * 5_000)
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await health.Check(health_pb2.HealthCheckRequest(service="no such"), timeout=10)
        assert missing.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_cancelled_call_is_one_before_its_request_has_come() -> None:
    async with serving() as small:
        started = time.monotonic()
        for _ in range(50):
            call = small.channel.stream_stream("/sandbox_api.v1.SandboxService/Step")(_never())
            await asyncio.sleep(0.002)
            call.cancel()
        await small.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=20)
        assert time.monotonic() - started < 20


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
