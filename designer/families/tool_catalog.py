"""The families of structured tool use: tasks that tools solve, with one fact nobody tells.

As in `catalog`, a specification's parameters are small integers, some of them regularities that
hold on every seed. What is tried in vain is bounded by calls and not by turns, since one action
may hold many calls: else the hint would be worth nothing.
"""

from __future__ import annotations

import itertools

from designer.families.catalog import PUBLIC_CLUE, Family

TOOL_SKILLS: dict[str, str] = {
    "api": "API Orchestration",
    "retrieval": "Data Retrieval",
    "state": "State Modification",
    "recovery": "Error Recovery",
    "selection": "Tool Selection",
    "workflow": "Multi-Step Workflows",
}

_JOBS = ("pack", "seal", "weigh", "label")
_RECORDS = ("team", "desk", "badge", "locker")

_FAMILIES = (
    Family(
        name="chain",
        skill="api",
        about="ask k services in a row, with a token of the right one of n issuers, q, with s "
        "refusals to spare",
        parameters={"n": (3, 4, 5), "q": (0, 1, 2), "k": (1, 2, 3), "s": (0, 1)},
        harder={"n": 1, "k": 1, "s": -1},
        hint=lambda v: f"the services take the tokens of issuer {'abcde'[v['q']]}",
        moves=lambda v: "",
    ),
    Family(
        name="contact",
        skill="retrieval",
        about="find the extension of a contact d steps away; one of w records names it, t",
        parameters={"t": (0, 1, 2, 3), "d": (1, 2), "w": (3, 4)},
        harder={"d": 1, "w": 1},
        hint=lambda v: f"the contact is whom the {_RECORDS[v['t'] % v['w']]} record names",
        moves=lambda v: "",
    ),
    Family(
        name="stock",
        skill="state",
        about="move k goods to the cold one of n bays, q, with s carts to spare",
        parameters={"n": (4, 5, 6), "q": (0, 1, 2, 3), "k": (1,), "s": (0, 1, 2)},
        harder={"n": 1, "s": -1},
        hint=lambda v: f"the cold bay is {'abcdef'[v['q']]}",
        moves=lambda v: "",
    ),
    Family(
        name="link",
        skill="recovery",
        about="read k values over the one of n lines that works, q, with s refusals to spare",
        parameters={"n": (4, 5, 6), "q": (0, 1, 2, 3), "k": (2, 3, 4), "s": (0, 1, 2)},
        harder={"n": 1, "k": 1, "s": -1},
        hint=lambda v: f"line {'abcdef'[v['q']]} works",
        moves=lambda v: "",
    ),
    Family(
        name="quotes",
        skill="selection",
        about="convert k bills by the right one of n tools, q",
        parameters={"n": (3, 4, 5), "q": (0, 1, 2), "k": (2, 3, 4)},
        harder={"n": 1, "k": 1},
        hint=lambda v: f"our rate is that of bank {'abcde'[v['q']]}",
        moves=lambda v: "",
    ),
    Family(
        name="parcel",
        skill="workflow",
        about="do n jobs on a parcel in the hidden order t, with s mistakes to spare",
        parameters={"n": (3, 4), "t": (0, 1, 2, 3, 4, 5), "s": (0, 1, 2)},
        harder={"n": 1, "s": -1},
        hint=lambda v: (
            "the depot's order is "
            + ", ".join(list(itertools.permutations(_JOBS[: v["n"]]))[v["t"]])
        ),
        moves=lambda v: "",
    ),
)

TOOL_FAMILIES: dict[str, Family] = {}
for _family in _FAMILIES:
    _family.parameters[PUBLIC_CLUE] = (0, 1)
    TOOL_FAMILIES[_family.name] = _family
