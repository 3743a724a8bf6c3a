"""A Gymnasium environment with words around it, in the runtime `library`.

    spadework play examples/frozen_lake.py --runtime library --policy oracle
    spadework play examples/frozen_lake.py --runtime library

Any Gymnasium environment plays as it is, with these three lines:

    import gymnasium
    def make_env():
        return gymnasium.make("Taxi-v4")

The sandbox then reads the action out of the text ("2" for a Discrete space, JSON for
others) and shows the observation as text. A number is a poor thing to show to a language
model, so this file draws the lake, names the actions, and adds an oracle.
"""

import re
from collections import deque

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
SIZE = 6


class FrozenLakeTextEnv:
    def __init__(self, max_turns=20):
        self.max_turns = max_turns

    def reset(self, seed=None):
        # Another lake for every seed, and no slipping: an oracle needs certain steps.
        self.lake = generate_random_map(size=SIZE, p=0.7, seed=seed)
        self.env = gymnasium.make(
            "FrozenLake-v1", desc=self.lake, is_slippery=False, max_episode_steps=self.max_turns
        )
        self.at, _ = self.env.reset(seed=seed)
        return (
            "Cross the frozen lake from S to G; O are holes, @ is you.\n"
            f"{self._picture()}\n"
            "Answer with \\boxed{left}, \\boxed{down}, \\boxed{right} or \\boxed{up}.",
            {"actions": list(MOVES)},
        )

    def step(self, action):
        found = re.search(r"[a-z]+", action.lower().replace("boxed", ""))
        if found is None or found[0] not in MOVES:
            return "Say left, down, right or up.", 0.0, False, False, {"actions": list(MOVES)}
        number = list(MOVES).index(found[0])
        self.at, reward, terminated, truncated, _ = self.env.step(number)
        return self._picture(), float(reward), terminated, truncated, {"actions": list(MOVES)}

    def solution(self):
        """The shortest way from here, by breadth-first search."""
        ways, queue = {self.at: []}, deque([self.at])
        while queue:
            cell = queue.popleft()
            row, column = divmod(cell, SIZE)
            if self.lake[row][column] == "G":
                return [f"\\boxed{{{move}}}" for move in ways[cell]]
            for move, (down, right) in MOVES.items():
                r, c = row + down, column + right
                inside = 0 <= r < SIZE and 0 <= c < SIZE
                if inside and self.lake[r][c] != "H" and r * SIZE + c not in ways:
                    ways[r * SIZE + c] = [*ways[cell], move]
                    queue.append(r * SIZE + c)
        return []

    def verify(self):
        row, column = divmod(self.at, SIZE)
        return self.lake[row][column] == "G"

    def _picture(self):
        rows = [list(row.replace("F", ".").replace("H", "O")) for row in self.lake]
        row, column = divmod(self.at, SIZE)
        rows[row][column] = "@"
        return "\n".join(" ".join(row) for row in rows)
