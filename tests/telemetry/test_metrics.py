"""What /metrics says is documented, is true, and costs a step next to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import UnauthenticatedError
from sandbox_api.types import Limits, ResetItem, StepItem
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import runtime
from sandbox_server.audit import AuditLog
from sandbox_server.authentication import Authenticator
from sandbox_server.config import AddressError, ServerConfig, TenantConfig
from sandbox_server.engine import Engine
from sandbox_server.reception import Reception
from sandbox_server.server import Server
from sandbox_server.service import SandboxService
from sandbox_server.telemetry import calls
from sandbox_server.telemetry.http import MetricsServer
from sandbox_server.telemetry.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metrics,
    TenantMetrics,
)
from tests.server.conftest import COUNTER

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


@dataclass
class Served:
    """A server in this process, with metrics."""

    engine: Engine
    client: AsyncSandboxClient
    address: str

    async def ask(self, request: str) -> tuple[str, str]:
        """Send one HTTP request; returns the status line and the body."""
        reader, writer = await asyncio.open_connection(*self.address.split(":"))
        try:
            writer.write(request.encode() + b"\r\n\r\n")
            answer = (await asyncio.wait_for(reader.read(), 30)).decode()
        finally:
            writer.close()
            await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return head.partition("\r\n")[0], body

    async def samples(self) -> dict[str, float]:
        """All samples, as "name{a=b,...}" with the labels sorted."""
        _, body = await self.ask("GET /metrics HTTP/1.1")
        found = {}
        for family in text_string_to_metric_families(body):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    config = ServerConfig(
        address="127.0.0.1:0",
        backend="process",
        metrics_address="127.0.0.1:0",
        audit_log=str(tmp_path / "audit.jsonl"),
    )
    server = Server(config, {"stdlib": runtime.ensure("stdlib")})
    address = await server.start()
    try:
        async with AsyncSandboxClient(address, max_retries=0) as client:
            yield Served(server.engines["default"], client, server.metrics_address)
    finally:
        await server.stop(at_once=True)


def _documented() -> dict[str, tuple[str, set[str]]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", _DOCUMENT.read_text(), re.MULTILINE)
    return {
        name: (kind, {label.strip() for label in labels.split(",") if label.strip()})
        for name, kind, labels in rows
    }


async def _use_everything(served: Served) -> None:
    client = served.client
    program = await client.register_program(COUNTER, limits=Limits(max_processes=4))
    items = [ResetItem(program.program_id, seed=i) for i in range(4)]
    ids = [e.episode_id for e in await client.reset(items)]
    await client.step([StepItem(i, 0, "+") for i in ids])
    await client.step([StepItem("nobody", 0, "+")])
    await client.verify(ids[:2])
    await client.fork(ids[0], 1)
    await client.close_episodes(ids[:1])
    served.engine.jails.restarts_total["stdlib"] += 1


async def test_what_is_exported_is_what_is_documented(served: Served) -> None:
    await _use_everything(served)
    _, body = await served.ask("GET /metrics HTTP/1.1")
    exported = {}
    for family in text_string_to_metric_families(body):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        exported[name] = (family.type, labels)
    assert exported == _documented()


async def test_calls_outcomes_refusals_and_ends_are_counted(served: Served) -> None:
    await _use_everything(served)
    found = await served.samples()
    wanted = {
        "spadework_calls_total{tenant=default,verb=Step}": 2,
        "spadework_items_total{outcome=COMPLETED,tenant=default,verb=Reset}": 4,
        "spadework_items_total{outcome=COMPLETED,tenant=default,verb=Step}": 4,
        "spadework_items_total{outcome=COMPLETED,tenant=default,verb=RegisterProgram}": 1,
        "spadework_refusals_total{reason=EPISODE_NOT_FOUND,tenant=default,verb=Step}": 1,
        "spadework_verdicts_total{tenant=default,verdict=reproduced}": 2,
        "spadework_episodes_ended_total{cause=closed,tenant=default}": 1,
        "spadework_episodes_live{tenant=default}": 4,
        "spadework_item_latency_seconds_count{tenant=default,verb=Step}": 4,
        "spadework_item_latency_seconds_bucket{le=+Inf,tenant=default,verb=Fork}": 1,
        "spadework_audit_events_total{event=reset,tenant=default}": 4,
        "spadework_audit_events_lost_total": 0,
        "spadework_programs{tenant=default}": 1,
        "spadework_jails{runtime=stdlib,tenant=default}": 2,
        "spadework_calls_in_flight": 0,
        "spadework_pending_items{tenant=default}": 0,
    }
    assert {name: found.get(name) for name in wanted} == wanted


async def test_a_failing_program_and_a_refused_call_are_counted_by_their_reasons(
    served: Served,
) -> None:
    await served.client.register_program("class XEnv:\n    def reset(")
    async with grpc.aio.insecure_channel(served.client.address) as channel:
        reset = channel.unary_stream(
            "/sandbox_api.v1.SandboxService/Reset",
            request_serializer=pb.ResetRequest.SerializeToString,
            response_deserializer=pb.ResetResponse.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in reset(pb.ResetRequest()):
                pass
    found = await served.samples()
    failed = "spadework_items_total{outcome=PROGRAM_ERROR,tenant=default,verb=RegisterProgram}"
    refused = "spadework_refusals_total{reason=INVALID_REQUEST,tenant=default,verb=Reset}"
    assert (found[failed], found[refused]) == (1, 1)


async def test_a_request_that_is_no_message_is_counted_and_has_a_request_id(
    served: Served,
) -> None:
    async with grpc.aio.insecure_channel(served.client.address) as channel:
        step = channel.unary_stream("/sandbox_api.v1.SandboxService/Step")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in step(b"\xff", metadata=[("x-request-id", "mine")]):
                pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert ("x-request-id", "mine") in tuple(refused.value.trailing_metadata() or ())
    found = await served.samples()
    assert found["spadework_refusals_total{reason=INVALID_REQUEST,tenant=default,verb=Step}"] == 1


def test_a_call_of_a_stranger_is_nobodys() -> None:
    """Also where its certificate alone could have said whose it is."""

    class Stranger:
        def auth_context(self) -> dict[str, list[bytes]]:
            return {"x509_common_name": [b"stranger.example"]}

        def invocation_metadata(self) -> tuple[()]:
            return ()

    authenticator = Authenticator([TenantConfig("alice", certificate="alice.example")])
    service = SandboxService({}, AuditLog())
    reception = Reception(service, authenticator, Metrics(), AuditLog(), ServerConfig())
    call = calls.Call("Step", "id", Metrics())
    with pytest.raises(UnauthenticatedError):
        reception._caller(call, Stranger(), pb.StepRequest())  # type: ignore[arg-type]
    assert call.tenant == ""


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", "200 OK"),
        ("HEAD /metrics HTTP/1.1", "200 OK"),
        ("GET /metrics?name=x HTTP/1.0", "200 OK"),
        ("GET / HTTP/1.1", "404 Not Found"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("nonsense", "405 Method Not Allowed"),
    ],
)
async def test_only_reading_metrics_is_served(
    served: Served, request_line: str, status: str
) -> None:
    line, body = await served.ask(request_line)
    assert line == f"HTTP/1.1 {status}"
    assert ("spadework_steps_total" in body) == (
        status == "200 OK" and not request_line.startswith("HEAD")
    )


async def test_a_flood_of_header_bytes_and_a_reader_that_leaves_end_no_scrape(
    served: Served,
) -> None:
    reader, writer = await asyncio.open_connection(*served.address.split(":"))
    writer.write(b"GET /metrics HTTP/1.1\r\n" + b"x" * 100_000)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    _, writer = await asyncio.open_connection(*served.address.split(":"))
    writer.close()
    line, _ = await served.ask("GET /metrics HTTP/1.1")
    assert line == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("address", ["9464", "localhost:", "localhost:http", "127.0.0.1:99999"])
async def test_a_wrong_metrics_address_says_so(served: Served, address: str) -> None:
    with pytest.raises(AddressError, match="metrics"):
        await MetricsServer(CollectorRegistry()).start(address)


def test_a_duration_falls_into_the_bucket_that_prometheus_means() -> None:
    """A bucket's bound belongs to it: `le` is "less or equal"."""
    histogram = Histogram()
    for seconds in (0.0, LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[1], 1e9):
        histogram.observe(seconds)
    assert histogram.counts[0] == 2
    assert histogram.counts[1] == 1
    assert histogram.counts[-1] == 1
    assert histogram.sum_s == pytest.approx(1e9, rel=1e-6)


def test_counting_a_step_takes_microseconds() -> None:
    """0.26 us when this was written; 20 is room for a busy machine, not for a lock or a log."""
    count = TenantMetrics().observer("Step", time.monotonic())
    result = pb.StepResult(outcome=pb.OUTCOME_COMPLETED, observation="x" * 64, reward=0.0)
    best = min(_seconds_of(count, [result] * 256) for _ in range(5))
    assert best / (40 * 256) < 20e-6


def _seconds_of(count, results) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    for _ in range(40):
        count(results)
    return time.perf_counter() - started
