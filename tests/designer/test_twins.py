"""Gate 12: the same program under other names, and others that only look alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from designer import families
from designer.twins import Trees, Twins, program_key
from tests.designer import programs

EXAMPLES = Path(__file__).parents[2] / "examples"


def renamed(program: str) -> str:
    """Other names, other layout, remarks and docstrings; the program is the same."""
    for old, new in (("ups", "arrows"), ("rung", "level"), ("rng", "dice"), ("said", "word")):
        program = program.replace(old, new)
    program = program.replace("LadderEnv", "TowerEnv").replace("Climb to the top", "Go up")
    return program.replace("    ", "  ").replace("self.turn = 0", "self.turn = (0)  # none yet")


def rethemed(program: str) -> str:
    return program.replace("Arrows", "Stairs").replace("fell", "slipped").replace('"up"', '"on"')


def find(program: str, *, among: str = programs.SOUND, similarity: float = 0.9, **options):
    twins = Twins(Trees(), similarity)
    twins.add(among, "first")
    return twins.find(program, **options)


def test_a_program_renamed_and_reformatted_is_the_same() -> None:
    assert renamed(programs.SOUND) != programs.SOUND
    assert program_key(renamed(programs.SOUND)) == program_key(programs.SOUND)
    twin = find(renamed(programs.SOUND), similarity=2.0)
    assert twin is not None
    assert (twin.name, twin.similarity) == ("first", 1.0)


@pytest.mark.parametrize(
    "dressed",
    [
        rethemed(renamed(programs.SOUND)),
        programs.SOUND.replace("range(6)", "range(7)"),
        programs.RAISES_ON_LOAD,
    ],
)
def test_a_program_in_another_dress_is_a_twin(dressed: str) -> None:
    assert program_key(dressed) != program_key(programs.SOUND)
    twin = find(dressed)
    assert twin is not None
    assert 0.9 < twin.similarity <= 1.0
    # Unless only equal ones are asked for, or it is the child of what it is like.
    assert find(dressed, similarity=2.0) is None
    assert find(dressed, by_shape=False) is None
    assert find(dressed, except_for=("first",)) is None


def test_a_child_that_is_its_parent_is_a_twin_all_the_same() -> None:
    assert find(renamed(programs.SOUND), except_for=("first",)) is not None


def test_names_that_are_swapped_make_another_program() -> None:
    one = "class AEnv:\n    def step(self, a, b):\n        return a - b\n"
    other = one.replace("a - b", "b - a")
    assert program_key(one) != program_key(other)
    assert program_key(one) == program_key(one.replace("a, b", "x, y").replace("a - b", "x - y"))


def test_different_programs_are_no_twins() -> None:
    sources = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    sources |= {name: getattr(programs, name) for name in ("SOUND", "MAZE", "SUSPECTS", "VAULT")}
    twins = Twins(Trees(), 0.9)
    for name, source in sources.items():
        assert twins.find(source) is None, name
        twins.add(source, name)


def test_structured_programs_are_told_apart_by_their_specification() -> None:
    suite = families.evaluation_suite(60)
    twins = Twins(Trees(), 0.9)
    for number, compiled in enumerate(suite):
        assert twins.find(compiled.source, by_shape=False) is None
        twins.add(compiled.source, str(number), by_shape=False)
    assert all(twins.find(compiled.source, by_shape=False) is not None for compiled in suite)


def test_what_does_not_parse_has_no_twin() -> None:
    assert find(programs.NO_PARSE, among=programs.NO_PARSE) is None
    assert find("x" + "." * 100_000) is None


def test_ten_thousand_remembered_programs_are_looked_through_quickly() -> None:
    """About 0.1 s on a quiet machine."""
    import time

    twins = Twins(Trees(), 0.9)
    body = "\n".join(f"        self.w{n} = [{n} + i for i in range(3)]" for n in range(40))
    for n in range(10_000):
        twins._shapes[str(n)] = chr(300 + n % 50) * 400 + chr(400 + n) * 200
    began = time.perf_counter()
    assert twins.find(f"class LongEnv:\n    def reset(self, seed=None):\n{body}\n") is None
    assert time.perf_counter() - began < 5.0
