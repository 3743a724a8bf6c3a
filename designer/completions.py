"""Reading what a model wrote: thinking tags and fences off, a specification or a program out."""

from __future__ import annotations

import json
import re
from typing import Any

_THINKING = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
# A model that starts inside its thoughts (the template opened the tag) only closes them.
_UNOPENED = re.compile(r"\A.*?</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
# One that ran out of tokens inside its thoughts only opens them.
_UNCLOSED = re.compile(r"<(think|thinking|thought|reasoning)>.*\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.M
)
_OPEN_FENCE = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*(\w*)[^\n]*\n", re.M)
_CODE_START = re.compile(r"^(?:import |from |class |def |@|#|\"\"\")", re.M)


class CompletionError(ValueError):
    """Nothing usable could be read; the message says what was missing."""


def strip_thinking(text: str) -> str:
    """Drop what stands in thinking tags, also when one of the two tags is missing."""
    text = _THINKING.sub("", text)
    text = _UNOPENED.sub("", text)
    return _UNCLOSED.sub("", text)


def read_code(completion: str) -> str:
    """Take the program out of a completion.

    The longest fenced block that defines a class wins; an opened fence that never closes
    runs to the end; without a fence the text from the first line that looks like code.

    Raises:
        CompletionError: If there is no class in it.
    """
    text = strip_thinking(completion).replace("\r\n", "\n")
    blocks = [match.group(3) for match in _FENCE.finditer(text)]
    if not any("class " in block for block in blocks):
        opened = _OPEN_FENCE.search(text)
        if opened is not None:
            blocks = [text[opened.end() :]]
    if not any("class " in block for block in blocks):
        start = _CODE_START.search(text)
        blocks = [text[start.start() :]] if start else []
    blocks = [block for block in blocks if re.search(r"^class \w+", block, re.M)]
    if not blocks:
        raise CompletionError("the completion holds no Python class")
    return max(blocks, key=len).strip("\n") + "\n"


def read_spec(completion: str) -> dict[str, Any]:
    """Take the first JSON object out of a completion.

    Raises:
        CompletionError: If there is none.
    """
    text = strip_thinking(completion)
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except ValueError:
            start = text.find("{", start + 1)
            continue
        if isinstance(value, dict):
            return value
        start = text.find("{", start + 1)
    raise CompletionError("the completion holds no JSON object")


def read_hint(completion: str) -> str:
    """Take the hint out of a completion: no thoughts, no label, white space made single."""
    text = strip_thinking(completion).strip()
    text = re.sub(r"\A(?:\*\*)?hint(?:\*\*)?\s*:\s*(?:\*\*)?", "", text, flags=re.IGNORECASE)
    return re.sub(r"[ \t]+", " ", text).strip().strip('"').strip()
