"""Gymnasium's vector environments over the same class.

Observations are arrays of bytes of one size and actions numbers, which is what these
environments are fastest with.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

from spadework.benchmark.case import HANG_ACTION, BenchmarkProgram
from spadework.benchmark.subjects.subject import Subject

# How long a hanging episode is waited for.
HANG_TIMEOUT_S = 1.0


class ProgramEnv(gymnasium.Env[Any, Any]):
    """A program behind Gymnasium's interface."""

    def __init__(self, program: BenchmarkProgram) -> None:
        self._actions = (*program.actions, HANG_ACTION)
        self._size = program.observation_bytes
        self.observation_space = gymnasium.spaces.Box(0, 255, (self._size,), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        self._program = program.load()()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, _ = self._program.reset(seed=seed)
        return self._bytes(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self._program.step(self._actions[action])
        return self._bytes(observation), reward, terminated, truncated, {}

    def _bytes(self, text: str) -> Any:
        return np.frombuffer(text.encode()[: self._size].ljust(self._size), np.uint8)


class SyncVector(Subject):
    """All environments in the caller's process."""

    def open(self) -> None:
        self._vector: Any = None
        self._turn = 0

    def start(self, episodes: int) -> None:
        self._vector = self._make(self.case.program, episodes)
        self._vector.reset(seed=list(range(episodes)))
        # Actions of the turns to come, so that making them is no part of a step.
        legal = len(self.case.program.actions)
        numbers = np.arange(episodes)
        self._turns = [(numbers + turn) % legal for turn in range(legal)]

    def step_all(self, *, timed: bool = False) -> int:
        self._turn += 1
        actions = self._turns[self._turn % len(self._turns)]
        started = time.perf_counter()
        self._step(actions)
        if timed:
            self.note_batch(started, len(actions))
        return len(actions)

    def introduce(self, program: BenchmarkProgram) -> None:
        vector = self._make(program, 1)
        vector.reset(seed=0)
        vector.close()

    def end_all(self) -> None:
        if self._vector is not None:
            self._vector.close()
            self._vector = None

    def close(self) -> None:
        self.end_all()

    def _step(self, actions: Any) -> None:
        self._vector.step(actions)

    def _make(self, program: BenchmarkProgram, episodes: int) -> Any:
        return gymnasium.vector.SyncVectorEnv([lambda: ProgramEnv(program)] * episodes)


class AsyncVector(SyncVector):
    """A process of its own for each environment."""

    def _step(self, actions: Any) -> None:
        if not self.case.hung:
            self._vector.step(actions)
            return
        hanging = actions.copy()
        hanging[: self.case.hung] = len(self.case.program.actions)
        self._vector.step_async(hanging)
        # One that hangs is all that hang: the results of none can be had.
        self._vector.step_wait(timeout=HANG_TIMEOUT_S)

    def end_all(self) -> None:
        if self._vector is not None:
            self._vector.close(terminate=bool(self.case.hung))
            self._vector = None

    def _make(self, program: BenchmarkProgram, episodes: int) -> Any:
        return gymnasium.vector.AsyncVectorEnv(
            [lambda: ProgramEnv(program)] * episodes, shared_memory=True
        )
