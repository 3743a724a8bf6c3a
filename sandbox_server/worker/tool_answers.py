"""Whether an answer is the expected one: numbers within 0.01, text without case."""

from __future__ import annotations

import json
import math
import re
from typing import Any

TOLERANCE = 0.01
# 0.11 - 0.10 is a little more than 0.01 in binary.
_SLACK = 1e-9
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


def matches(given: str, expected: Any) -> bool:
    """Compare an answer with the expected one.

    Numbers, and texts that are one, agree within 0.01; signs of currency, a per cent sign and a
    full stop do not count. Texts agree without case, outer quotes, a last full stop and the
    width of white space. True is "true" or "yes". A list is a JSON list or parts between
    commas, each compared as above, a set in any order; a dict is a JSON object.
    """
    if isinstance(expected, bool):
        return _TRUTHS.get(_folded(given)) is expected
    if isinstance(expected, dict):
        return _same_json(_json(given), expected)
    if isinstance(expected, list | tuple | set | frozenset):
        return _same_list(given, expected)
    wanted = _number(str(expected))
    if wanted is not None:
        found = _number(given)
        return found is not None and _close(found, wanted)
    return _folded(given) == _folded(str(expected))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE + _SLACK


def _number(said: str) -> float | None:
    """The finite number that a text is; None if it is something else."""
    bare = said.strip().rstrip(".").strip("$€£% \t\n")
    if _NUMBER.fullmatch(bare) is None:
        return None
    value = float(bare.replace(",", ""))
    return value if math.isfinite(value) else None


def _folded(said: str) -> str:
    return " ".join(said.split()).strip("\"'` ").rstrip(".").casefold()


def _json(said: str) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return None


def _same_list(given: str, expected: Any) -> bool:
    read = _json(given)
    parts = read if isinstance(read, list) else [part for part in given.split(",") if part.strip()]
    if len(parts) != len(expected):
        return False
    if isinstance(expected, set | frozenset):
        left = list(parts)
        for value in expected:
            fitting = [part for part in left if _same_json(part, value)]
            if not fitting:
                return False
            left.remove(fitting[0])
        return True
    return all(_same_json(part, value) for part, value in zip(parts, expected, strict=True))


def _same_json(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and {str(key) for key in expected} == set(found)
            and all(_same_json(found[str(key)], value) for key, value in expected.items())
        )
    said = found if isinstance(found, str) else json.dumps(found)
    return matches(said, expected)
