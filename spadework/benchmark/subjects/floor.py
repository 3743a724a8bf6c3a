"""What the kernel takes: a supervisor in C, and as many processes that send frames back."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Collection

from spadework.benchmark.subjects.subject import Subject

# How long a burst of rounds lasts, so that asking for one does not count.
_BURST_S = 0.05


class Floor(Subject):
    """Runs the compiled `bench/pingpong.c`, named by the setting `binary`."""

    def open(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._rounds = 1
        self._p50: list[float] = []
        self._p99: list[float] = []

    @property
    def servers(self) -> Collection[int]:
        return () if self._process is None else (self._process.pid,)

    def start(self, episodes: int) -> None:
        self._process = subprocess.Popen(
            [
                self.case.settings["binary"],
                str(episodes),
                str(self.case.program.observation_bytes),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # A round wakes all of them once, so that they are there.
        self._burst(1)

    def step_all(self, *, timed: bool = False) -> int:
        steps, took_s, p50_s, p99_s = self._burst(self._rounds)
        if timed:
            self._p50.append(p50_s)
            self._p99.append(p99_s)
        self._rounds = max(1, round(self._rounds * _BURST_S / max(took_s, 1e-6)))
        return int(steps)

    def item_percentile_s(self, percent: float) -> float | None:
        values = {50.0: self._p50, 99.0: self._p99}[percent]
        return statistics.median(values) if values else None

    def end_all(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        self.end_all()

    def _burst(self, rounds: int) -> tuple[float, float, float, float]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(rounds, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the C ping-pong ended; its reason is above")
        steps, took_s, p50_s, p99_s = map(float, line.split())
        return steps, took_s, p50_s, p99_s
