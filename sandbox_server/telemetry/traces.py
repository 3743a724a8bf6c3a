"""OpenTelemetry traces, when an endpoint is set: a span per call, children where cheap.

Without an endpoint nothing of OpenTelemetry is imported, and a span costs one comparison.
The SDK's own variables (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, ...) hold beside ours.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import sandbox_server

if TYPE_CHECKING:
    from sandbox_server.telemetry.calls import Call, Subject

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# Of a call of thousands of items, those of the first few show where the time goes; and of a
# replay of thousands of steps, the first.
MAX_DETAILED_ITEMS = 8
_MAX_CHILD_SPANS = 64
# How long one export may take, tries again included; at its end, a server waits for the last.
_EXPORT_TIMEOUT_S = 2.0
_NO_SPAN: AbstractContextManager[None] = contextlib.nullcontext()


class TracingError(Exception):
    """Traces are asked for and cannot be sent; the message says what to do."""


def endpoint_from_environment() -> str:
    """Where the OpenTelemetry variables say that traces go; empty for nowhere."""
    return next((v for name in _ENDPOINT_VARIABLES if (v := os.environ.get(name))), "")


class _Tracing:
    """Spans of this process, sent to one endpoint by a thread of the SDK's."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry import context, trace
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise TracingError(
                f"traces are to go to {endpoint}, and {error.name} is not installed: "
                "pip install 'spadework[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
            ) from None
        names = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "spadework"}
        names["service.version"] = sandbox_server.__version__
        self._provider = TracerProvider(resource=Resource.create(names))
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("spadework", sandbox_server.__version__)
        self._propagator = TraceContextTextMapPropagator()
        self._context = context
        self._trace = trace

    @contextlib.contextmanager
    def call_span(self, call: Call, request: Any, metadata: Any) -> Iterator[None]:
        carrier = {key: value for key, value in metadata or () if isinstance(value, str)}
        span = self._tracer.start_span(
            f"SandboxService/{call.verb}",
            context=self._propagator.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "spadework.request_id": call.request_id},
        )
        if hasattr(request, "items"):
            span.set_attribute("spadework.items", len(request.items))
        # Not detached: the context is the call's own task's, and a call that breaks off may be
        # finished from another one.
        self._context.attach(self._trace.set_span_in_context(span))
        call.results = collections.Counter()
        try:
            yield
        except BaseException as error:
            span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.set_attribute("spadework.tenant", call.tenant)
            for name, count in call.results.items():
                span.set_attribute(f"spadework.results.{name}", count)
            span.end()

    @contextlib.contextmanager
    def span(self, call: Call, name: str, subject: Subject) -> Iterator[None]:
        call.child_spans += 1
        if call.child_spans > _MAX_CHILD_SPANS:
            yield
            return
        ids = {f"spadework.{key}": value for key, value in subject._asdict().items() if value}
        with self._tracer.start_as_current_span(name, attributes=ids):
            yield

    def stop(self) -> None:
        self._provider.shutdown()


_tracing: _Tracing | None = None


def start(endpoint: str) -> None:
    """Send traces to an OTLP endpoint over gRPC, as "http://host:4317", from now on.

    Raises:
        TracingError: If the packages for it are not installed.
    """
    global _tracing
    _tracing = _Tracing(endpoint)


async def stop() -> None:
    """Send what is there, for a few seconds at most, and no more after it."""
    global _tracing
    tracing, _tracing = _tracing, None
    if tracing is not None:
        await asyncio.to_thread(tracing.stop)


def call_span(call: Call, request: Any, metadata: Any) -> AbstractContextManager[Any]:
    """A span around one call, a child of the client's own where its metadata names one."""
    return _NO_SPAN if _tracing is None else _tracing.call_span(call, request, metadata)


def span(call: Call | None, name: str, subject: Subject) -> AbstractContextManager[Any]:
    """A span around a part of a call; none outside of one."""
    if _tracing is None or call is None:
        return _NO_SPAN
    return _tracing.span(call, name, subject)
