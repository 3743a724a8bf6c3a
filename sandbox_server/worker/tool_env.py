"""The base class that the sandbox supplies to tool-use environments, as `spadework_env`.

    from spadework_env import Criterion, Message, ToolEnv

    class OrdersEnv(ToolEnv):
        def setup(self, rng):
            self.orders = {"A1": {"items": rng.randint(1, 9), "status": "open"}}
            self.messages = [
                Message("Close A1.", criterion=Criterion("orders.A1.status", "==", "closed")),
                Message("How many items did it have?", answer=self.orders["A1"]["items"]),
            ]

        def tool_get_order(self, order_id: str) -> dict:
            '''Look an order up by its id.'''
            return self.orders[order_id]

        def tool_close_order(self, order_id: str) -> str:
            '''Close an order.'''
            self.orders[order_id]["status"] = "closed"
            return "closed"

The policy writes `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one or several, and
`<answer>...</answer>` when it is done with what the user asked. An answer to a message whose
criterion does not hold yet changes nothing; a wrong answer ends the episode with 0.0; after the
last message it ends with 1.0. What gates ask of the criteria stands in `info`, never in an
observation. docs/tool-use.md tells it at length.
"""

from __future__ import annotations

import copy
import inspect
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from . import text
from .tool_answers import matches
from .tool_criteria import Criterion, Message, judged, types_of
from .tool_schemas import json_type_problem, schema

__all__ = ["Criterion", "Message", "ToolEnv", "matches"]

_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
_PREFIX = "tool_"
# More in one action are left out, and the policy is told.
MAX_CALLS = 8

Step = tuple[str, float, bool, bool, dict[str, Any]]


class ToolEnv:
    """Subclass it: fill `self.messages` in `setup`, and define `tool_<name>` methods.

    Attributes:
        max_turns: Actions until the episode is truncated.
        messages: What the user says, in turn.
        rng: What `setup` drew from.
    """

    # Of the class, too: a subclass may define __init__ and not call this one's.
    max_turns = 20
    messages: Sequence[Message] = ()
    _current = 0
    _turn = 0
    _ended = False
    _schemas_of_class: dict[str, dict[str, Any]]

    def __init__(self, max_turns: int = 20) -> None:
        self.max_turns = max_turns
        self.messages = []
        self.rng = random.Random(0)

    def setup(self, rng: random.Random) -> None:
        """Build the world and `self.messages` from `rng`.

        Raises:
            NotImplementedError: Unless a subclass defines it.
        """
        raise NotImplementedError("define setup(self, rng) and fill self.messages there")

    def get_tools(self) -> list[dict[str, Any]]:
        """OpenAI-format schemas of the tool_<name> methods, by name."""
        return copy.deepcopy(list(self._schemas().values()))

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Build the world; the first observation is the first message.

        Returns:
            The message, and for the gates: `message` and `messages` (which, of how many),
            `criteria` (see `tool_criteria.judged`) and `state` (types of the attributes).

        Raises:
            ValueError: If `setup` left no messages, or something else among them.
        """
        self.rng = random.Random(seed)
        self._current = self._turn = 0
        self._ended = False
        self.messages = []
        self.setup(self.rng)
        if not self.messages:
            raise ValueError("setup() left self.messages empty")
        for message in self.messages:
            if not isinstance(message, Message):
                kind = type(message).__name__
                raise ValueError(f"self.messages must hold Message(...), not {kind}")
        criteria = [
            {"message": number, **said}
            for number, message in enumerate(self.messages)
            for said in judged(self, message)
        ]
        public = {k: v for k, v in vars(self).items() if k not in _OWN and not k.startswith("_")}
        return self.messages[0].text, {
            **self._info(),
            "messages": len(self.messages),
            "criteria": criteria,
            "state": types_of(public),
        }

    def step(self, action: str) -> Step:
        """Run the action's tool calls, then take its answer.

        Returns:
            Gymnasium's five; `info` has `message`, the number of the one that is open.
        """
        if self._ended:
            return "The episode is over.", 0.0, True, False, self._info()
        self._turn += 1
        said = _THINKING.sub("", action)
        calls = _TOOL_CALL.findall(said)
        shown = [self._call(call) for call in calls[:MAX_CALLS]]
        if len(calls) > MAX_CALLS:
            shown.append(f"Error: only the first {MAX_CALLS} calls of an action are run.")
        # Outside of the calls: an argument may speak of an answer.
        answers = _ANSWER.findall(_TOOL_CALL.sub("", said))
        reward, terminated = 0.0, False
        if answers:
            told, reward, terminated = self._take_answer(answers[-1])
            shown.append(told)
        elif not calls:
            shown.append("Use <tool_call>{...}</tool_call> or <answer>...</answer>.")
        self._ended = terminated
        truncated = not terminated and self._turn >= self.max_turns
        return "\n".join(shown), reward, terminated, truncated, self._info()

    def verify(self) -> bool:
        """Whether every message is done."""
        return self._current >= len(self.messages) > 0

    def _take_answer(self, given: str) -> tuple[str, float, bool]:
        """Observation, reward, and whether the episode terminates."""
        message = self.messages[self._current]
        if not all(said["met"] for said in judged(self, message)):
            return "That is not done yet.", 0.0, False
        expected = message.answer() if callable(message.answer) else message.answer
        if expected is not None and not matches(given, expected):
            return "That is not right.", 0.0, True
        self._current += 1
        if self._current == len(self.messages):
            return "Done.", 1.0, True
        return self.messages[self._current].text, 0.0, False

    def _info(self) -> dict[str, Any]:
        return {"message": self._current}

    def _schemas(self) -> dict[str, dict[str, Any]]:
        """Schemas by tool; read off the class once, since each call looks at them."""
        cls = type(self)
        if "_schemas_of_class" not in vars(cls):
            tools = sorted(name for name in dir(cls) if name.startswith(_PREFIX))
            cls._schemas_of_class = {
                name.removeprefix(_PREFIX): schema(name.removeprefix(_PREFIX), getattr(self, name))
                for name in tools
                # A property is not looked at: it would run before there is a world.
                if name != _PREFIX and callable(getattr(cls, name))
            }
        return cls._schemas_of_class

    def _call(self, said: str) -> str:
        try:
            call = json.loads(said)
            name, arguments = call["name"], call.get("arguments", {})
            if isinstance(arguments, str):
                # As the API of OpenAI has them.
                arguments = json.loads(arguments)
            if not isinstance(name, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return 'Error: a tool call is {"name": "...", "arguments": {...}}.'
        schemas = self._schemas()
        if name not in schemas:
            return f"Error: no tool {name[:100]!r}; there are {', '.join(schemas)}."
        tool: Callable[..., Any] = getattr(self, _PREFIX + name)
        try:
            inspect.signature(tool).bind(**arguments)
        except TypeError as error:
            return f"Error: {name}: {error}."
        problem = json_type_problem(schemas[name], arguments)
        if problem:
            return f"Error: {name}: {problem}."
        try:
            return text.render(tool(**arguments))
        except Exception as error:
            return f"Error: {name}: {type(error).__name__}: {error}"


# The base's own attributes: no part of the world.
_OWN = frozenset({"max_turns", "messages", "rng"})
