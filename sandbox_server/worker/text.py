"""Turning what environments return into text and JSON, and actions into spaces."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
_INTEGER = re.compile(r"-?\d+")
# Longer ones are no action of any space, and Python refuses to read those of thousands of digits.
_INTEGER_DIGITS = 20


class InvalidActionError(Exception):
    """The text is no member of the action space; the message tells the policy what is."""


def plain(value: Any) -> Any:
    """Reduce a value to what JSON has; numpy values by their own tolist."""
    if value is None or isinstance(value, bool | str):
        return str.__str__(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {k if type(k) is str else str(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return plain(tolist())
    return str(value)


def render(observation: Any) -> str:
    """Text of an observation: text as it is, everything else as JSON."""
    if isinstance(observation, str):
        return str.__str__(observation)
    return json.dumps(plain(observation), ensure_ascii=False)


def info_bytes(info: Any) -> bytes:
    """JSON bytes of an info dictionary, empty for an empty one.

    Values that JSON does not have are given as their text: a NaN becomes "nan".

    Raises:
        TypeError: If it is not a dictionary.
    """
    if info is None or info == {}:
        return b""
    if not isinstance(info, dict):
        raise TypeError(f"info must be a dict, not {type(info).__name__}")
    return json.dumps(plain(info), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def cut(text: str, limit_bytes: int) -> tuple[bytes, int]:
    """UTF-8 of `text`, cut at a character's edge to the limit, and the bytes cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return data, 0
    kept = data[:limit_bytes].decode("utf-8", "ignore").encode()
    return kept, len(data) - len(kept)


def boxed(action: str) -> str:
    """The last boxed content of an answer, or the answer itself, stripped."""
    found = _BOXED.findall(action)
    return (found[-1] if found else action).strip()


def parse_action(action: str, space: Any) -> Any:
    """Read an action for a Gymnasium space from text.

    Discrete spaces take the first integer; all others take JSON that the space contains.

    Raises:
        InvalidActionError: If the text does not give a member of the space.
    """
    text = boxed(action)
    size = getattr(space, "n", None)
    if isinstance(size, int) or (size is not None and hasattr(size, "item")):
        found = _INTEGER.search(text)
        start = int(getattr(space, "start", 0))
        stop = start + int(size)
        digits = found.group() if found is not None else ""
        if not 0 < len(digits) <= _INTEGER_DIGITS or not start <= int(digits) < stop:
            raise InvalidActionError(f"not an action; use an integer from {start} to {stop - 1}")
        return int(digits)
    if hasattr(space, "charset"):
        value: Any = text
    else:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidActionError(f"not an action; use JSON for {space}") from None
        dtype = getattr(space, "dtype", None)
        if dtype is not None and isinstance(value, int | float | list):
            import numpy

            try:
                value = numpy.asarray(value, dtype=dtype)
            except (TypeError, ValueError, OverflowError):
                raise InvalidActionError(f"not an action; use JSON for {space}") from None
    if not space.contains(value):
        raise InvalidActionError(f"not an action; use JSON for {space}")
    return value
