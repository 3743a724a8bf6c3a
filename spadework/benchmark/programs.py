"""The programs of the benchmark: trivial, 1 ms of work, a generated game, a grid world."""

from __future__ import annotations

import time
from collections.abc import Callable

from designer.families import compile_spec
from spadework.benchmark.case import HANG_ACTION, BenchmarkProgram

OBSERVATION_BYTES = 64

_TRIVIAL = f"""
import time


class TrivialEnv:
    def reset(self, seed=None):
        return "x" * {OBSERVATION_BYTES}, {{}}

    def step(self, action):
        if action == "{HANG_ACTION}":
            time.sleep(1e6)
        return "x" * {OBSERVATION_BYTES}, 0.0, False, False, {{}}
"""

_WORK = f"""
class WorkEnv:
    def reset(self, seed=None):
        return "x" * {OBSERVATION_BYTES}, {{}}

    def step(self, action):
        for _ in range({{count}}):
            pass
        return "x" * {OBSERVATION_BYTES}, 0.0, False, False, {{{{}}}}
"""

_MINIGRID = """
import gymnasium
import minigrid


class MinigridEnv:
    def reset(self, seed=None):
        self.world = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
        seen, _ = self.world.reset(seed=seed)
        return self.text(seen), {}

    def step(self, action):
        seen, reward, terminated, truncated, _ = self.world.step(int(action))
        return self.text(seen), float(reward), bool(terminated), bool(truncated), {}

    def text(self, seen):
        cells = " ".join(map(str, seen["image"].ravel().tolist()))
        return f"{seen['mission']}; facing {seen['direction']}; {cells}"
"""

# Of the families, in the middle of its difficulty.
_GAME_SPEC = {"f": "grid", "n": 5, "w": 2, "q": 2, "g": 1, "s": 3, "c": 0}


def trivial() -> BenchmarkProgram:
    return BenchmarkProgram("trivial", _TRIVIAL, "TrivialEnv", ("a",), OBSERVATION_BYTES)


def sized(observation_bytes: int) -> BenchmarkProgram:
    """The trivial program with so long an observation."""
    source = _TRIVIAL.replace(f'"x" * {OBSERVATION_BYTES}', f'"x" * {observation_bytes}')
    return BenchmarkProgram(
        f"trivial, {observation_bytes} bytes", source, "TrivialEnv", ("a",), observation_bytes
    )


def work() -> BenchmarkProgram:
    """A loop that takes 1 ms of an idle core here: so many rounds, however long they take."""
    source = _WORK.replace("{{}}", "{}").replace("{count}", str(_loops_in(0.001)))
    return BenchmarkProgram("1 ms", source, "WorkEnv", ("a",), OBSERVATION_BYTES)


def game() -> BenchmarkProgram:
    compiled = compile_spec(_GAME_SPEC)
    return BenchmarkProgram("game", compiled.source, "GridEnv", tuple(compiled.moves), 256)


def grid_world() -> BenchmarkProgram:
    # Turns, steps and the key; never the way to the goal, so that it ends by its own limit.
    return BenchmarkProgram(
        "minigrid", _MINIGRID, "MinigridEnv", ("0", "2", "1", "2", "3"), 512, "library"
    )


PROGRAMS: dict[str, Callable[[], BenchmarkProgram]] = {
    "trivial": trivial,
    "1 ms": work,
    "game": game,
    "minigrid": grid_world,
}


def _loops_in(seconds: float) -> int:
    """Rounds of an empty loop in so much CPU time, the best of some tries."""
    count = 10_000
    best = min(_cpu_s(count) for _ in range(20))
    return round(count * seconds / best)


def _cpu_s(count: int) -> float:
    space: dict[str, object] = {}
    exec(f"def loop():\n    for _ in range({count}):\n        pass\n", space)
    loop = space["loop"]
    assert callable(loop)
    started = time.thread_time()
    loop()
    return time.thread_time() - started
