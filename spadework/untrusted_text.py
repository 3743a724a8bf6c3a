"""Text that models and environments wrote, made harmless to look at.

Escaping for HTML is the template's and the browser's `textContent`'s job. This module
removes what remains dangerous after it: characters that a reader cannot see, or that
reorder what he sees.
"""

from __future__ import annotations

import re

# C0 and C1 controls except tab and newline; bidirectional overrides and isolates; zero-width
# and tag characters; line and paragraph separators; lone surrogates, which UTF-8 cannot hold.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def _name(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures, such as U+241B for ESC
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def visible(text: object, max_chars: int = 0) -> str:
    """Show control characters as pictures or names, and cut at `max_chars` saying so.

    Args:
        text: Anything; None gives an empty string.
        max_chars: Characters to keep; 0 keeps all.
    """
    if text is None:
        return ""
    raw = str(text).replace("\r\n", "\n")
    cut = len(raw) - max_chars if max_chars and len(raw) > max_chars else 0
    shown = INVISIBLE.sub(_name, raw[: len(raw) - cut])
    return f"{shown}\n[{cut:,} more characters are in the run folder]" if cut else shown


def short(text: object, max_chars: int) -> str:
    """A label of one line, at most `max_chars` long; an ellipsis stands for the rest."""
    line = " ".join(visible(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "\u2026"
