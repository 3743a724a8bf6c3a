"""A window of difficulties that moves up as the agent masters its top."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass
class Window:
    """Difficulties `low` to `top` of one environment, of which each draw takes one evenly.

    Difficulties are numbered from 0, the easiest. The window grows to its width, then moves.

    Attributes:
        size: Difficulties that the environment has.
        width: Difficulties in the window, at most.
        top: The hardest in the window.
        tried: Plays at the top since the last verdict.
        won: Those of them that were won.

    Source: adaptive difficulty of RLVE, arXiv:2511.07317, whose verdict is over 8 prompts with
    several samples each; here every play has a seed of its own, and counts as a try.
    """

    size: int
    width: int
    top: int = 0
    tried: int = 0
    won: int = 0

    def __post_init__(self) -> None:
        self.top = min(self.top, self.size - 1)

    @property
    def low(self) -> int:
        """The easiest difficulty in the window."""
        return max(0, self.top - self.width + 1)

    def draw(self, rng: random.Random) -> int:
        """One of its difficulties."""
        return rng.randint(self.low, self.top)

    def take_in(
        self, difficulty: int, wins: Iterable[bool], *, tries: int, promote_at: float
    ) -> bool:
        """Count plays; those below the top say nothing about it.

        Args:
            difficulty: Of the plays.
            wins: By play that was not lost, whether it was won.
            tries: Plays at the top before the window may move.
            promote_at: Share of them that must be won.

        Returns:
            Whether the window moved up, by one.
        """
        if difficulty != self.top:
            return False
        for win in wins:
            self.tried += 1
            self.won += win
        if self.tried < tries:
            return False
        mastered = self.won >= promote_at * self.tried
        # Anew after each verdict: early failures say nothing about what is learned since.
        self.tried, self.won = 0, 0
        if not mastered or self.top == self.size - 1:
            return False
        self.top += 1
        return True

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"top": self.top, "tried": self.tried, "won": self.won}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.top, self.tried, self.won = state["top"], state["tried"], state["won"]
