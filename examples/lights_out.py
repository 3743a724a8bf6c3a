"""A game: switch all lights off, where every switch also turns its neighbours.

    spadework validate examples/lights_out.py
    spadework play examples/lights_out.py --policy oracle
    spadework play examples/lights_out.py            # you play; Ctrl-D stops

A program is one file with one class whose name ends in Env. It runs in a process of its
own for each episode, so the global `random` would be safe too; a generator made from the
seed keeps the world the same wherever it is replayed.
"""

import random
import re

SIZE = 4


class LightsOutEnv:
    # max_turns is passed to a constructor that takes it. Beyond it the server truncates.
    def __init__(self, max_turns=12):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.lit = set()
        self.to_press = set()
        # Scrambling from the solved state keeps a solution known: press the same again.
        for cell in rng.sample(self._cells(), 4):
            self._press(cell)
        # What is in `info` is for people and tools; the player sees the text only.
        return (
            f"Lights on a {SIZE}x{SIZE} panel; # is on. Pressing a cell switches it and the "
            "cells above, below, left and right of it. Switch all off.\n"
            f"{self._picture()}\n"
            "Answer with \\boxed{row column}, both from 1.",
            {"lit": len(self.lit)},
        )

    def step(self, action):
        self.turn += 1
        cell = self._parse(action)
        # An action that makes no sense is the player's mistake: answer it, never raise.
        if cell is None:
            text = f"No such cell; say \\boxed{{row column}} from 1 to {SIZE}.\n{self._picture()}"
        else:
            self._press(cell)
            text = self._picture()
        won = not self.lit
        truncated = not won and self.turn >= self.max_turns
        return text, 1.0 if won else 0.0, won, truncated, {"lit": len(self.lit)}

    def solution(self):
        """The oracle: actions that win from here. The gates play it on every seed they try."""
        return [f"\\boxed{{{row + 1} {column + 1}}}" for row, column in sorted(self.to_press)]

    def verify(self):
        """Whether the task is done, judged from the state and not from the reward."""
        return not self.lit

    def _cells(self):
        return [(row, column) for row in range(SIZE) for column in range(SIZE)]

    def _press(self, cell):
        row, column = cell
        plus = {cell, (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)}
        self.lit ^= plus & set(self._cells())
        self.to_press ^= {cell}

    def _parse(self, action):
        found = re.search(r"\\boxed\{\s*([1-9])[\s,]+([1-9])\s*\}", action)
        cell = (int(found[1]) - 1, int(found[2]) - 1) if found else None
        return cell if cell in self._cells() else None

    def _picture(self):
        return "\n".join(
            " ".join("#" if (row, column) in self.lit else "." for column in range(SIZE))
            for row in range(SIZE)
        )
