"""Gate 12: the same program under other names, and others that only look alike."""

from __future__ import annotations

import time
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("min(a, b)", "max(a, b)"),
        ("a.keys()", "a.values()"),
        ("random.choice(a)", "random.shuffle(a)"),
        ("a.append(b)", "a.remove(b)"),
        ("int(a)", "float(a)"),
    ],
)
def test_names_that_a_program_does_not_give_say_what_it_does(one: str, other: str) -> None:
    program = "import random\n\nclass AEnv:\n    def step(self, a, b):\n        return {}\n"
    assert program_key(program.format(one)) != program_key(program.format(other))


def test_what_a_module_is_called_does_not_count() -> None:
    program = (
        "import random as dice\n\n"
        "class AEnv:\n    def step(self, a):\n        return dice.random()\n"
    )
    plain = program.replace(" as dice", "").replace("dice", "random")
    assert program_key(program) == program_key(program.replace("dice", "r"))
    assert program_key(program) == program_key(plain)
    assert program_key(program) != program_key(plain.replace("import random", "import secrets"))


def test_there_is_a_letter_for_every_kind_of_node() -> None:
    trees = Trees()
    letters = [trees._letter(str(n)) for n in range(0x110000)]
    assert len(set(letters)) > 1_000_000
    "".join(letters).encode("utf-8")


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


def test_ten_thousand_remembered_programs_are_looked_through() -> None:
    """In 0.03 s on a machine with other work."""
    kinds = [getattr(programs, name) for name in ("SOUND", "MAZE", "SUSPECTS", "VAULT")]
    kinds += [path.read_text() for path in EXAMPLES.glob("*.py") if "Env" in path.read_text()]
    twins = Twins(Trees(), 0.9)
    shapes = [twins._trees.read(source) for source in kinds]
    for number in range(10_000):
        shape = shapes[number % len(shapes)]
        assert shape is not None
        twins._shapes[str(number)] = shape[1]
    began = time.perf_counter()
    assert twins.find(families.evaluation_suite(1)[0].source) is None
    assert time.perf_counter() - began < 30
