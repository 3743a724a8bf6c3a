"""Logs with a call's ids on every line, as JSON or as text that nobody can forge.

Programs decide part of what is logged: exception messages, names, reasons. In a line of text
no control character of theirs survives, so that none can look like another line or drive a
terminal; JSON escapes them by itself.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from datetime import UTC, datetime

from pythonjsonlogger.json import JsonFormatter

from sandbox_server.telemetry import calls

_FIELDS = ("shard", "request_id", "tenant", "episode_id", "program")

# Control characters of ASCII and Latin-1, line and paragraph separators, and the marks that
# turn the direction of what follows.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def configure(form: str, level: str, shard: str = "") -> None:
    """Log to standard error.

    Args:
        form: "text" or "json".
        level: The lowest that is logged.
        shard: Name of this server among several that log to the same place; empty where it
            is alone.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(functools.partial(_add_ids, shard))
    handler.setFormatter(_json() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Its lines are about its own insides, one or more a call.
    logging.getLogger("grpc").setLevel(max(logging.INFO, root.level))


def _add_ids(shard: str, record: logging.LogRecord) -> bool:
    """Give a record the ids of the call it was made in, unless it names its own."""
    call, subject = calls.current(), calls.subject()
    found = {
        "shard": shard,
        "request_id": call.request_id if call else "",
        "tenant": call.tenant if call else "",
        "episode_id": subject.episode_id,
        "program": subject.program,
    }
    for name, value in found.items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def escaped(text: str) -> str:
    """The text with every character that could end a line or drive a terminal spelt out."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """One record, one line; a traceback follows, each of its lines behind a bar."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        ids = "".join(
            f" {name}={escaped(str(value))}"
            for name in _FIELDS
            if (value := getattr(record, name, ""))
        )
        message = escaped(record.getMessage())
        line = f"{time} {record.levelname} {record.name}: {message}{ids}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n  | {escaped(part)}" for part in trace.split("\n"))
        return line


def _json() -> logging.Formatter:
    return _JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger"},
    )


class _JsonFormatter(JsonFormatter):
    """One JSON object a line; ids that a record does not have are left out."""

    def add_fields(self, log_data, record, message_dict):  # type: ignore[no-untyped-def]
        super().add_fields(log_data, record, message_dict)
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        )
        for name in _FIELDS:
            if not log_data.get(name):
                log_data.pop(name, None)
