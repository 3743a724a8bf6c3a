"""What a solution needs to know, and whether anything tells it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from designer.plays import Play

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9]+")
_QUOTED = re.compile(r"\"([^\"\n]{1,80})\"|'([^'\n]{1,80})'")
_CODE = re.compile(r"[A-Za-z0-9]+(?:[-_.@/][A-Za-z0-9]+)+|[A-Za-z0-9]+")
# Numbers are computed, dates moved and counts taken: of so few digits, nothing is asked.
_SHORT_DIGITS = 4
_SHORT_WORD = 3
# Values tried for a parameter, calls of a tool in a wave, and calls in one action.
_MAX_VALUES, _MAX_CALLS, _CALLS_AN_ACTION = 12, 24, 8


@dataclass(frozen=True)
class Need:
    """A value that a solution's action holds.

    Attributes:
        key: The same on all seeds: the tool and its parameter, or the answer's number.
        what: For people.
        step: Of the action, from 0.
    """

    key: str
    what: str
    value: str
    seed: int
    step: int


def needs_of(solutions: Iterable[Sequence[str]]) -> dict[str, set[str]]:
    """The values of all solutions, by what they are for."""
    found: dict[str, set[str]] = {}
    for actions in solutions:
        for need in _needs(actions, 0):
            found.setdefault(need.key, set()).add(need.value)
    return found


def unrevealed(plays: Sequence[Play], tools: Sequence[Mapping[str, Any]]) -> list[Need]:
    """Values that a solution uses before anything told them, on more than half of the seeds.

    Where all that is shown is the same on every seed, a value that is not can have no source;
    else numbers, which may have been computed, are let through.

    Args:
        plays: Of solutions, one a seed.
        tools: Schemas.
    """
    published = json.dumps(list(tools), ensure_ascii=False)
    shown = {"\n".join(play.observations[1:-1]) for play in plays}
    varies = len(shown) > 1 or len({play.observations[0] for play in plays}) > 1
    by_key: dict[str, list[Need]] = {}
    for play in plays:
        for need in _needs(play.actions, play.seed):
            known = "\n".join([published, *play.observations[: need.step + 1]])
            missing = not tells(known, need.value) if varies else need.value not in known
            if missing:
                by_key.setdefault(need.key, []).append(need)
    return [
        needs[0]
        for needs in by_key.values()
        if len({need.seed for need in needs}) > len(plays) / 2
    ]


def revealed_in(need: Need, plays: Sequence[Play]) -> bool:
    """Whether the episodes that called every tool tell a value, or show any change at all."""
    if _is_number(need.value):
        return len({"\n".join(play.observations[1:]) for play in plays}) > 1
    texts = ["\n".join(play.observations) for play in plays if play.seed == need.seed]
    return any(tells(text, need.value) for text in texts)


def tells(text: str, value: str) -> bool:
    """Whether a text tells a value: as it is, or each of its words, in any order of letters."""
    folded = text.casefold()
    if value.casefold() in folded:
        return True
    words = [word.casefold() for word in _WORD.findall(value) if _is_opaque(word)]
    if not words:
        return True
    letters = {"".join(sorted(word)) for word in _WORD.findall(folded)}
    return all(word in folded or "".join(sorted(word)) in letters for word in words)


def _is_opaque(word: str) -> bool:
    return len(word) > (_SHORT_DIGITS if word.isdigit() else _SHORT_WORD - 1)


def _is_number(value: str) -> bool:
    return not any(_is_opaque(word) for word in _WORD.findall(value))


def _needs(actions: Sequence[str], seed: int) -> Iterator[Need]:
    answers = itertools.count(1)
    for step, action in enumerate(actions):
        for name, arguments in calls_in(action):
            for parameter, value in arguments.items():
                key = f"{name}.{parameter}"
                for leaf in _leaves(value):
                    yield Need(
                        key, f"the {parameter} that {name} is called with", leaf, seed, step
                    )
        for said in _ANSWER.findall(_CALL.sub("", action)):
            number = next(answers)
            yield Need(f"answer {number}", f"the answer {number}", said, seed, step)


def calls_in(action: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and arguments of an action's tool calls."""
    for said in _CALL.findall(action):
        try:
            call = json.loads(said)
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if isinstance(name, str) and isinstance(arguments, dict):
            yield name, arguments


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str) or (
        isinstance(value, int | float) and not isinstance(value, bool)
    ):
        yield str(value)


@dataclass
class Explorer:
    """Calls every tool with whatever the episode has told so far.

    Attributes:
        tools: Schemas.
        play: The solution's play of the seed: its arguments are tried first.
        many: Whether one action may hold many calls.
    """

    tools: Sequence[Mapping[str, Any]]
    play: Play
    many: bool
    _tried: set[str] = field(default_factory=set)
    _texts: list[str] = field(default_factory=list)

    def policy(self, observation: str, turn: int) -> str | None:
        """The next action: calls that were not made before."""
        self._texts.append(observation)
        calls = list(itertools.islice(self._fresh(), _CALLS_AN_ACTION if self.many else 1))
        if not calls:
            return None
        self._tried |= set(calls)
        return "".join(f"<tool_call>{call}</tool_call>" for call in calls)

    def _fresh(self) -> Iterator[str]:
        """Calls with what is known, the tools in turn."""
        per_tool = [list(self._calls_of(tool["function"])) for tool in self.tools]
        for wave in itertools.zip_longest(*per_tool):
            yield from (call for call in wave if call is not None and call not in self._tried)

    def _calls_of(self, function: Mapping[str, Any]) -> Iterator[str]:
        parameters = function.get("parameters", {})
        properties, required = parameters.get("properties", {}), parameters.get("required", [])
        names = [name for name in properties if name in required]
        values = [self._values(properties[name], function["name"], name) for name in names]
        for chosen in itertools.islice(itertools.product(*values), _MAX_CALLS):
            arguments = dict(zip(names, chosen, strict=True))
            yield json.dumps({"name": function["name"], "arguments": arguments})

    def _values(self, schema: Mapping[str, Any], tool: str, name: str) -> list[Any]:
        if "enum" in schema:
            return list(schema["enum"])[:_MAX_VALUES]
        known = "\n".join(self._texts)
        own: list[Any] = [
            arguments[name]
            for action in self.play.actions
            for called, arguments in calls_in(action)
            # What nothing told is what is looked for.
            if called == tool and name in arguments and tells(known, str(arguments[name]))
        ]
        kind = schema.get("type")
        if kind in ("integer", "number"):
            found: list[Any] = [int(n) for n in re.findall(r"\b\d{1,9}\b", known)] + [1, 2, 0]
        elif kind == "boolean":
            found = [True, False]
        elif kind in ("array", "object"):
            found = [[] if kind == "array" else {}]
        else:
            quoted = ["".join(pair) for pair in _QUOTED.findall(known)]
            words = [word for word in _CODE.findall(known) if len(word) >= _SHORT_WORD]
            found = [*reversed(quoted), *reversed(words)]
        unique = {json.dumps(value): value for value in [*own, *found]}
        return list(unique.values())[:_MAX_VALUES]
