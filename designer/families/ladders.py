"""The families as worlds that get harder: the same regularities, rung by rung."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from designer.families.catalog import SKILLS, Family
from designer.families.compiler import (
    FAMILY_KEY,
    CompiledSpec,
    compile_spec,
    families_of,
    held_out,
)

RUNGS = 8


@dataclass(frozen=True)
class Ladder:
    """One world of a family at rising difficulty.

    Attributes:
        name: The family, and the number of the world.
        rungs: Specifications, the easiest first; none is kept for evaluation.
    """

    name: str
    family: str
    skill: str
    rungs: tuple[CompiledSpec, ...]


def ladders(worlds: int, skills: Sequence[str] = (), seed: int = 0) -> list[Ladder]:
    """Worlds of every family; the same arguments give the same list.

    Args:
        worlds: How many a family.
        skills: Keys of `SKILLS` or `TOOL_SKILLS` to keep to; empty for all games.
        seed: Of the draw.
    """
    found = []
    for skill in skills or SKILLS:
        for family in families_of(skill):
            for number in range(worlds):
                rng = random.Random(f"{seed} ladder {family.name} {number}")
                name = f"{family.name}-{number}"
                found.append(Ladder(name, family.name, family.skill, _rungs(family, rng)))
    return found


def _rungs(family: Family, rng: random.Random) -> tuple[CompiledSpec, ...]:
    kept = {n: rng.choice(v) for n, v in family.parameters.items() if n not in family.harder}
    by_level: dict[float, list[dict[str, int]]] = {}
    moving = {n: v for n, v in family.parameters.items() if n in family.harder}
    for values in itertools.product(*moving.values()):
        spec = {**kept, **dict(zip(moving, values, strict=True))}
        if not held_out({FAMILY_KEY: family.name, **spec}):
            by_level.setdefault(round(family.level(spec), 6), []).append(spec)
    levels = sorted(by_level)
    count = min(RUNGS, len(levels))
    # Evenly from the easiest to the hardest.
    places = {round(i * (len(levels) - 1) / max(1, count - 1)) for i in range(count)}
    return tuple(
        compile_spec({FAMILY_KEY: family.name, **rng.choice(by_level[levels[place]])})
        for place in sorted(places)
    )
