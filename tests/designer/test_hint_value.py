"""A player that reads the clue does better than the same player without it.

The players are scripts: they show that the hint carries what the first observation lacks,
and that the environment can be played without it. What a model makes of it is measured.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import pytest
from test_families import load

from designer.families import compile_spec, random_spec

SPECS = 25
SEEDS = 6

# A player sees all observations, its own actions, the clue ("" for none) and the moves.
Player = Callable[[list[str], list[str], str, str], str]


def play_sort(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    last = seen[-1].split(" left")[0]
    items = last.split()[-1]
    if not clue and seen[-1].startswith("far"):
        return done[-1]
    want = clue.split()[1] if clue else "".join(sorted(items))
    for place in range(len(items) - 1):
        if want.index(items[place]) > want.index(items[place + 1]):
            return str(place + 1)
    return moves[len(done) % len(moves)]


def play_lamps(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    lamps = re.findall(r"[01]{4,}", seen[-1])[0]
    works = {pair[0]: int(pair[1]) - 1 for pair in clue.split()}
    for move, told in zip(done, seen[1:], strict=True):
        works[move] = int(told.split()[2]) - 1
    dark = [move for move, lamp in works.items() if lamps[lamp] == "0"]
    untried = [move for move in moves if move not in works]
    return (dark or untried or [moves[0]])[0]


def play_rule(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    sets = ["02468", "13579", "56789", "01234", "0369", "3456"]
    number = re.findall(r"is (\d)", seen[-1])[0]
    if clue:
        return "y" if number in clue[2:] else "n"
    known = re.findall(r"(\d)([yn])", seen[-1])
    fitting = [s for s in sets if all((digit in s) == (said == "y") for digit, said in known)]
    return "y" if 2 * sum(number in s for s in fitting) >= len(fitting) else "n"


def play_recall(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    items = re.findall(r"of ([a-e]+)", seen[0])[0]
    place = len(done)
    if clue.startswith("last"):
        return items[::-1][place]
    if clue:
        return dict(pair.split(">") for pair in clue.split())[items[place]]
    rules = [items, items.translate(str.maketrans(moves, moves[1:] + moves[0]))]
    rules += [items.translate(str.maketrans(moves, moves[::-1])), items[::-1]]
    truths = [
        move if told.startswith("yes") else told.split()[3]
        for move, told in zip(done, seen[1:], strict=True)
    ]
    fitting = [rule for rule in rules if list(rule[:place]) == truths]
    return fitting[0][place]


def play_keys(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    last = seen[-1]
    if "at " not in last:  # told in directions
        told = re.findall(r"(?:key|door) (\w)", last)[0]
        return told if told in "LR" else "TO"["door" in last]
    at = int(re.findall(r"at (\d)", last)[0])
    target, take = ("door", "O") if "key ok" in last else ("key", "T")
    shown = re.findall(rf"{target} (\d)", last)
    if shown:
        return take if int(shown[0]) == at else "LR"[int(shown[0]) > at]
    if clue:
        return clue.split()[1 if target == "key" else 3]
    if last.startswith("far"):
        return "LR"[done[-1] == "L"]
    return done[-1] if done and done[-1] in "LR" else "L"


def play_search(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    low, high = map(int, re.findall(r"in (\d)-(\d)", seen[-1])[0])
    numbers = list(range(low, high + 1))
    if clue in ("only even", "only odd"):
        numbers = [n for n in numbers if n % 2 == (clue == "only odd")]
    elif clue:
        first, last = map(int, re.findall(r"\d", clue))
        numbers = [n for n in numbers if first <= n <= last]
    return str(numbers[len(numbers) // 2])


def play_series(seen: list[str], done: list[str], clue: str, moves: str) -> str:
    places = [moves.index(c) for c in re.findall(r"next ([a-h]+)", seen[-1])[0]]
    steps = [(b - a) % len(moves) for a, b in itertools.pairwise(places)]
    told = [int(n) % len(moves) for n in re.findall(r"\d", clue)]
    if told:
        step = told[-1] if steps and steps[-1] == told[0] else told[0]
    else:
        step = steps[-2] if len(steps) > 1 else (steps or [1])[-1]
    return moves[(places[-1] + step) % len(moves)]


PLAYERS: dict[str, Player] = {
    "sort": play_sort,
    "switch": play_lamps,
    "rule": play_rule,
    "recall": play_recall,
    "keys": play_keys,
    "search": play_search,
    "series": play_series,
}


def mean_return(family: str, *, with_clue: bool) -> float:
    rng = random.Random(family)
    returns = []
    for _ in range(SPECS):
        compiled = compile_spec({**random_spec(rng, family=family), "c": 0})
        for seed in range(SEEDS):
            env = load(compiled)(max_turns=8)
            seen, done = [env.reset(seed=seed)[0]], []
            ended = False
            while not ended:
                clue = compiled.hint if with_clue else ""
                done.append(PLAYERS[family](seen, done, clue, compiled.moves))
                observation, reward, terminated, truncated, _ = env.step(done[-1])
                seen.append(observation)
                ended = terminated or truncated
            returns.append(reward if terminated else 0.0)
    return sum(returns) / len(returns)


@pytest.mark.parametrize("family", PLAYERS)
def test_the_clue_is_worth_something(family):
    with_clue = mean_return(family, with_clue=True)
    without = mean_return(family, with_clue=False)
    assert with_clue > 0.9
    assert 0.05 < without < with_clue - 0.1
