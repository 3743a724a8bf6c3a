"""The families of the structured designer: skill, parameters, hint and legal moves of each.

A family is a program in `designer.families.programs` plus an entry here. Parameters are small
integers, because the designing model may be tiny and writes the specification one character
at a time. Some parameters are *regularities*: facts of the world that hold on every seed and
that the first observation does not tell (where the goal lies, what a button does, which rule
decides). They are what a hint reveals, so that a hint is worth something and still is not the
answer to any one seed. The parameter `c` makes the clue public: the environment then ends its
first observation with the hint itself, in the form a hinted play would show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

SKILLS: dict[str, str] = {
    "math": "Mathematical Reasoning",
    "logic": "Logical Deduction",
    "spatial": "Spatial Reasoning",
    "pattern": "Pattern Recognition",
    "optim": "Optimization",
    "causal": "Causal Inference",
}

PUBLIC_CLUE = "c"

Values = Mapping[str, int]


@dataclass(frozen=True)
class Family:
    """One parametric environment.

    Attributes:
        name: Key in specifications and name of the program module.
        skill: Key of `SKILLS`.
        about: One line for a designer's prompt.
        parameters: Allowed values by parameter, in the order of the specification; `c`
            included.
        harder: +1 where a larger value makes the environment harder, -1 where easier;
            parameters that are not named do not move the difficulty.
        hint: The text of the hint for given values; valid on every seed.
        moves: The legal actions for given values, one character each.
    """

    name: str
    skill: str
    about: str
    parameters: dict[str, tuple[int, ...]]
    harder: dict[str, int]
    hint: Callable[[Values], str]
    moves: Callable[[Values], str]

    def level(self, values: Values) -> float:
        """Place the values between easiest (0.0) and hardest (1.0) of this family."""
        places = []
        for name, sign in self.harder.items():
            allowed = self.parameters[name]
            place = allowed.index(values[name]) / max(1, len(allowed) - 1)
            places.append(place if sign > 0 else 1.0 - place)
        return sum(places) / len(places)


def _span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def _search_hint(values: Values) -> str:
    size = values["n"]
    half = (size + 1) // 2
    return [f"only 0-{half - 1}", f"only {half}-{size - 1}", "only even", "only odd"][values["z"]]


def _recall_hint(values: Values) -> str:
    letters = "abcde"[: values["a"]]
    changed = [letters, letters[1:] + letters[0], letters[::-1]]
    if values["t"] == 3:
        return "last item first"
    return " ".join(f"{a}>{b}" for a, b in zip(letters, changed[values["t"]], strict=True))


def _switch_hint(values: Values) -> str:
    size = values["n"]
    lamps = [(index + values["d"]) % size for index in range(size)]
    if values["x"]:
        lamps = [size - 1 - lamp for lamp in lamps]
    return " ".join(f"{'abcdef'[index]}{lamp + 1}" for index, lamp in enumerate(lamps))


_RING_FLIPS = ((0, 1), (-1, 0, 1), (0, 1, 3), (1, 2))


def _ring_hint(values: Values) -> str:
    size = values["n"]
    words = []
    for index in range(size):
        lamps = sorted((index + offset) % size + 1 for offset in _RING_FLIPS[values["t"]])
        words.append("abcdefgh"[index] + "".join(map(str, lamps)))
    return " ".join(words)


_FAMILIES = (
    Family(
        name="grid",
        skill="spatial",
        about="walk an n by n grid with w walls to a goal in direction q, shown by g",
        parameters={
            "n": _span(3, 6),
            "w": _span(0, 3),
            "q": _span(0, 3),
            "g": _span(0, 2),
            "s": _span(0, 3),
        },
        harder={"n": 1, "w": 1, "g": -1, "s": -1},
        hint=lambda v: "goal " + ("NE", "NW", "SE", "SW")[v["q"]],
        moves=lambda v: "NSEW",
    ),
    Family(
        name="keys",
        skill="spatial",
        about="walk a line of n cells to key and door, on fixed sides q and t, shown by g",
        parameters={
            "n": _span(5, 8),
            "q": (0, 1),
            "t": (0, 1),
            "g": _span(0, 2),
            "s": _span(0, 3),
        },
        harder={"n": 1, "g": -1, "s": -1},
        hint=lambda v: f"key {'LR'[v['q']]} door {'LR'[v['q'] if v['t'] else 1 - v['q']]} of key",
        moves=lambda v: "LRTO",
    ),
    Family(
        name="search",
        skill="math",
        about="find r numbers below n from more and less; all lie in the zone z",
        parameters={"n": _span(4, 9), "r": (3, 4), "z": _span(0, 3), "s": _span(0, 2)},
        harder={"n": 1, "r": 1, "s": -1},
        hint=_search_hint,
        moves=lambda v: "0123456789"[: v["n"]],
    ),
    Family(
        name="path",
        skill="math",
        about="reach a number in k moves with the unnamed operations +a, *b, -d",
        parameters={
            "a": _span(1, 4),
            "b": (2, 3),
            "d": _span(1, 4),
            "k": _span(3, 6),
            "s": _span(0, 2),
        },
        harder={"k": 1, "s": -1},
        hint=lambda v: f"a+{v['a']} b*{v['b']} c-{v['d']}",
        moves=lambda v: "abc",
    ),
    Family(
        name="rule",
        skill="logic",
        about="say of m digits whether they obey the hidden rule t, after h examples",
        parameters={"m": _span(5, 8), "t": _span(0, 5), "h": _span(0, 3)},
        harder={"m": 1, "h": -1},
        hint=lambda v: "y " + ("02468", "13579", "56789", "01234", "0369", "3456")[v["t"]],
        moves=lambda v: "yn",
    ),
    Family(
        name="code",
        skill="logic",
        about="open a lock of l letters out of k; order o, letter u is never in it",
        parameters={
            "l": (3, 4),
            "k": (5, 6),
            "o": _span(0, 2),
            "u": _span(0, 3),
            "s": _span(1, 4),
        },
        harder={"l": 1, "k": 1, "s": -1},
        hint=lambda v: f"{('any order', 'rising', 'falling')[v['o']]} no {'abcd'[v['u']]}",
        moves=lambda v: "abcdef"[: v["k"]],
    ),
    Family(
        name="recall",
        skill="pattern",
        about="say back l letters out of a, changed by the rule t",
        parameters={"l": _span(3, 7), "a": _span(3, 5), "t": _span(0, 3), "v": (0, 1)},
        harder={"l": 1, "a": 1, "v": -1},
        hint=_recall_hint,
        moves=lambda v: "abcde"[: v["a"]],
    ),
    Family(
        name="series",
        skill="pattern",
        about="continue a letter series m times; steps d and d+u on a ring of k letters",
        parameters={
            "k": _span(4, 8),
            "d": _span(1, 3),
            "u": _span(0, 2),
            "h": _span(1, 3),
            "m": _span(3, 6),
        },
        harder={"k": 1, "u": 1, "h": -1, "m": 1},
        hint=lambda v: f"step {v['d']}" + (f" {v['d'] + v['u']}" if v["u"] else ""),
        moves=lambda v: "abcdefgh"[: v["k"]],
    ),
    Family(
        name="sort",
        skill="optim",
        about="sort n letters by k swaps of neighbours into the unnamed order o",
        parameters={"n": _span(4, 6), "o": _span(0, 3), "k": _span(3, 6), "s": _span(0, 2)},
        harder={"n": 1, "k": 1, "s": -1},
        hint=lambda v: "want " + _wanted_order(v["n"], v["o"]),
        moves=lambda v: "12345"[: v["n"] - 1],
    ),
    Family(
        name="trade",
        skill="optim",
        about="buy and sell for m turns on the repeating price wave w",
        parameters={"w": _span(0, 4), "m": _span(5, 8), "b": _span(1, 4), "s": (0, 1)},
        harder={"m": 1, "s": -1},
        hint=lambda v: "wave " + ("03", "0242", "014", "3051", "0412")[v["w"]],
        moves=lambda v: "BSW",
    ),
    Family(
        name="switch",
        skill="causal",
        about="light n lamps with k dark; the wiring is turned by d, mirrored by x",
        parameters={
            "n": _span(4, 6),
            "d": _span(0, 3),
            "x": (0, 1),
            "k": (3, 4),
            "s": _span(0, 3),
        },
        harder={"n": 1, "k": 1, "s": -1},
        hint=_switch_hint,
        moves=lambda v: "abcdef"[: v["n"]],
    ),
    Family(
        name="ring",
        skill="causal",
        about="light a ring of n lamps; each button flips the set t; k presses needed",
        parameters={"n": _span(6, 8), "t": _span(0, 3), "k": _span(3, 4), "s": _span(0, 3)},
        harder={"n": 1, "k": 1, "s": -1},
        hint=_ring_hint,
        moves=lambda v: "abcdefgh"[: v["n"]],
    ),
)


def _wanted_order(size: int, order: int) -> str:
    ranks = (
        lambda v: v,
        lambda v: -v,
        lambda v: (v % 2, v),
        lambda v: (-(v % 2), v),
    )
    items = sorted(range(1, size + 1), key=ranks[order])
    return "".join("abcdef"[item - 1] for item in items)


FAMILIES: dict[str, Family] = {}
for _family in _FAMILIES:
    _family.parameters[PUBLIC_CLUE] = (0, 1)
    FAMILIES[_family.name] = _family
