"""What tells an answer and what does not: leaks, hints, and solutions that are nearly right."""

from __future__ import annotations

import random

import pytest

from designer.answers import value_of, with_value
from designer.hints import HintError, check_hint_against, quoted_commands
from designer.inspection import reads_clock
from designer.leaks import find_leak
from designer.perturbations import perturbations

SEEDS = range(8)


def leak(opening, solution) -> str:
    """The leak of a game with an opening and a solution for each seed."""
    rngs = {seed: random.Random(seed) for seed in SEEDS}
    words = {seed: [str(rng.randrange(100, 999)) for _ in range(3)] for seed, rng in rngs.items()}
    return find_leak(
        {seed: opening(words[seed]) for seed in SEEDS},
        {seed: solution(words[seed]) for seed in SEEDS},
    )


@pytest.mark.parametrize(
    ("opening", "solution"),
    [
        (lambda w: f"Guess. (it is {w[0]}, {w[1]}, {w[2]})", lambda w: w),
        (lambda w: f"Guess the word. secret={w[0]} Begin!", lambda w: ["look", "knock", w[0]]),
        (
            lambda w: f"{w[0]} is the secret of {w[1]}.",
            lambda w: [with_value("\\boxed{x}", w[0])] * 3,
        ),
        (lambda w: f"Sum? Debug answer: {w[0]}", lambda w: [CALL, f"<answer>{w[0]}</answer>"]),
    ],
)
def test_an_answer_that_always_stands_in_one_place_is_a_leak(opening, solution):
    assert leak(opening, solution)


CALL = '<tool_call>{"name": "look", "arguments": {"id": "7"}}</tool_call>'
MOVES = ["up", "down", "left"]


@pytest.mark.parametrize(
    ("opening", "solution"),
    [
        # Moves that the rules name.
        (
            lambda w: f"Room {w[0]}. Say up, down or left.",
            lambda w: [MOVES[int(c) % 3] for c in w[0] + w[1]],
        ),
        (
            lambda w: f"Room {w[0]}. Say \\boxed{{up}}, \\boxed{{down}} or \\boxed{{left}}.",
            lambda w: [f"\\boxed{{{MOVES[int(c) % 3]}}}" for c in w[0] + w[1]],
        ),
        # Single characters, copied or not.
        (lambda w: "Arrows: " + " ".join(w[0] + w[1]), lambda w: list(w[0] + w[1])),
        # One of many that are shown.
        (lambda w: f"Largest of {', '.join(w)}?", lambda w: ["look", "look", max(w)]),
        # The same words on every seed are rules.
        (lambda w: f"Say one, two, three. {w[0]}", lambda w: ["one", "two", "three"]),
        # A part of the answer.
        (lambda w: f"From room {w[0]} on.", lambda w: w),
        (lambda w: f"Where is {w[0]}? Look up.", lambda w: [CALL, f"<answer>{w[1]}</answer>"]),
    ],
)
def test_what_every_game_tells_is_no_leak(opening, solution):
    assert not leak(opening, solution)


def test_a_value_goes_in_and_out_of_its_form():
    assert value_of("so \\boxed{ 12 }") == "12"
    assert value_of("<answer>red</answer>") == "red"
    assert value_of(CALL) == ""
    assert with_value("so \\boxed{12}", "13") == "so \\boxed{13}"
    assert with_value("go", "stay") == "stay"


def test_a_perturbed_solution_keeps_the_form_and_changes_what_is_said():
    solution = ["a", "b", "\\boxed{12}"]
    ways = perturbations(solution, [["c", "\\boxed{7}"], solution], 4, random.Random(0))
    half, other, changed = (way.actions for way in ways)
    assert half == ("a", "", "", "")
    assert other == ("c", "\\boxed{7}")
    assert changed == ("a", "b", "\\boxed{7}")


def test_a_lone_solution_is_perturbed_by_its_number_or_not_at_all():
    last = perturbations(["x", "take 12 now"], [], 4, random.Random(0))[-1].actions[-1]
    assert last.startswith("take ")
    assert last.endswith(" now")
    assert last != "take 12 now"
    assert len(perturbations(["x", "take it"], [], 4, random.Random(0))) == 1


def test_a_hint_may_name_the_moves_of_the_game_and_not_what_the_answer_is():
    solutions = [["north", "east", f"code{seed}x"] for seed in range(3)]
    openings = ["Say where to go, east at last, then the code."]
    check_hint_against("Go north, then east; the code has six signs.", solutions, openings)
    with pytest.raises(HintError, match="code1x"):
        check_hint_against("Perhaps code1x will do.", solutions, openings)
    with pytest.raises(HintError, match="holds the solution"):
        check_hint_against("north, east, code2x", solutions, openings)


def test_quoted_commands_take_the_form_of_the_solutions():
    hint = "Use `a b`, then \"c\" or 'd', don't stop; \\boxed{e} is it."
    assert quoted_commands(hint, ["go"]) == ["a b", "c", "d", "\\boxed{e}"]
    boxed = ["\\boxed{a b}", "\\boxed{c}", "\\boxed{d}", "\\boxed{e}"]
    assert quoted_commands(hint, ["\\boxed{x}"]) == boxed


@pytest.mark.parametrize(
    ("source", "reads"),
    [("x = time.time()", True), ("datetime.now()", True), ("timeout(3)", False), ("a.x()", False)],
)
def test_a_program_that_reads_a_clock_is_told_from_its_text(source, reads):
    assert reads_clock(source) is reads
