"""The table of promises in SECURITY.md: what each backend enforces, and what it does not."""

from __future__ import annotations

import functools
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "SECURITY.md"
_FIRST_COLUMN = "promise"


@functools.cache
def promises() -> dict[str, dict[str, str]]:
    """By promise and backend: "yes", or "no: " and why."""
    found: dict[str, dict[str, str]] = {}
    backends: list[str] = []
    for line in _PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            backends = []
        elif cells[0] == _FIRST_COLUMN:
            backends = [cell.strip("`") for cell in cells[1:]]
        elif backends and not set(cells[0]) <= {"-", ":"}:
            found[cells[0]] = dict(zip(backends, cells[1:], strict=False))
    return found


def enforced(promise: str, backend: str) -> bool:
    """Whether SECURITY.md says that a backend keeps a promise.

    Raises:
        KeyError: If it says nothing about it.
    """
    return promises()[promise][backend].startswith("yes")
