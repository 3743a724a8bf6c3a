"""Gate 9's plays: what is nearly the solution of a seed, and must not win on it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from designer.answers import value_of, with_value

_LAST_NUMBER = re.compile(r"\d+(?!.*\d)", re.DOTALL)


@dataclass(frozen=True)
class Perturbation:
    """A way to spoil a solution.

    Attributes:
        what: Who plays, for a message.
        actions: What is played.
    """

    what: str
    actions: tuple[str, ...]


def perturbations(
    solution: Sequence[str], others: Sequence[Sequence[str]], max_turns: int, rng: random.Random
) -> list[Perturbation]:
    """Ways to spoil a solution; fewer where the others give nothing to spoil it with.

    Args:
        solution: Actions that win on a seed.
        others: Actions that win on other seeds.
        max_turns: Turn cap of the play.
        rng: Chooses among them.
    """
    half = tuple(solution[: len(solution) // 2])
    nothing = ("",) * (max_turns - len(half))
    ways = [Perturbation("half of the solution, then nothing,", half + nothing)]
    different = [other for other in others if list(other) != list(solution)]
    if different:
        way = "the solution of another seed"
        ways.append(Perturbation(way, tuple(rng.choice(different))))
    changed = _changed(solution[-1], [other[-1] for other in others if other], rng)
    if changed is not None:
        way = "the solution with another last action"
        ways.append(Perturbation(way, (*solution[:-1], changed)))
    return ways


def _changed(action: str, others: Sequence[str], rng: random.Random) -> str | None:
    """An action in the same form that says something else; None if nothing else is known."""
    said = value_of(action)
    values = sorted({value_of(other) for other in others} - {said, ""})
    if said and values:
        return with_value(action, rng.choice(values))
    number = _LAST_NUMBER.search(action)
    if number is None:
        return None
    changed = str(int(number.group()) + rng.randint(1, 9))
    return action[: number.start()] + changed + action[number.end() :]
