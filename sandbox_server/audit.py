"""The audit log: who did what with which program, and what became of it.

One line of JSON for each event. Secrets are never in it: no token, no source, no action, no
observation, and of an episode's id, which is what lets one step it, only the first characters.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import time
from collections import Counter
from io import TextIOWrapper
from typing import Any

from sandbox_server.rate import Rate
from sandbox_server.telemetry import calls

# Lines of refused strangers a second: they cost nothing to cause, and a disk to keep.
_REFUSALS_PER_S = 10.0

_log = logging.getLogger(__name__)


class AuditError(Exception):
    """The audit log cannot be written where it was asked for."""


class AuditLog:
    """Appends events to a file; one that is moved away is made anew, as logrotate expects.

    Args:
        path: The file, made readable by its owner only; empty writes nothing.

    Attributes:
        events_total: Events, by name and tenant, those of strangers that a flood left out too.
        lost_total: Events that could not be written.

    Raises:
        AuditError: If it cannot be opened.
    """

    def __init__(self, path: str = "") -> None:
        self.events_total: Counter[tuple[str, str]] = Counter()
        self.lost_total = 0
        self._handler: _File | None = None
        self._refusals = Rate(_REFUSALS_PER_S)
        self._unwritten_refusals = 0
        if path:
            try:
                self._handler = _File(path, self)
            except OSError as error:
                raise AuditError(f"cannot write the audit log {path}: {error.strerror}") from None

    def record(self, event: str, tenant: str, **told: Any) -> None:
        """Write one event.

        Args:
            event: What was done: "register", "reset", "end", "verify", "fork".
            tenant: Who did it.
            told: More of it; an `episode` is cut to what is no secret.
        """
        if self._handler is None:
            return
        self.events_total[event, tenant] += 1
        self._write(self._handler, event, tenant, told)

    def _write(self, handler: _File, event: str, tenant: str, told: dict[str, Any]) -> None:
        if "episode" in told:
            told["episode"] = told["episode"][: calls.SHOWN_ID_CHARACTERS]
        line = {"time": round(time.time(), 3), "event": event, "tenant": tenant}
        if call := calls.current():
            line |= {"peer": call.peer, "request_id": call.request_id}
        text = json.dumps(line | told)
        handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    def refused(self, **told: Any) -> None:
        """Write that a stranger was refused; of a flood of them, some, and how many more.

        Args:
            told: More of it.
        """
        if self._handler is None:
            return
        self.events_total["refused", ""] += 1
        if self._refusals.wait_s():
            self._unwritten_refusals += 1
            return
        if self._unwritten_refusals:
            told["not_written_before"] = self._unwritten_refusals
            self._unwritten_refusals = 0
        self._write(self._handler, "refused", "", told)

    def close(self) -> None:
        if self._handler is not None:
            # What is still in it was counted as lost.
            with contextlib.suppress(OSError):
                self._handler.close()


class _File(logging.handlers.WatchedFileHandler):
    def __init__(self, path: str, owner: AuditLog) -> None:
        super().__init__(path)
        self._owner = owner

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="ascii", opener=_private)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except Exception:
            # The library handles what fails while it writes, not while it opens the file anew.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not end what is audited, nor pass unseen."""
        self._owner.lost_total += 1
        if self._owner.lost_total == 1:
            _log.exception("the audit log cannot be written; events are lost")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
