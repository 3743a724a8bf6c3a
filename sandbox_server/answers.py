"""Reading what a hostile process says: JSON and texts that only look like the worker's."""

from __future__ import annotations

import json
from typing import Any, cast

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import values
from sandbox_server.failures import Failure, ProgramFailedError
from sandbox_server.worker import frames

# Texts of a diagnostic that are the program's to say. How its process ended is not.
_DIAGNOSTIC_BYTES = {"message": 4_000, "exception": 500, "limit": 100, "output_tail": 2_000}
# Of one info, and of the tool schemas; see `values`.
_MAX_VALUES = 50_000
# What reading JSON of a hostile process raises, here and where its values are used: nesting
# without end, infinite numbers, other types than the expected ones.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def encodable(text: str) -> str:
    """The text with what UTF-8 does not have, lone surrogates, replaced."""
    return text.encode("utf-8", "replace").decode()


def cut(text: str, most_bytes: int) -> str:
    """The first bytes of a text that a process sent, as far as they are whole characters."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def malformed(what: str) -> Failure:
    """The failure of a process that sent `what` in the place of an answer."""
    return Failure(
        pb.OUTCOME_PROTOCOL_VIOLATION, pb.Diagnostic(message=f"the process sent {what}")
    )


def failure_of(reply: frames.Reply) -> Failure:
    """Read the diagnostic of a reply that is not COMPLETED. Its text is the program's."""
    diagnostic = pb.Diagnostic()
    try:
        told = json.loads(reply.extra)
        if told.get("phase", 0) in pb.Phase.values():
            diagnostic.phase = told.get("phase", 0)
        diagnostic.line = max(0, told.get("line", 0))
        for name, most in _DIAGNOSTIC_BYTES.items():
            setattr(diagnostic, name, cut(told.get(name, ""), most))
    except MALFORMED:
        return malformed("a diagnostic that is not one")
    # The worker has its own copy of the numbers: it may import nothing of the contract.
    return Failure(cast("pb.Outcome", reply.outcome), diagnostic)


def tools_json(tools: Any) -> bytes:
    """Tool schemas that a process sent, as JSON that clients can read.

    Raises:
        Any of MALFORMED: If they are no list, or hold what JSON does not have.
    """
    if not isinstance(tools, list):
        raise TypeError("tools are no list")
    return json.dumps(tools, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def checked_tools(extra: bytes) -> bytes:
    """The tool schemas in a reset's reply; empty when there are none.

    Raises:
        ProgramFailedError: If they are not what tools_json makes.
    """
    if not extra:
        return b""
    try:
        if values.are_more(extra, _MAX_VALUES):
            raise ValueError("too many values")
        return tools_json(json.loads(extra))
    except MALFORMED:
        raise ProgramFailedError(malformed("tools that are no JSON array, or too many")) from None


def info_failure(info: bytes) -> Failure | None:
    """Check an info that goes to clients undecoded: a JSON object without NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if values.are_more(info, _MAX_VALUES):
        message = f"the info has more than {_MAX_VALUES} values"
        diagnostic = pb.Diagnostic(message=message, limit="max_info_bytes")
        return Failure(pb.OUTCOME_OUTPUT_LIMIT, diagnostic)
    try:
        # Decoded here: json.loads would take UTF-16 and lone surrogates as well.
        told = json.loads(info.decode(), parse_constant=refuse)
        if isinstance(told, dict):
            if b"\\u" in info:
                # An escape may stand for a lone surrogate, which clients could not write.
                json.dumps(told, ensure_ascii=False).encode()
            return None
    except MALFORMED:
        pass
    return malformed("an info that is no JSON object")
