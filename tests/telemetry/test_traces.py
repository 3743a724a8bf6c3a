"""Traces reach a real OTLP receiver from a real server, and only when asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from sandbox_api import ResetItem, SandboxClient, StepItem
from sandbox_api.v1 import sandbox_pb2 as pb

from tests.server.conftest import COUNTER
from tests.server.processes import serving

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Receiver(otlp_grpc.TraceServiceServicer):
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list = []
        self.resources: list[dict[str, str]] = []
        self._lock = threading.Lock()

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        with self._lock:
            for resource in request.resource_spans:
                self.resources.append(_attributes(resource.resource))
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        return otlp.ExportTraceServiceResponse()


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    found = Receiver()
    otlp_grpc.add_TraceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield found, f"http://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _attributes(holder) -> dict[str, str]:  # type: ignore[no-untyped-def]
    return {a.key: a.value.string_value or str(a.value.int_value) for a in holder.attributes}


def _play(address: str) -> None:
    with SandboxClient(address) as client:
        program = client.register_program(COUNTER)
        items = [ResetItem(program.program_id, seed=i) for i in range(40)]
        ids = [e.episode_id for e in client.reset(items)]
        client.step([StepItem(i, 0, "+") for i in ids] + [StepItem("nobody", 0, "+")])
        client.close_episodes(ids)


@pytest.mark.parametrize("by", ["option", "variable"])
def test_spans_of_every_call_arrive_with_counts_and_bounded_children(
    receiver: tuple[Receiver, str], by: str
) -> None:
    found, endpoint = receiver
    options = ("--otlp-endpoint", endpoint) if by == "option" else ()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} if by == "variable" else {}
    with serving(*options, variables=variables) as server:
        _play(server.address)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
    by_name = {span.name: span for span in found.spans}
    assert {f"SandboxService/{v}" for v in ("RegisterProgram", "Reset", "Step", "Close")} <= set(
        by_name
    )
    step = _attributes(by_name["SandboxService/Step"])
    assert step["spadework.items"] == "41"
    assert step["spadework.results.COMPLETED"] == "40"
    assert step["spadework.results.EPISODE_NOT_FOUND"] == "1"
    assert step["spadework.tenant"] == "default"
    reset = by_name["SandboxService/Reset"]
    children = [span for span in found.spans if span.parent_span_id == reset.span_id]
    assert sorted(span.name for span in children) == ["load"] * 8 + ["reset"] * 8 + ["spawn"] * 8
    assert all(span.trace_id == reset.trace_id for span in children)
    assert found.resources[0]["service.name"] == "spadework"


def test_a_client_s_trace_goes_on_in_the_server(receiver: tuple[Receiver, str]) -> None:
    found, endpoint = receiver
    with serving("--otlp-endpoint", endpoint) as server:
        with grpc.insecure_channel(server.address) as channel:
            info = channel.unary_unary(
                "/sandbox_api.v1.SandboxService/GetServerInfo",
                request_serializer=pb.GetServerInfoRequest.SerializeToString,
                response_deserializer=pb.GetServerInfoResponse.FromString,
            )
            info(
                pb.GetServerInfoRequest(),
                metadata=[
                    ("traceparent", f"00-{_TRACE}-{_PARENT}-01"),
                    ("x-request-id", "mine"),
                ],
            )
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
    (span,) = found.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (_TRACE, _PARENT)
    assert _attributes(span)["spadework.request_id"] == "mine"


def test_a_collector_that_is_gone_neither_fails_calls_nor_holds_up_the_end() -> None:
    with serving("--otlp-endpoint", "http://127.0.0.1:9") as server:
        _play(server.address)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0
        assert time.monotonic() - started < 25


_WITHOUT = """
import sys
sys.modules["opentelemetry.sdk"] = None
from sandbox_server.__main__ import main
sys.argv[1:] = ["--address", "127.0.0.1:0", "--backend", "process", "--max-episodes", "100"]
sys.exit(main())
"""


def test_an_endpoint_without_the_packages_is_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"},
    )
    assert done.returncode == 1
    assert "pip install 'spadework[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, sandbox_server.__main__; "
            "sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))",
        ],
        check=False,
    )
    assert done.returncode == 0
