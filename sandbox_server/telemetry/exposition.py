"""The server's numbers as Prometheus metrics; docs/metrics.md says what each means.

Everything is read from the engine at the moment of a scrape: between scrapes the metrics
cost what `metrics.py` counts, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import sandbox_server
from sandbox_server.audit import AuditLog
from sandbox_server.engine import Engine
from sandbox_server.telemetry.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metrics,
    outcome_name,
    reason_name,
)

_PREFIX = "spadework_"


class ServerCollector(Collector):
    """Metrics of one server.

    Args:
        engines: What to read, by tenant.
        metrics: What was counted of their calls.
        audit: The log of what they did.
        streams: Tells how many streams a tenant has open.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        metrics: Metrics,
        audit: AuditLog,
        streams: Callable[[str], int],
    ) -> None:
        self._engines = engines
        self._metrics = metrics
        self._audit = audit
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        yield from self._calls()
        yield from self._episodes()
        yield from self._queues()
        yield from self._state()

    def _each(self, name: str, text: str, value: Callable[[Engine], float]) -> Metric:
        """A gauge of every tenant."""
        gauge = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["tenant"])
        for tenant, engine in self._engines.items():
            gauge.add_metric([tenant], value(engine))
        return gauge

    def _calls(self) -> Iterator[Metric]:
        """What became of calls and items."""
        calls = _counter("calls", "Calls of clients that ended.", "verb", "tenant")
        outcomes = _counter(
            "items", "Items whose program's code ran, by its outcome.", "verb", "outcome", "tenant"
        )
        verdicts = _counter("verdicts", "Replays compared.", "verdict", "tenant")
        refusals = _counter(
            "refusals",
            "Calls and items that the service refused or failed.",
            "verb",
            "reason",
            "tenant",
        )
        latency = HistogramMetricFamily(
            f"{_PREFIX}item_latency_seconds",
            "Time from a call's start to the result of each of its items.",
            labels=["verb", "tenant"],
        )
        for tenant, counts in self._metrics.tenants.items():
            for verb, count in counts.calls.items():
                calls.add_metric([verb, tenant], count)
            for (verb, outcome), count in counts.outcomes.items():
                outcomes.add_metric([verb, outcome_name(outcome), tenant], count)
            for reproduced, count in counts.verdicts.items():
                verdicts.add_metric(["reproduced" if reproduced else "diverged", tenant], count)
            for (verb, reason), count in counts.refusals.items():
                refusals.add_metric([verb, reason_name(reason), tenant], count)
            for verb, histogram in counts.latencies.items():
                latency.add_metric([verb, tenant], _buckets(histogram), histogram.sum_s)
        yield from (calls, outcomes, verdicts, refusals, latency)
        yield _gauge("calls_in_flight", "Calls in work.", self._metrics.calls_in_flight)

    def _episodes(self) -> Iterator[Metric]:
        yield self._each(
            "episodes_live", "Episodes that can take a step.", lambda e: e.episodes.live()
        )
        ended = _counter("episodes_ended", "Episodes ended, by cause.", "cause", "tenant")
        steps = _counter(
            "steps", "Steps answered, those replayed as a reset's prefix included.", "tenant"
        )
        for tenant, engine in self._engines.items():
            steps.add_metric([tenant], engine.steps_total)
            for cause, count in engine.episodes.ended_total.items():
                ended.add_metric([cause, tenant], count)
        yield from (ended, steps)
        yield self._each(
            "episode_records",
            "Episodes remembered, ended ones included.",
            lambda e: len(e.episodes),
        )
        yield self._each(
            "episode_record_bytes",
            "What the records of episodes take, bytes.",
            lambda e: e.episodes.record_bytes(),
        )
        yield self._each(
            "episode_record_bytes_limit",
            "The bound on them, bytes.",
            lambda e: e.config.max_record_bytes,
        )

    def _queues(self) -> Iterator[Metric]:
        yield self._each("pending_items", "Items in work.", lambda e: e.pending_items)
        yield self._each(
            "pending_items_limit", "The bound on them.", lambda e: e.config.max_pending_items
        )
        yield self._each(
            "unread_bytes",
            "Results that are ready and that clients have not read, bytes.",
            lambda e: e.unread.total_bytes,
        )
        yield self._each(
            "unread_bytes_limit", "The bound on them, bytes.", lambda e: e.config.max_unread_bytes
        )
        streams = GaugeMetricFamily(
            f"{_PREFIX}streams_open", "Streams of steps that are open.", labels=["tenant"]
        )
        for tenant in self._engines:
            streams.add_metric([tenant], self._streams(tenant))
        yield streams
        yield self._each("streams_limit", "The bound on them.", lambda e: e.config.max_streams)
        yield self._each(
            "steps_waiting",
            "Steps that wait for others of the same tenant.",
            lambda e: e.waiting_steps,
        )
        yield self._each(
            "spawns_queued",
            "Episode processes asked for and not there.",
            lambda e: e.jails.queued,
        )
        yield self._each(
            "processes_live", "Episode processes and members of groups.", lambda e: e.jails.live
        )
        yield self._each("group_processes", "Group processes.", lambda e: len(e.groups))
        rebuilds = _counter(
            "group_rebuilds", "Group processes replaced, and their episodes rebuilt.", "tenant"
        )
        for tenant, engine in self._engines.items():
            rebuilds.add_metric([tenant], engine.groups.rebuilds_total)
        yield rebuilds
        yield self._each("processes_limit", "The bound on them.", lambda e: e.config.max_episodes)

    def _state(self) -> Iterator[Metric]:
        jails = GaugeMetricFamily(
            f"{_PREFIX}jails", "Jails that run.", labels=["runtime", "tenant"]
        )
        restarts = _counter(
            "jail_restarts", "Jails started again after they died.", "runtime", "tenant"
        )
        for tenant, engine in self._engines.items():
            for runtime, count in engine.jails.by_runtime().items():
                jails.add_metric([runtime, tenant], count)
            for runtime, count in engine.jails.restarts_total.items():
                restarts.add_metric([runtime, tenant], count)
        yield from (jails, restarts)
        yield self._each("programs", "Programs remembered.", lambda e: e.programs)
        yield self._each(
            "draining", "1 while the server takes nothing new.", lambda e: int(e.draining)
        )
        events = _counter("audit_events", "Events of the audit log.", "event", "tenant")
        for (event, tenant), count in self._audit.events_total.items():
            events.add_metric([event, tenant], count)
        yield events
        yield CounterMetricFamily(
            f"{_PREFIX}audit_events_lost",
            "Events that it could not write.",
            value=self._audit.lost_total,
        )
        info = GaugeMetricFamily(
            f"{_PREFIX}server_info",
            "Always 1; its labels say what runs.",
            labels=["version", "backend"],
        )
        backend = next(iter(self._engines.values())).config.backend
        info.add_metric([sandbox_server.__version__, backend], 1)
        yield info


def registry(
    engines: Mapping[str, Engine],
    metrics: Metrics,
    audit: AuditLog,
    streams: Callable[[str], int],
) -> CollectorRegistry:
    """All metrics of a server and its process; see `ServerCollector`."""
    found = CollectorRegistry()
    found.register(ServerCollector(engines, metrics, audit, streams))
    ProcessCollector(registry=found)
    return found


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"{_PREFIX}{name}", text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Counts up to each bound, as Prometheus wants them."""
    found, sum_of = [], 0
    for bound, count in zip([*map(str, LATENCY_BOUNDS_S), "+Inf"], histogram.counts, strict=True):
        sum_of += count
        found.append((bound, float(sum_of)))
    return found
