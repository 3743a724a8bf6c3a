"""From a specification to an environment program.

>>> compile_spec({"f": "keys", "n": 6, "q": 0, "t": 0, "g": 1, "s": 1, "c": 0}).hint
'key L door R of key'
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from designer.families.catalog import FAMILIES, PUBLIC_CLUE, SKILLS, Family
from designer.families.tool_catalog import TOOL_FAMILIES, TOOL_SKILLS

FAMILY_KEY = "f"
HELD_OUT_SHARE = 0.15
# What a program's family builds on, and is compiled into it.
_BASE_IMPORT = re.compile(r"^from designer\.families\.programs\.(\w+) import .*\n", re.M)
_EVERY_FAMILY = {**FAMILIES, **TOOL_FAMILIES}
_EVERY_SKILL = [*SKILLS, *TOOL_SKILLS]
_HELD_OUT_SALT = "held-out 1"

Spec = Mapping[str, Any]


class SpecError(ValueError):
    """The specification is not one that the schema allows; the message names the field."""


@dataclass(frozen=True)
class CompiledSpec:
    """An environment of the structured designer.

    Attributes:
        source: Python source, standard library only, one class ending in `Env`.
        hint: Text valid on every seed.
        moves: The legal actions, one character each.
        level: Difficulty within the family, 0 to 1, by the specification alone.
        held_out: Kept for evaluation; training must not play it.
    """

    spec: dict[str, Any]
    source: str
    hint: str
    family: str
    skill: str
    moves: str
    level: float
    held_out: bool


def check_spec(spec: Spec) -> Family:
    """Return the family of a valid specification.

    Raises:
        SpecError: If the family is unknown, or a parameter is missing, unknown or out of range.
    """
    name = spec.get(FAMILY_KEY)
    family = _EVERY_FAMILY.get(name) if isinstance(name, str) else None
    if family is None:
        raise SpecError(f"unknown family {name!r}; one of {sorted(_EVERY_FAMILY)}")
    if extra := set(spec) - set(family.parameters) - {FAMILY_KEY}:
        raise SpecError(f"{family.name} has no parameter {sorted(extra)}")
    for parameter, allowed in family.parameters.items():
        value = spec.get(parameter)
        if type(value) is not int or value not in allowed:
            raise SpecError(
                f"{family.name}.{parameter} is {value!r}, must be one of {list(allowed)}"
            )
    return family


def compile_spec(spec: Spec) -> CompiledSpec:
    """Write the environment that a specification describes.

    Raises:
        SpecError: If the specification is not valid.
    """
    family = check_spec(spec)
    values = {name: spec[name] for name in family.parameters}
    hint = family.hint(values)
    source = _program_text(family.name)
    parameters = {name: value for name, value in values.items() if name != PUBLIC_CLUE}
    source = _replace_line(source, "P = ", f"P = {json.dumps(parameters)}")
    source = _replace_line(source, "CLUE = ", f"CLUE = {hint if values[PUBLIC_CLUE] else ''!r}")
    return CompiledSpec(
        spec={FAMILY_KEY: family.name, **values},
        source=source,
        hint=hint,
        family=family.name,
        skill=family.skill,
        moves=family.moves(values),
        level=family.level(values),
        held_out=held_out(spec),
    )


@cache
def _program_text(name: str) -> str:
    programs = resources.files("designer.families.programs")
    module = (programs / f"{name}.py").read_text(encoding="utf-8")
    found = _BASE_IMPORT.search(module)
    if found is None:
        raise RuntimeError(f"program {name}.py must import its base from designer.families")
    base = (programs / f"{found[1]}.py").read_text(encoding="utf-8")
    return module.replace(found[0], base)


def _replace_line(source: str, start: str, line: str) -> str:
    lines = source.split("\n")
    places = [index for index, text in enumerate(lines) if text.startswith(start)]
    if len(places) != 1:
        raise RuntimeError(f"expected one line starting with {start!r}, found {len(places)}")
    lines[places[0]] = line
    return "\n".join(lines)


def family_named(name: str) -> Family:
    """The family of that name, of either kind."""
    return _EVERY_FAMILY[name]


def families_of(skill: str | None) -> list[Family]:
    """The families of a skill of either kind; of all games where it is None."""
    if skill is None:
        return list(FAMILIES.values())
    return [family for family in _EVERY_FAMILY.values() if family.skill == skill]


def spec_schema(skill: str | None = None) -> dict[str, Any]:
    """JSON schema of the specifications of all games, or of one skill of either kind.

    Every property is an enumeration in a fixed order, so that under a grammar each sampled
    character outside the structure is a decision.

    Raises:
        SpecError: If the skill has no family.
    """
    branches = [narrowed_schema(family.name, family.parameters) for family in families_of(skill)]
    if not branches:
        raise SpecError(f"no family has the skill {skill!r}; skills are {_EVERY_SKILL}")
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def narrowed_schema(family: str, allowed: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """JSON schema of the specifications of one family with the values allowed."""
    names = family_named(family).parameters
    return {
        "type": "object",
        "properties": {
            FAMILY_KEY: {"type": "string", "enum": [family]},
            **{name: {"type": "integer", "enum": list(allowed[name])} for name in names},
        },
        "required": [FAMILY_KEY, *names],
        "additionalProperties": False,
    }


def draw_spec(schema: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Draw a specification that a schema of `spec_schema` or `narrowed_schema` allows."""
    branch = rng.choice(schema["anyOf"]) if "anyOf" in schema else schema
    return {name: rng.choice(values["enum"]) for name, values in branch["properties"].items()}


def spec_text(spec: Spec) -> str:
    """The specification as the grammar writes it: compact JSON, schema order."""
    family = check_spec(spec)
    ordered = {FAMILY_KEY: family.name, **{name: spec[name] for name in family.parameters}}
    return json.dumps(ordered, separators=(",", ":"))


def held_out(spec: Spec) -> bool:
    """Whether this world belongs to evaluation, by a stable hash.

    The public clue is left out of the hash: the two versions of one world fall on one side.
    """
    world = {name: value for name, value in spec.items() if name != PUBLIC_CLUE}
    text = _HELD_OUT_SALT + json.dumps(world, sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") < HELD_OUT_SHARE * 2**64


def random_spec(rng: random.Random, skill: str | None = None, family: str = "") -> dict[str, Any]:
    """Draw a family evenly, then each parameter evenly; held-out specifications included."""
    names = [f.name for f in families_of(skill)]
    chosen = family_named(family or rng.choice(names))
    return {
        FAMILY_KEY: chosen.name,
        **{name: rng.choice(allowed) for name, allowed in chosen.parameters.items()},
    }


def evaluation_suite(n: int, seed: int = 0, skills: Sequence[str] = ()) -> list[CompiledSpec]:
    """List n distinct held-out environments, spread over families and difficulty.

    Families take turns, and within a family the easy, middle and hard thirds of its levels.
    The same arguments give the same list.

    Args:
        n: How many; fewer come back where the families hold no more.
        seed: Of the draw.
        skills: Keys of `SKILLS` or `TOOL_SKILLS` to keep to; empty for all games.

    Raises:
        SpecError: If no family has one of the skills.
    """
    rng = random.Random(seed)
    names = [f.name for f in _EVERY_FAMILY.values() if f.skill in (skills or SKILLS)]
    if not names:
        raise SpecError(f"no family has a skill of {list(skills)}; skills are {_EVERY_SKILL}")
    suite: list[CompiledSpec] = []
    seen: set[str] = set()
    for index in range(n):
        third = index // len(names) % 3
        for attempt in range(2000):
            spec = random_spec(rng, family=names[index % len(names)])
            if not held_out(spec) or spec_text(spec) in seen:
                continue
            compiled = compile_spec(spec)
            if min(2, int(compiled.level * 3)) == third or attempt > 1000:
                seen.add(spec_text(spec))
                suite.append(compiled)
                break
    return suite
