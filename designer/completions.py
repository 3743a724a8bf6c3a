"""Reading what a model wrote: thinking tags and fences off, a specification or a program out."""

from __future__ import annotations

import bisect
import json
import re
from typing import Any

_TAG = re.compile(r"<(/?)(think|thinking|thought|reasoning)>", re.IGNORECASE)
# A model that starts inside its thoughts (the template opened the tag) only closes them.
_UNOPENED = re.compile(r"\A.*?</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
# One that ran out of tokens inside its thoughts only opens them.
_UNCLOSED = re.compile(r"<(think|thinking|thought|reasoning)>.*\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_CODE_START = re.compile(r"^(?:import |from |class |def |@|#|\"\"\")", re.M)


class CompletionError(ValueError):
    """Nothing usable could be read; the message says what was missing."""


def strip_thinking(text: str) -> str:
    """Drop what stands in thinking tags, also when one of the two tags is missing."""
    text = _UNOPENED.sub("", _without_pairs(text))
    return _UNCLOSED.sub("", text)


# A model that repeats itself writes a tag or a fence thousands of times: what follows takes time
# in proportion to the text, which expressions with a part that may be anything do not.


def _without_pairs(text: str) -> str:
    """Drop what stands between a tag and the next that closes it."""
    tags = [(m.start(), m.end(), m[1] == "/", m[2].lower()) for m in _TAG.finditer(text)]
    closing: dict[str, list[int]] = {}
    for number, (_, _, closes, name) in enumerate(tags):
        if closes:
            closing.setdefault(name, []).append(number)
    kept, at, after = [], 0, 0
    for number, (start, _, closes, name) in enumerate(tags):
        if closes or number < after:
            continue
        ends = closing.get(name, [])
        place = bisect.bisect(ends, number)
        if place < len(ends):
            kept.append(text[at:start])
            at, after = tags[ends[place]][1], ends[place]
    return "".join([*kept, text[at:]])


def _fenced(text: str) -> tuple[list[str], str | None]:
    """The blocks between two equal fences, and what follows the first fence of all."""
    lines = text.split("\n")
    fences = [found[1] if (found := _FENCE.match(line)) else "" for line in lines]
    closing: dict[str, list[int]] = {}
    for number, (line, fence) in enumerate(zip(lines, fences, strict=True)):
        if fence and line.strip(" \t") == fence:
            closing.setdefault(fence, []).append(number)
    blocks, first, at = [], None, 0
    for number, fence in enumerate(fences):
        if not fence or number < at:
            continue
        if first is None:
            first = "\n".join(lines[number + 1 :])
        ends = closing.get(fence, [])
        place = bisect.bisect(ends, number)
        if place < len(ends):
            blocks.append("\n".join([*lines[number + 1 : ends[place]], ""]))
            at = ends[place] + 1
    return blocks, first


def read_code(completion: str) -> str:
    """Take the program out of a completion.

    The longest fenced block that defines a class wins; an opened fence that never closes
    runs to the end; without a fence the text from the first line that looks like code.

    Raises:
        CompletionError: If there is no class in it.
    """
    text = strip_thinking(completion).replace("\r\n", "\n")
    blocks, opened = _fenced(text)
    if not any("class " in block for block in blocks) and opened is not None:
        blocks = [opened]
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
        except RecursionError:
            raise CompletionError("the completion nests JSON deeper than anything reads") from None
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
