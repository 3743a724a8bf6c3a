"""The base class that the sandbox supplies to tool-use environments, as `spadework_env`.

    from spadework_env import ToolEnv

    class OrdersEnv(ToolEnv):
        def setup(self, rng):
            self.orders = {"A1": rng.randint(1, 9)}
            self.messages = [Message("How many items are in order A1?", answer=self.orders["A1"])]

        def tool_get_order(self, order_id: str) -> dict:
            '''Look an order up by its id.'''
            return {"items": self.orders[order_id]}

The policy answers with `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` or with
`<answer>...</answer>`. Answers are compared without case, numbers within 0.01. With
several messages, the next one is shown only when the criterion of the last one holds.
"""

from __future__ import annotations

import inspect
import json
import random
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TOOL_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
_TOLERANCE = 0.01
_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


@dataclass
class Message:
    """One user message.

    Attributes:
        text: What the user says.
        answer: The expected answer; None where only the state counts.
        criterion: Of the simulated state; must hold for the message to be done.
    """

    text: str
    answer: Any = None
    criterion: Callable[[], bool] | None = None


def matches(given: str, expected: Any) -> bool:
    """Compare an answer: numbers within 0.01, text without case and outer blanks."""
    if isinstance(expected, bool) or not isinstance(expected, int | float):
        wanted = str(expected).strip().casefold()
        try:
            return abs(float(given.replace(",", "")) - float(wanted)) <= _TOLERANCE
        except ValueError:
            return given.strip().casefold() == wanted
    found = _NUMBER.fullmatch(given.strip().lstrip("$€£").rstrip("%. "))
    return (
        found is not None and abs(float(found.group().replace(",", "")) - expected) <= _TOLERANCE
    )


def _schema(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, str)
        kind = _JSON_TYPES.get(typing.get_origin(hint) or hint, "string")
        properties[parameter.name] = {"type": kind}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": inspect.getdoc(function) or "",
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


class ToolEnv:
    """Subclass it: fill `self.messages` in `setup`, and define `tool_<name>` methods."""

    def __init__(self, max_turns: int = 20) -> None:
        self.max_turns = max_turns
        self.messages: list[Message] = []
        self.rng = random.Random(0)
        self._current = 0
        self._turn = 0

    def setup(self, rng: random.Random) -> None:
        """Build the world and `self.messages` from `rng`.

        Raises:
            NotImplementedError: Unless a subclass defines it.
        """
        raise NotImplementedError("define setup(self, rng) and fill self.messages there")

    def get_tools(self) -> list[dict[str, Any]]:
        """OpenAI-format schemas of the tool_<name> methods, by name."""
        names = sorted(name for name in dir(self) if name.startswith("tool_"))
        return [_schema(name.removeprefix("tool_"), getattr(self, name)) for name in names]

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.rng = random.Random(seed)
        self._current = self._turn = 0
        self.messages = []
        self.setup(self.rng)
        if not self.messages:
            raise ValueError("setup() left self.messages empty")
        return self.messages[0].text, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turn += 1
        truncated = self._turn >= self.max_turns
        answer = _ANSWER.search(action)
        if answer is not None:
            return self._take_answer(answer.group(1), truncated)
        call = _TOOL_CALL.search(action)
        if call is None:
            told = "Use <tool_call>{...}</tool_call> or <answer>...</answer>."
            return told, 0.0, False, truncated, {}
        return self._call(call.group(1)), 0.0, False, truncated, {}

    def verify(self) -> bool:
        """Whether every message is done."""
        return self._current >= len(self.messages) > 0

    def _take_answer(
        self, given: str, truncated: bool
    ) -> tuple[str, float, bool, bool, dict[str, Any]]:
        message = self.messages[self._current]
        right = message.answer is None or matches(given, message.answer)
        if message.criterion is not None:
            right = right and bool(message.criterion())
        if not right:
            return "That is not right.", 0.0, True, False, {"message": self._current}
        self._current += 1
        if self._current == len(self.messages):
            return "Done.", 1.0, True, False, {}
        return self.messages[self._current].text, 0.0, False, truncated, {}

    def _call(self, text: str) -> str:
        try:
            call = json.loads(text)
            name, arguments = call["name"], call.get("arguments", {})
            if not isinstance(name, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError):
            return 'Error: a tool call is {"name": "...", "arguments": {...}}.'
        tool = getattr(self, f"tool_{name}", None)
        if tool is None:
            known = ", ".join(tool["function"]["name"] for tool in self.get_tools())
            return f"Error: no tool {name!r}; there are {known}."
        try:
            inspect.signature(tool).bind(**arguments)
        except TypeError as error:
            return f"Error: {name}: {error}."
        try:
            return json.dumps(tool(**arguments), ensure_ascii=False, default=str)
        except Exception as error:
            return f"Error: {name}: {type(error).__name__}: {error}"
