"""The server's numbers as Prometheus metrics; docs/metrics.md says what each means.

Everything is read from the engine at the moment of a scrape: between scrapes the metrics
cost what `metrics.py` counts, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import sandbox_server
from sandbox_server.engine import Engine
from sandbox_server.telemetry.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    outcome_name,
    reason_name,
)

_PREFIX = "spadework_"


class EngineCollector(Collector):
    """Metrics of one engine.

    Args:
        engine: What to read.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        yield from self._calls()
        yield from self._episodes()
        yield from self._queues()
        yield from self._state()

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
        for tenant, counts in self._engine.metrics.tenants.items():
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
        yield _gauge("calls_in_flight", "Calls in work.", self._engine.metrics.calls_in_flight)

    def _episodes(self) -> Iterator[Metric]:
        engine = self._engine
        live = GaugeMetricFamily(
            f"{_PREFIX}episodes_live", "Episodes that can take a step.", labels=["tenant"]
        )
        for tenant, count in engine.episodes.live_by_tenant().items():
            live.add_metric([tenant], count)
        ended = _counter("episodes_ended", "Episodes ended, by cause.", "cause", "tenant")
        for (cause, tenant), count in engine.episodes.ended_by_tenant().items():
            ended.add_metric([cause, tenant], count)
        yield from (live, ended)
        yield _gauge(
            "episode_records", "Episodes remembered, ended ones included.", len(engine.episodes)
        )
        yield _gauge(
            "episode_record_bytes",
            "What the records of episodes take, bytes.",
            engine.episodes.record_bytes(),
        )
        yield _gauge(
            "episode_record_bytes_limit",
            "The bound on them, bytes.",
            engine.config.max_record_bytes,
        )
        yield CounterMetricFamily(
            f"{_PREFIX}steps",
            "Steps answered, those replayed as a reset's prefix included.",
            value=engine.steps_total,
        )

    def _queues(self) -> Iterator[Metric]:
        engine = self._engine
        yield _gauge("pending_items", "Steps in work.", engine.pending_items)
        yield _gauge("pending_items_limit", "The bound on them.", engine.config.max_pending_items)
        yield _gauge(
            "spawns_queued", "Episode processes asked for and not there.", engine.jails.queued
        )
        yield _gauge("processes_live", "Episode processes, replays included.", engine.jails.live)
        yield _gauge("processes_limit", "The bound on them.", engine.config.max_episodes)

    def _state(self) -> Iterator[Metric]:
        engine = self._engine
        jails = GaugeMetricFamily(f"{_PREFIX}jails", "Jails that run.", labels=["runtime"])
        for runtime, count in engine.jails.by_runtime().items():
            jails.add_metric([runtime], count)
        restarts = _counter("jail_restarts", "Jails started again after they died.", "runtime")
        for runtime, count in engine.jails.restarts_total.items():
            restarts.add_metric([runtime], count)
        yield from (jails, restarts)
        yield _gauge("programs", "Programs remembered.", engine.programs)
        yield _gauge("draining", "1 while the server takes nothing new.", int(engine.draining))
        info = GaugeMetricFamily(
            f"{_PREFIX}server_info",
            "Always 1; its labels say what runs.",
            labels=["version", "backend"],
        )
        info.add_metric([sandbox_server.__version__, engine.config.backend], 1)
        yield info


def registry(engine: Engine) -> CollectorRegistry:
    """All metrics of a server and its process."""
    found = CollectorRegistry()
    found.register(EngineCollector(engine))
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
