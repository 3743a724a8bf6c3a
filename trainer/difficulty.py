"""A window of difficulties that moves up as the agent masters its top."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass
class Window:
    """Difficulties `low` to `top` of one environment, of which each draw takes one evenly.

    Difficulties are numbered from 0, the easiest.

    Attributes:
        size: Difficulties that the environment has.
        width: Difficulties in the window, at most.
        low: The easiest in the window.
        tried: Plays at the top since the window last moved.
        won: Those of them that were won.

    Source: adaptive difficulty of RLVE, arXiv:2511.07317.
    """

    size: int
    width: int
    low: int = 0
    tried: int = 0
    won: int = 0

    @property
    def top(self) -> int:
        """The hardest difficulty in the window."""
        return min(self.low + self.width, self.size) - 1

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
        self.low += 1
        return True

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"low": self.low, "tried": self.tried, "won": self.won}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.low, self.tried, self.won = state["low"], state["tried"], state["won"]
