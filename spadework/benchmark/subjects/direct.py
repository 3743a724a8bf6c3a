"""Ours on the direct path: the engine in the caller's process, a locked-down one an episode."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from sandbox_api import Outcome, ResetItem, StepItem
from sandbox_api.types import Program, StepResult

from sandbox_server import DirectSandbox
from spadework.benchmark.case import BenchmarkProgram
from spadework.benchmark.subjects.sandbox import LIMITS, SPARE_EPISODES
from spadework.benchmark.subjects.subject import Subject


class Direct(Subject):
    """All episodes of a batch in one call; the backend is the setting `backend`."""

    def open(self) -> None:
        runtime = self.case.program.runtime
        self._sandbox = DirectSandbox(
            backend=self.case.settings.get("backend", "nsjail"),
            runtimes=["stdlib", runtime] if runtime else ["stdlib"],
            max_episodes=self.case.episodes + SPARE_EPISODES,
        )
        self._program = self._registered(self.case.program)
        self._ids: list[str] = []
        self._turns: list[int] = []

    def start(self, episodes: int) -> None:
        self._ids = self._reset(self._program, range(episodes))
        self._turns = [0] * episodes

    def step_all(self, *, timed: bool = False) -> int:
        items = [
            StepItem(episode_id, turn, self.action(number, turn))
            for number, (episode_id, turn) in enumerate(zip(self._ids, self._turns, strict=True))
        ]
        if timed:
            place = {episode_id: number for number, episode_id in enumerate(self._ids)}
            results: list[StepResult] = []
            started = time.perf_counter()
            for result in self._sandbox.step_stream(items):
                self.item_s.append(time.perf_counter() - started)
                results.append(result)
            self._take([place[result.episode_id] for result in results], results)
        else:
            self._take(range(len(items)), self._sandbox.step(items))
        return len(items)

    def introduce(self, program: BenchmarkProgram) -> None:
        self._sandbox.close_episodes(self._reset(self._registered(program), [0]))

    def end_all(self) -> None:
        self._sandbox.close_episodes(self._ids)

    def close(self) -> None:
        self._sandbox.close()

    def _registered(self, program: BenchmarkProgram) -> Program:
        registered = self._sandbox.register_program(
            program.source, entry=program.entry, runtime=program.runtime, limits=LIMITS
        )
        if registered.outcome is not Outcome.COMPLETED:
            raise RuntimeError(f"program {program.name} does not load: {registered.diagnostic}")
        return registered

    def _reset(self, program: Program, seeds: Collection[int]) -> list[str]:
        episodes = self._sandbox.reset(
            [ResetItem(program.program_id, seed=seed) for seed in seeds]
        )
        for episode in episodes:
            if not episode.ok:
                raise RuntimeError(
                    f"an episode did not start: {episode.error or episode.diagnostic}"
                )
        return [episode.episode_id for episode in episodes]

    def _take(self, numbers: Sequence[int], results: Sequence[StepResult]) -> None:
        """Check results, and begin those episodes anew that ended."""
        ended = []
        for number, result in zip(numbers, results, strict=True):
            if not result.ok:
                raise RuntimeError(f"a step failed: {result.error or result.diagnostic}")
            self._turns[number] += 1
            if result.terminated or result.truncated:
                ended.append(number)
        if ended:
            self._sandbox.close_episodes([self._ids[number] for number in ended])
            for number, episode_id in zip(ended, self._reset(self._program, ended), strict=True):
                self._ids[number] = episode_id
                self._turns[number] = 0
