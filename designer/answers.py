"""What the actions of a solution say: their values, without the form that step() takes them in."""

from __future__ import annotations

import re

_BOXED = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# What may stand between the values of a sequence that a text tells.
BETWEEN = r"[\s,;:>\-|/.\"'()\[\]]*"


def value_of(action: str) -> str:
    """What is in the action's box or answer tags, else the action; "" for a tool call."""
    if "<tool_call>" in action:
        return ""
    match = _BOXED.search(action) or _ANSWER.search(action)
    return (match.group(1) if match else action).strip()


def with_value(action: str, value: str) -> str:
    """The action with another value in the same form."""
    for pattern in (_BOXED, _ANSWER):
        if match := pattern.search(action):
            return action[: match.start(1)] + value + action[match.end(1) :]
    return value


def find_sequence(values: list[str], text: str) -> bool:
    """Whether the text tells these values in order, with nothing but signs between them."""
    if not values:
        return False
    pattern = BETWEEN.join(map(re.escape, values))
    return re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE) is not None
