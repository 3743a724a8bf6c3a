"""The call in work: its request id, tenant and episode, for logs, errors and metrics.

A context variable holds it, so that nothing on the way has to hand it on. Steps are answered
from the poller's callbacks, outside any call; what they log names the episode instead.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sandbox_server.config import DEFAULT_TENANT
from sandbox_server.telemetry import traces
from sandbox_server.telemetry.metrics import Metrics, TenantMetrics, result_name

_log = logging.getLogger(__name__)

# Metadata of requests, where a client names its own, and of every answer.
REQUEST_ID_METADATA_KEY = "x-request-id"
# Whatever else a client sends as its id is replaced: it goes into logs and metadata.
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/-]{1,64}", re.ASCII)

# What logs and traces show of a program's hash, and of an episode's id: enough to find it by.
# Who knows the whole id of an episode may step it, so it is not for everybody who reads logs.
_SHOWN_PROGRAM_DIGITS = 16
SHOWN_ID_CHARACTERS = 8


@dataclass(slots=True)
class Call:
    """One rpc, or one message of a stream that stays open.

    Attributes:
        verb: The rpc's name.
        request_id: The client's own where it is sane, else made here.
        metrics: Where it is counted.
        peer: Where it comes from, as gRPC says it.
        tenant: Whose call it is; the default one's until it is known.
        started_at: By `time.monotonic`.
        results: What became of its items, by name; None where no trace wants to know.
        child_spans: Spans asked for within it.
    """

    verb: str
    request_id: str
    metrics: Metrics
    peer: str = ""
    tenant: str = DEFAULT_TENANT
    started_at: float = field(default_factory=time.monotonic)
    results: Counter[str] | None = None
    child_spans: int = 0

    @property
    def counts(self) -> TenantMetrics:
        """Where what becomes of this call is counted."""
        return self.metrics.of(self.tenant)

    def another(self) -> Call:
        """A call of its own for a message of a stream: as this one, from now on."""
        return Call(self.verb, self.request_id, self.metrics, self.peer, self.tenant)

    def enter(self) -> None:
        """What the running task does is of this call."""
        # Not reset: the context is the call's own task's, and ends with it.
        _call.set(self)

    @contextlib.contextmanager
    def in_work(self, request: Any, metadata: Any) -> Iterator[None]:
        """Count the call, and put a span around it, while the block runs.

        Args:
            request: What was asked.
            metadata: What came with the call.
        """
        self.enter()
        self.metrics.calls_in_flight += 1
        try:
            with traces.call_span(self, request, metadata):
                yield
        finally:
            self.metrics.calls_in_flight -= 1
            self.counts.calls[self.verb] += 1
            if _log.isEnabledFor(logging.DEBUG):
                took_ms = 1_000 * (time.monotonic() - self.started_at)
                _log.debug("%s took %.1f ms", self.verb, took_ms)

    def observer(self) -> Callable[[list[Any]], None]:
        """What is to be called with the results of this call as they leave, to count them."""
        count, results = self.counts.observer(self.verb, self.started_at), self.results
        if results is None:
            return count

        def count_for_trace(found: list[Any]) -> None:
            count(found)
            results.update(map(result_name, found))

        return count_for_trace


class Subject(NamedTuple):
    """What an item of a call, or a line of the log, is about.

    Attributes:
        episode_id: The start of an episode's id; empty where there is none.
        program: The start of a program's hash; empty where there is none.
    """

    episode_id: str = ""
    program: str = ""

    @classmethod
    def of(cls, episode_id: str = "", program_id: str = "") -> Subject:
        return cls(episode_id[:SHOWN_ID_CHARACTERS], program_id[:_SHOWN_PROGRAM_DIGITS])


_NOTHING = Subject()

_call: ContextVar[Call | None] = ContextVar("call", default=None)
_subject: ContextVar[Subject] = ContextVar("subject", default=_NOTHING)
_in_detail: ContextVar[bool] = ContextVar("in_detail", default=True)


def current() -> Call | None:
    """The call in work; None outside one."""
    return _call.get()


def subject() -> Subject:
    """What the work at hand is about."""
    return _subject.get()


def about(item: Any, index: int = 0) -> None:
    """Say that the running task works on one item or request, for what it logs and traces.

    Not taken back: the task must be one of a call's own, and end with it.
    """
    _in_detail.set(index < traces.MAX_DETAILED_ITEMS)
    found = getattr(item, "episode_id", ""), getattr(item, "program_id", "")
    _subject.set(Subject.of(*found))


def request_id() -> str:
    """The id of the call in work; a new one outside a call."""
    call = _call.get()
    return call.request_id if call is not None else secrets.token_hex(8)


def request_id_from(metadata: Any) -> str:
    """The id that a client sent, if it is fit to be logged; else a new one."""
    for key, value in metadata or ():
        if key == REQUEST_ID_METADATA_KEY and isinstance(value, str):
            if _SANE_REQUEST_ID.fullmatch(value):
                return value
            break
    return secrets.token_hex(8)


def span(name: str) -> contextlib.AbstractContextManager[Any]:
    """A trace's span around a part of the call in work; nothing where there are no traces."""
    return traces.span(_call.get() if _in_detail.get() else None, name, _subject.get())
