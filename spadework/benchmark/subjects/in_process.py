"""The class executed in the caller's own process: no isolation, and nothing else to pay for."""

from __future__ import annotations

import time
from typing import Any

from spadework.benchmark.case import BenchmarkProgram
from spadework.benchmark.subjects.subject import Subject


class InProcess(Subject):
    """One instance an episode, one after the other."""

    def open(self) -> None:
        self._kind = self.case.program.load()
        self._episodes: list[Any] = []
        self._turn = 0

    def start(self, episodes: int) -> None:
        self._episodes = [self._kind() for _ in range(episodes)]
        for seed, episode in enumerate(self._episodes):
            episode.reset(seed=seed)

    def step_all(self, *, timed: bool = False) -> int:
        self._turn += 1
        started = time.perf_counter()
        for number, episode in enumerate(self._episodes):
            _, _, terminated, truncated, _ = episode.step(self.action(number, self._turn))
            if timed:
                self.item_s.append(time.perf_counter() - started)
            if terminated or truncated:
                episode.reset(seed=number)
        return len(self._episodes)

    def introduce(self, program: BenchmarkProgram) -> None:
        program.load()().reset(seed=0)

    def end_all(self) -> None:
        self._episodes.clear()
