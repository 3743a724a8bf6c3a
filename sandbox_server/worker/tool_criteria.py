"""User messages, and the criteria over the simulated state that say when one is done."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Longest list of keys, and deepest level, of what gates are told of the state.
_MAX_KEYS, _MAX_DEPTH = 40, 4
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "contains": lambda found, expected: expected in found,
    "in": lambda found, expected: found in expected,
}


@dataclass(frozen=True)
class Criterion:
    """A condition on one value of the world.

    Attributes:
        path: Where the value is: an attribute of the environment, then keys, places in a list
            or attributes, as in "orders.A1.status", or as a tuple where a key has a dot.
        op: One of == != < <= > >= contains in.
        expected: What it is compared with.
    """

    path: str | tuple[Any, ...]
    op: str
    expected: Any

    def __post_init__(self) -> None:
        if self.op not in _OPERATORS:
            raise ValueError(f"no operator {self.op!r}; one of {' '.join(_OPERATORS)}")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The path, part by part."""
        return tuple(self.path.split(".")) if isinstance(self.path, str) else tuple(self.path)

    def find(self, env: object) -> Any:
        """The value in the world.

        Raises:
            LookupError, AttributeError: If there is none yet.
        """
        found: Any = getattr(env, str(self.parts[0]))
        for part in self.parts[1:]:
            found = _inside(found, part)
        return found

    def holds(self, env: object) -> bool:
        """Whether the condition is met.

        Raises:
            Exception: What finding or comparing the value raises.
        """
        return bool(_OPERATORS[self.op](self.find(env), self.expected))


@dataclass
class Message:
    """One user message.

    Attributes:
        text: What the user says.
        answer: The expected answer, or a function that gives it when it is asked for; None
            where only the state counts.
        criterion: Of the state: a `Criterion`, a function without arguments, or a list of
            these that must all hold; the message is not done before.
    """

    text: str
    answer: Any = None
    criterion: Criterion | Callable[[], Any] | Sequence[Criterion | Callable[[], Any]] | None = (
        None
    )

    @property
    def criteria(self) -> list[Criterion | Callable[[], Any]]:
        """Its criteria, as a list."""
        if self.criterion is None:
            return []
        return list(self.criterion) if isinstance(self.criterion, Sequence) else [self.criterion]


def judged(env: object, message: Message) -> list[dict[str, Any]]:
    """What holds now of a message's criteria, for gates.

    A criterion that raises does not hold: what it speaks of may not be there yet.

    Returns:
        For each: `met`; `error` where it raised; and of a declared one `path`, `op`, and the
        types `expected` and `found`, the latter where there is a value.
    """
    said = []
    for criterion in message.criteria:
        told: dict[str, Any] = {"met": False}
        if isinstance(criterion, Criterion):
            told |= {
                "path": ".".join(map(str, criterion.parts)),
                "op": criterion.op,
                "expected": type(criterion.expected).__name__,
            }
            try:
                found = criterion.find(env)
                told["found"] = type(found).__name__
                if criterion.op in ("in", "contains"):
                    told |= _members(criterion, found)
            except Exception as error:
                told["error"] = f"{type(error).__name__}: {error}"[:300]
        if "error" not in told:
            try:
                holds = criterion.holds(env) if isinstance(criterion, Criterion) else criterion()
                told["met"] = bool(holds)
            except Exception as error:
                told["error"] = f"{type(error).__name__}: {error}"[:300]
        said.append(told)
    return said


def _members(criterion: Criterion, found: Any) -> dict[str, Any]:
    """Types of what the container of "in" and "contains" holds."""
    container = criterion.expected if criterion.op == "in" else found
    if isinstance(container, list | tuple | set | frozenset | dict):
        return {"members": sorted({type(value).__name__ for value in container})}
    return {}


def _inside(found: Any, part: Any) -> Any:
    if isinstance(found, Mapping):
        if part in found:
            return found[part]
        # In a path written as text, a key that is a number is text, too.
        for key in found:
            if str(key) == part:
                return found[key]
        raise KeyError(part)
    if isinstance(found, list | tuple):
        return found[int(part)]
    return getattr(found, str(part))


def types_of(value: Any, depth: int = 0) -> Any:
    """The shape of a state: dicts and objects by key, everything else by the name of its type."""
    if isinstance(value, Mapping) and value and depth < _MAX_DEPTH:
        first = list(value.items())[:_MAX_KEYS]
        return {str(key): types_of(inner, depth + 1) for key, inner in first}
    return type(value).__name__
