"""A fresh nsjail with a fresh Python for each step, as servers that run snippets have it.

Such a server keeps no state: a step makes the environment, resets it and acts once. Namespaces,
resource limits and a read-only root as ours, but neither cgroups nor a system call filter.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from sandbox_server import runtime
from sandbox_server.backends.nsjail import find_nsjail
from spadework.benchmark.case import BenchmarkProgram
from spadework.benchmark.subjects.subject import Subject

# Waiting for it is all that a thread here does; more jails at once than CPUs gain nothing.
_AT_ONCE_PER_CPU = 1

_SNIPPET = """
import json, sys
asked = json.load(sys.stdin)
space = {"__name__": "program"}
exec(asked["source"], space)
episode = space[asked["entry"]]()
observation = episode.reset(seed=asked["seed"])[0]
if asked["action"]:
    observation = episode.step(asked["action"])[0]
print(json.dumps({"observation": observation}))
"""


class FreshJail(Subject):
    """As many at once as there are CPUs."""

    def open(self) -> None:
        built = runtime.ensure(self.case.program.runtime or "stdlib")
        self._command = [
            *(find_nsjail(), "--mode", "o", "--really_quiet", "--chroot", str(built.root)),
            *("--user", "65534", "--group", "65534", "--hostname", "jail"),
            *("--disable_proc", "--iface_no_lo", "--tmpfsmount", "/tmp", "--time_limit", "20"),
            *("--rlimit_as", "512", "--rlimit_fsize", "16", "--rlimit_nofile", "32"),
            *("--nice_level", "0", "--env", f"LD_LIBRARY_PATH={runtime.LIBRARY_PATH}"),
            *("--", runtime.PYTHON, "-I", "-c", _SNIPPET),
        ]
        self._pool = ThreadPoolExecutor(_AT_ONCE_PER_CPU * (os.cpu_count() or 1))
        self._episodes = 0
        self._turn = 0

    def start(self, episodes: int) -> None:
        self._episodes = episodes
        list(self._pool.map(self._run, range(episodes)))

    def step_all(self, *, timed: bool = False) -> int:
        self._turn += 1
        started = time.perf_counter()

        def step(number: int) -> None:
            self._run(number, self.action(number, self._turn))
            if timed:
                self.item_s.append(time.perf_counter() - started)

        list(self._pool.map(step, range(self._episodes)))
        return self._episodes

    def introduce(self, program: BenchmarkProgram) -> None:
        self._run(0, program=program)

    def close(self) -> None:
        self._pool.shutdown()

    def _run(self, seed: int, action: str = "", program: BenchmarkProgram | None = None) -> None:
        program = program or self.case.program
        asked = {"source": program.source, "entry": program.entry, "seed": seed, "action": action}
        done = subprocess.run(
            self._command, input=json.dumps(asked), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"a fresh jail failed ({done.returncode}): {done.stderr[-500:]}")
        json.loads(done.stdout)
