"""Environments made of remembered ones: easier, harder, another theme, or two in one.

For programs the parents' sources are shown and the change is asked for in words. For
specifications the grammar itself is narrowed, so that the child is what the operator says,
whatever the model: only easier values, another hidden rule, each value from either parent.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from designer.archive import Remembered
from designer.drafts import Operator
from designer.families import Family, family_named, narrowed_schema
from designer.families.catalog import PUBLIC_CLUE

# Remembered environments among which parents are chosen.
CANDIDATES = 12
# Of them, the best fitting, among which chance decides.
_BEST = 3


@dataclass(frozen=True)
class LineageShares:
    """Shares of requests that start from remembered environments; the rest is new.

    Attributes:
        easier: Mutated to be easier; parents are those that are won least.
        harder: Mutated to be harder; parents are those that are won most.
        theme: The same game in another setting.
        crossover: Made of two.
    """

    easier: float = 0.0
    harder: float = 0.0
    theme: float = 0.0
    crossover: float = 0.0

    def __post_init__(self) -> None:
        shares = [getattr(self, field.name) for field in fields(self)]
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(f"shares of lineage must be in [0, 1] and at most 1 in sum: {self}")

    @property
    def total(self) -> float:
        """Share of requests that have parents."""
        return sum(getattr(self, field.name) for field in fields(self))

    def draw(self, rng: random.Random) -> Operator:
        """Draw an operator by the shares."""
        place = rng.random()
        for field in fields(self):
            place -= getattr(self, field.name)
            if place < 0:
                return Operator(field.name)
        return Operator.NEW


@dataclass(frozen=True)
class Descent:
    """What a child is made of, and how.

    Attributes:
        schema: JSON schema of the child's specification; None for programs.
    """

    operator: Operator
    parents: tuple[Remembered, ...]
    schema: dict[str, Any] | None = None


def descend(
    operator: Operator, memory: Sequence[Remembered], rng: random.Random, *, structured: bool
) -> Descent | None:
    """Choose parents for an operator.

    Args:
        operator: Not `NEW`.
        memory: Remembered environments of the skill.
        rng: Source of chance.
        structured: Whether the child is a specification.

    Returns:
        None if the memory holds no parents for it: the child is then a new environment.
    """
    memory = [entry for entry in memory if bool(entry.spec_json) == structured and entry.source]
    for parents in _candidates(operator, memory, rng):
        if not structured:
            return Descent(operator, parents)
        values = [json.loads(parent.spec_json) for parent in parents]
        allowed = _allowed(operator, family_named(values[0]["f"]), values, rng)
        if allowed is not None:
            return Descent(operator, parents, narrowed_schema(values[0]["f"], allowed))
    return None


def _candidates(
    operator: Operator, memory: Sequence[Remembered], rng: random.Random
) -> list[tuple[Remembered, ...]]:
    """Parents, or pairs of them, the first to try in front."""
    shuffled = rng.sample(memory, len(memory))
    if operator == Operator.CROSSOVER:
        pairs = [(a, b) for i, a in enumerate(shuffled) for b in shuffled[i + 1 :]]
        # Specifications of two families have no values to exchange.
        return [(a, b) for a, b in pairs if _family(a) == _family(b)]
    if operator != Operator.THEME:
        sign = 1 if operator == Operator.EASIER else -1
        ranked = sorted(shuffled, key=lambda entry: sign * _return(entry))
        shuffled = rng.sample(ranked[:_BEST], len(ranked[:_BEST])) + ranked[_BEST:]
    return [(entry,) for entry in shuffled]


def _family(entry: Remembered) -> str:
    return str(json.loads(entry.spec_json)["f"]) if entry.spec_json else ""


def _return(entry: Remembered) -> float:
    return 0.5 if math.isnan(entry.return_plain) else entry.return_plain


def _allowed(
    operator: Operator, family: Family, parents: list[dict[str, int]], rng: random.Random
) -> dict[str, list[int]] | None:
    """Values that a child may have; None if it could only be its parent again."""
    first = parents[0]
    if operator == Operator.CROSSOVER:
        second = parents[1]
        differing = [name for name in family.parameters if first[name] != second[name]]
        # With one difference each child is one of its parents.
        if len(differing) < 2:
            return None
        return {name: sorted({first[name], second[name]}) for name in family.parameters}
    allowed = {name: list(values) for name, values in family.parameters.items()}
    if operator == Operator.THEME:
        rules = [n for n in family.parameters if n not in family.harder and n != PUBLIC_CLUE]
        changed = rng.choice(rules)
        allowed |= {name: [first[name]] for name in family.harder}
        allowed[changed] = [value for value in allowed[changed] if value != first[changed]]
        return allowed
    wanted = 1 if operator == Operator.HARDER else -1
    steps = {}
    for name, sign in family.harder.items():
        up = wanted * sign > 0
        steps[name] = [v for v in allowed[name] if (v > first[name] if up else v < first[name])]
        allowed[name] = [first[name], *steps[name]] if up else [*steps[name], first[name]]
    movable = [name for name, values in steps.items() if values]
    if not movable:
        return None
    chosen = rng.choice(movable)
    allowed[chosen] = steps[chosen]
    return allowed
