"""Suites of environments that ship with the package, by name."""

from __future__ import annotations

from collections.abc import Callable

from trainer.protocols import Level, PoolItem

WORLDS = 4
LIBRARY_RUNTIME = "library"

# Of gymnasium 1.4.0: ids whose episodes a seed decides.
TOY_TEXT = (
    "Blackjack-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
)

_TOY_TEXT_SOURCE = """\
import gymnasium


def make_env():
    return gymnasium.make({name!r})
"""


def families() -> list[PoolItem]:
    """Structured worlds of every skill, each from easy to hard."""
    from designer.families import ladders

    return [
        PoolItem(
            name=ladder.name,
            origin="suite:families",
            levels=tuple(Level(rung.source) for rung in ladder.rungs),
            skill=ladder.skill,
            family=ladder.family,
        )
        for ladder in ladders(WORLDS)
    ]


def toy_text() -> list[PoolItem]:
    """Gymnasium's toy text, in the library runtime."""
    return [
        PoolItem(
            name=name,
            origin="suite:toy-text",
            levels=(Level(_TOY_TEXT_SOURCE.format(name=name)),),
            family="toy-text",
            runtime=LIBRARY_RUNTIME,
        )
        for name in TOY_TEXT
    ]


SUITES: dict[str, Callable[[], list[PoolItem]]] = {"families": families, "toy-text": toy_text}
