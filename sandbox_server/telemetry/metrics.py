"""What a server counts, by tenant: plain numbers, cheap enough for every step.

`exposition.py` turns them into Prometheus metrics when somebody asks. The library's own
counters take a lock and a label look-up each time, which a step cannot afford.
"""

from __future__ import annotations

import operator
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any

from sandbox_api.v1 import sandbox_pb2 as pb

# Upper bounds of the latency buckets, seconds: from a warm step to the longest time limits.
LATENCY_BOUNDS_S = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    120.0,
    600.0,
)


def outcome_name(outcome: int) -> str:
    """An `Outcome` without its prefix."""
    return pb.Outcome.Name(pb.Outcome.ValueType(outcome)).removeprefix("OUTCOME_")


def reason_name(reason: int) -> str:
    """An `ErrorReason` without its prefix."""
    return pb.ErrorReason.Name(pb.ErrorReason.ValueType(reason)).removeprefix("ERROR_REASON_")


def result_name(result: Any) -> str:
    """What became of an item, in one word."""
    if isinstance(result, pb.ForkResponse):
        return "COMPLETED"
    if not isinstance(result, pb.RegisterProgramResponse) and result.HasField("error"):
        return reason_name(result.error.reason)
    if isinstance(result, pb.Verdict):
        return "REPRODUCED" if result.reproduced else "DIVERGED"
    return outcome_name(result.outcome)


class Histogram:
    """Counts of durations by bucket.

    Attributes:
        counts: How many fell into each bucket, the last one being beyond all bounds.
        sum_s: All of them together, seconds.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += times
        self.sum_s += seconds * times


class TenantMetrics:
    """What became of one tenant's calls.

    Attributes:
        calls: Calls ended, by verb.
        outcomes: Items whose program's code ran, by verb and `Outcome` number.
        verdicts: Verdicts given, by whether the replay was the same.
        refusals: Calls and items refused or failed by the service, by verb and
            `ErrorReason` number.
        latencies: Time from a call's start to each item's result, by verb.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, int]] = Counter()
        self.verdicts: Counter[bool] = Counter()
        self.refusals: Counter[tuple[str, int]] = Counter()
        self.latencies: dict[str, Histogram] = {}

    def refused(self, verb: str, reason: int) -> None:
        self.refusals[verb, reason] += 1

    def latency(self, verb: str) -> Histogram:
        return self.latencies.setdefault(verb, Histogram())

    def observer(self, verb: str, started_at: float) -> Callable[[list[Any]], None]:
        """What counts the results of one call.

        Args:
            verb: The rpc's name.
            started_at: When the call began, by `time.monotonic`.

        Returns:
            A function to call with the results as they leave, many at a time: counting each
            as it comes would cost a step several times as much.
        """
        latency = self.latency(verb)
        word = {"Verify": _verdict_word, "Fork": _copies_word}.get(verb, _outcome_of)

        def count(results: list[Any]) -> None:
            found = Counter(map(word, results))
            refused = found.pop(_REFUSED, 0)
            if refused:
                for result in results:
                    if word(result) == _REFUSED:
                        self.refusals[verb, result.error.reason] += 1
            for what, many in found.items():
                if verb == "Verify":
                    self.verdicts[what == _REPRODUCED] += many
                elif verb != "Fork":
                    self.outcomes[verb, what] += many
            if refused < len(results):
                latency.observe(time.monotonic() - started_at, len(results) - refused)

        return count


# An unset outcome is a service error: the contract has it so.
_REFUSED, _REPRODUCED, _DIVERGED, _COPIES = 0, 1, 2, 3
_outcome_of: Callable[[Any], int] = operator.attrgetter("outcome")


def _verdict_word(verdict: pb.Verdict) -> int:
    if verdict.HasField("error"):
        return _REFUSED
    return _REPRODUCED if verdict.reproduced else _DIVERGED


def _copies_word(_: pb.ForkResponse) -> int:
    return _COPIES


class Metrics:
    """All counts of one server.

    Attributes:
        calls_in_flight: Calls of clients in work now.
        tenants: Counts by tenant's name. Tenants are the operator's, so there are few.
    """

    def __init__(self) -> None:
        self.calls_in_flight = 0
        self.tenants: dict[str, TenantMetrics] = {}

    def of(self, tenant: str) -> TenantMetrics:
        found = self.tenants.get(tenant)
        if found is None:
            found = self.tenants[tenant] = TenantMetrics()
        return found
