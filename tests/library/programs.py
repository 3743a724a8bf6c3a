"""Wrapper programs for the environments of the `library` runtime.

Each wrapper is what a user would write: a few lines around the library's own
environment, which runs unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path

# Every id that gymnasium 1.4.0 registers under gymnasium.envs.toy_text, with actions that
# are legal in any state.
TOY_TEXT_ACTIONS: dict[str, list[str]] = {
    "Blackjack-v1": ["1", "0"],
    "CliffWalking-v1": ["0", "1", "2", "3", "0"],
    "CliffWalkingSlippery-v1": ["0", "1", "2", "3", "0"],
    "FrozenLake-v1": ["0", "3", "0", "3", "0"],
    "FrozenLake8x8-v1": ["0", "3", "0", "3", "0"],
    "Taxi-v4": ["0", "1", "2", "3", "4", "5"],
}

# The way to each goal that no chance can spoil, for the worlds that have one.
TOY_TEXT_WINS: dict[str, list[str]] = {
    "CliffWalking-v1": ["0", *["1"] * 11, "2"],
}

MINIGRID_ACTIONS: dict[str, list[str]] = {
    "MiniGrid-Empty-5x5-v0": ["2", "2", "1", "2", "2"],
    "BabyAI-GoToRedBallGrey-v0": ["0", "1", "2", "2"],
}

# Lists what the runtime's libraries offer, so that a test can hold the lists here to it.
CATALOGUE = """\
import gymnasium
import reasoning_gym.factory


class CatalogueEnv:
    def reset(self, seed=None):
        toys = [
            name
            for name, spec in gymnasium.registry.items()
            if str(spec.entry_point).startswith("gymnasium.envs.toy_text")
        ]
        return "listed", {"toy_text": toys, "reasoning_gym": list(reasoning_gym.factory.DATASETS)}

    def step(self, action):
        return "", 0.0, True, False, {}
"""

_GYMNASIUM_SOURCE = """\
import gymnasium


def make_env():
    return gymnasium.make({name!r})
"""

_MINIGRID_SOURCE = """\
import gymnasium
import minigrid


def make_env():
    return gymnasium.make({name!r})
"""

_REASONING_GYM_SOURCE = """\
import reasoning_gym


class {class_name}Env:
    def reset(self, seed=None):
        self.data = reasoning_gym.create_dataset({name!r}, size=1, seed=seed)
        self.entry = self.data[0]
        return self.entry["question"], {{}}

    def step(self, action):
        score = float(self.data.score_answer(action, self.entry))
        return f"Score {{score:g}}.", score, score == 1.0, False, {{}}
"""

_REASONING_GYM_ORACLE = """\

    def solution(self):
        return [self.entry["answer"]]
"""

_survey = json.loads((Path(__file__).parent / "reasoning_gym.json").read_text("utf-8"))

# Data sets whose own answer scores 1.0, the same in every process and on every Python.
REASONING_GYM_REPRODUCIBLE: list[str] = _survey["reproducible"]
# Their own answer scores 1.0, but their questions change with PYTHONHASHSEED.
REASONING_GYM_HASH_DEPENDENT: list[str] = _survey["hash_dependent"]
# Many answers are right and the entry names none, so there is no oracle.
REASONING_GYM_WITHOUT_ANSWER: list[str] = _survey["without_answer"]
# Not played: name to reason.
REASONING_GYM_EXCLUDED: dict[str, str] = _survey["excluded"]


def gymnasium_program(name: str) -> str:
    """Source of a wrapper around one registered Gymnasium environment."""
    return _GYMNASIUM_SOURCE.format(name=name)


def minigrid_program(name: str) -> str:
    """Source of a wrapper around one MiniGrid or BabyAI level."""
    return _MINIGRID_SOURCE.format(name=name)


def reasoning_gym_program(name: str, *, oracle: bool = True) -> str:
    """Source of a wrapper around one reasoning-gym data set.

    A play draws one question; a wrong answer may be tried again, so that a play can have
    several steps. The reward is the data set's own score of the answer.
    """
    class_name = name.title().replace("_", "")
    source = _REASONING_GYM_SOURCE.format(name=name, class_name=class_name)
    return source + _REASONING_GYM_ORACLE if oracle else source
