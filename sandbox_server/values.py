"""How many values JSON has, counted before it is read.

A value takes two bytes as text, and sixty once it is read: what is within a bound on its size
may hold up the event loop, and with it every tenant, for tenths of a second.
"""

from __future__ import annotations

import re

# Without its end it is one, too: looking for an end from each quote would take for ever.
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)


def are_more(text: bytes, most: int) -> bool:
    """Whether a text, if it is JSON, has more than so many values."""
    if len(text) <= 2 * most or _separators(text) <= most:
        return False
    return _separators(_STRING.sub(b"", text)) > most


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
