"""Gate 11: whether the first observations give the answers away.

That an answer stands in a text proves little: a riddle names all its suspects, and a maze the
moves. What does is a rule that needs no understanding and gives the answer of seed after seed:
the solution stands there as a sequence, or each of its values behind the same words.

Values of one character are let through, since they stand in any text and copying them is a
task for a small model; so are tool calls, whose arguments the user gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from designer.answers import find_sequence, value_of

# Fewer seeds than this prove nothing.
MIN_SEEDS = 4
# What stands before a value, or behind it, must be the same on all seeds for so many characters.
CONTEXT_CHARACTERS = 10


def find_leak(openings: Mapping[int, str], solutions: Mapping[int, Sequence[str]]) -> str:
    """Look for a rule that reads the answers off the first observations.

    Args:
        openings: First observations, by seed.
        solutions: Actions that win, by seed.

    Returns:
        The rule, for people; empty where there is none.
    """
    seeds = [seed for seed in solutions if seed in openings]
    said = {
        seed: [value for action in solutions[seed] if (value := value_of(action))]
        for seed in seeds
    }
    if len(seeds) < MIN_SEEDS or len(set(map(tuple, said.values()))) < 2:
        return ""
    told = [seed for seed in seeds if _tells_sequence(said[seed], openings[seed])]
    if len(told) > len(seeds) / 2 and len({tuple(said[seed]) for seed in told}) > 1:
        return f"it tells the solution's actions in their order, on {len(told)} of {len(seeds)}"
    if len(set(map(len, said.values()))) != 1:
        return ""
    contexts = []
    for values in zip(*said.values(), strict=True):
        if len(set(values)) == 1:
            # A step that is the same on all seeds is part of the rules.
            continue
        context = _common_context(values, [openings[seed] for seed in seeds])
        if not context:
            return ""
        contexts.append(context)
    return f"the answer always stands {contexts[-1]}"


def _tells_sequence(values: list[str], opening: str) -> bool:
    if len(values) < 2 or all(len(value) == 1 for value in values):
        return False
    return find_sequence(values, opening)


def _common_context(values: Sequence[str], openings: Sequence[str]) -> str:
    """The words that stand next to the value on every seed; empty where none do."""
    before: set[str] | None = None
    behind: set[str] | None = None
    for value, opening in zip(values, openings, strict=True):
        if len(value) < 2:
            return ""
        lefts, rights = _neighbours(value, opening)
        before = lefts if before is None else before & lefts
        behind = rights if behind is None else behind & rights
        if not before and not behind:
            return ""
    return f"after {min(before)!r}" if before else f"before {min(behind or set())!r}"


def _neighbours(value: str, opening: str) -> tuple[set[str], set[str]]:
    """What stands before and behind the value, wherever it stands as a word of its own."""
    lefts, rights = set(), set()
    place = opening.find(value)
    while place >= 0:
        end = place + len(value)
        left, right = opening[:place][-CONTEXT_CHARACTERS:], opening[end:][:CONTEXT_CHARACTERS]
        if not left[-1:].isalnum() and not right[:1].isalnum():
            # Signs that stand there more than once, as in a list of moves, point at nothing.
            if len(left) == CONTEXT_CHARACTERS and opening.count(left) == 1:
                lefts.add(left)
            if len(right) == CONTEXT_CHARACTERS and opening.count(right) == 1:
                rights.add(right)
        place = opening.find(value, place + 1)
    return lefts, rights
