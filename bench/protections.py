"""What each protection costs: steps and episode starts a second with one taken away at a time.

    python bench/protections.py --turns 150

There is no switch for any of this in the server. Here a backend of the script's own starts
jails from an edited policy, and zygotes from an edited copy of the worker, in this process
alone; it runs one harmless program, and never a stranger's.

Measured at the engine, without gRPC, so that the part of the protections is not hidden behind
what a call costs. A variant runs beside a server with all protections, in the same process, and
the two take turns every few hundred steps: other work on the machine meets both alike. Shown
is the median of the ratios of neighbouring turns, with its 95% interval (bootstrap); the first
row compares a server with all protections to itself, and shows what is noise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import runtime
from sandbox_server.backends import BACKENDS
from sandbox_server.backends.nsjail import NsjailBackend
from sandbox_server.cache import worker_folder
from sandbox_server.config import ServerConfig
from sandbox_server.doctor.limits import raise_open_files
from sandbox_server.engine import Engine

_PROGRAM = """
class TrivialEnv:
    def reset(self, seed=None):
        return "x" * 64, {}

    def step(self, action):
        return "x" * 64, 0.0, False, False, {}
"""

# Of all episodes; and of episodes beside them.
_STEPS_A_TURN, _STARTS_A_TURN = 5, 8

_ZYGOTE = """
import os, sys
from worker import lockdown, seccomp, zygote
{patch}
zygote.main(sys.argv[1:])
"""

_OWN_ID = """
whole = lockdown.lock_down
def lock_down(*arguments, user, **settings):
    whole(*arguments, user=os.getuid(), **settings)
lockdown.lock_down = lock_down
"""

_DROPPING = """
def drop_privileges(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    lockdown.check(lockdown.libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
lockdown.drop_privileges = drop_privileges
"""


@dataclass(frozen=True)
class Variant:
    """A jail that lacks something.

    Attributes:
        name: What it lacks.
        worker: Python that takes it from the worker.
        policy: Starts of the lines to leave out of the jail's policy.
        extra: Lines to add to it.
    """

    name: str
    worker: str = ""
    policy: tuple[str, ...] = ()
    extra: str = ""


_ALL = Variant("nothing")
_NONE = "all of them (backend process)"
VARIANTS = (
    _ALL,
    Variant("the episode's system call filter", "seccomp.install = lambda *_: None"),
    Variant("an id of each episode's own", _OWN_ID),
    Variant("the private /tmp and mount namespace", "lockdown.private_scratch = lambda *_: None"),
    Variant("rlimits", "lockdown.limit_resources = lambda *_, **__: None"),
    Variant("capset, dumpable, death signal", _DROPPING),
    Variant("the jail's system call filter", policy=("seccomp_string",)),
    Variant("cgroups", policy=("cgroup_",)),
    Variant(
        "net, ipc, uts and cgroup namespaces",
        policy=("clone_newnet", "clone_newipc", "clone_newuts", "clone_newcgroup", "hostname"),
        extra="clone_newnet: false clone_newipc: false clone_newuts: false clone_newcgroup: false",
    ),
)


def _backend(variant: Variant, folder: Path) -> type[NsjailBackend]:
    """A backend whose jails lack it; `folder` holds its worker."""

    class Weakened(NsjailBackend):
        name = variant.name
        # No probe: it would find what is missing, and refuse to start.
        isolates = False

        def _config(self, *arguments: Any) -> str:
            text = super()._config(*arguments)
            text = text.replace(str(worker_folder()), str(folder))
            text = text.replace('arg: "worker.zygote"', 'arg: "without"')
            kept = [line for line in text.splitlines() if not line.startswith(variant.policy)]
            return "\n".join([*kept, variant.extra] if variant.policy else text.splitlines())

    return Weakened


def _worker(variant: Variant, folder: Path) -> Path:
    """The worker's folder with a zygote that lacks something."""
    shutil.copytree(worker_folder(), folder)
    folder.chmod(0o755)
    (folder / "without.py").write_text(_ZYGOTE.format(patch=variant.worker))
    (folder / "without.py").chmod(0o644)
    return folder


@contextlib.contextmanager
def backends() -> Iterator[dict[str, str]]:
    """What is measured, with the backend of each; they are there for the time of the block."""
    # Below the cache, where jails' ids can enter it, and a server removes what is left behind.
    with tempfile.TemporaryDirectory(
        dir=worker_folder().parent, prefix=".worker-bench-"
    ) as scratch:
        Path(scratch).chmod(0o755)
        for number, variant in enumerate(VARIANTS):
            folder = _worker(variant, Path(scratch) / str(number))
            BACKENDS[variant.name] = _backend(variant, folder)
        try:
            yield {v.name: v.name for v in VARIANTS} | {_NONE: "process"}
        finally:
            for variant in VARIANTS:
                del BACKENDS[variant.name]


@dataclass(frozen=True)
class Comparison:
    """Turns of a server with all protections, and of one that lacks something.

    Attributes:
        steps: Steps a second of both, a pair a turn.
        starts: Episodes started and ended a second, the same.
    """

    steps: list[tuple[float, float]]
    starts: list[tuple[float, float]]


class _Subject:
    """One server that is measured: an engine, and the episodes that it steps."""

    def __init__(self, backend: str, episodes: int) -> None:
        config = ServerConfig(backend=backend, max_episodes=2 * episodes + 16)
        self.engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
        self._episodes = episodes
        self._steps_taken = 0

    async def begin(self) -> None:
        await self.engine.start()
        limits = pb.Limits(max_steps=100_000, cpu_time_s=3_600)
        request = pb.RegisterProgramRequest(source=_PROGRAM, limits=limits)
        program = await self.engine.register(request)
        assert program.outcome == pb.OUTCOME_COMPLETED, program
        self._program_id = program.program_id
        self._ids = await _start(self.engine, self._program_id, self._episodes)
        await self.steps_per_s(1)

    async def steps_per_s(self, times: int) -> float:
        """Step all episodes some times."""
        begun = time.perf_counter()
        for _ in range(times):
            await _step(self.engine, self._ids, self._steps_taken)
            self._steps_taken += 1
        return times * self._episodes / (time.perf_counter() - begun)

    async def starts_per_s(self, count: int) -> float:
        """Start some episodes beside them, and end them."""
        begun = time.perf_counter()
        self.engine.close_episodes(await _start(self.engine, self._program_id, count))
        while self.engine.jails.live > self._episodes:
            await asyncio.sleep(0.0005)
        return count / (time.perf_counter() - begun)


async def _compare(backend: str, episodes: int, turns: int) -> Comparison:
    whole, weakened = _Subject(_ALL.name, episodes), _Subject(backend, episodes)
    try:
        await whole.begin()
        await weakened.begin()
        found = Comparison([], [])
        for turn in range(turns):
            # Who goes first changes: a trend favours neither.
            order = (whole, weakened) if turn % 2 else (weakened, whole)
            steps = {subject: await subject.steps_per_s(_STEPS_A_TURN) for subject in order}
            starts = {subject: await subject.starts_per_s(_STARTS_A_TURN) for subject in order}
            found.steps.append((steps[whole], steps[weakened]))
            found.starts.append((starts[whole], starts[weakened]))
        return found
    finally:
        await whole.engine.close()
        await weakened.engine.close()


async def _start(engine: Engine, program_id: str, count: int) -> list[str]:
    item = pb.ResetItem(program_id=program_id)
    results = await asyncio.gather(*(engine.reset(i, item) for i in range(count)))
    ids = [result.episode_id for result in results]
    assert all(ids), next(r.error for r in results if not r.episode_id)
    return ids


class _Results:
    """Where the results of steps go, all of which must be completed."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, result: pb.StepResult) -> None:
        self.put_all([result], 0)

    def put_all(self, results: list[pb.StepResult], size: int) -> None:
        assert all(result.outcome == pb.OUTCOME_COMPLETED for result in results), results
        self._left -= len(results)
        if self._left == 0:
            self.all.set_result(None)


async def _step(engine: Engine, ids: list[str], index: int) -> None:
    results = _Results(len(ids))
    items = [pb.StepItem(episode_id=i, step_index=index, action="a") for i in ids]
    engine.steps(items, 0, results)
    await results.all


def measure(episodes: int, turns: int) -> dict[str, Comparison]:
    """Compare each variant with the whole."""
    raise_open_files(4 * episodes)
    with backends() as names:
        return {
            name: asyncio.run(_compare(backend, episodes, turns))
            for name, backend in names.items()
        }


def table(found: dict[str, Comparison]) -> str:
    """A row a variant."""
    lines = [
        "| taken away | steps/s, whole | without | times (95%) | starts/s, whole | without "
        "| times (95%) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, comparison in found.items():
        cells = []
        for pairs in (comparison.steps, comparison.starts):
            ratios = [weakened / whole for whole, weakened in pairs]
            low, high = _interval(ratios)
            cells.append(f"{statistics.median(whole for whole, _ in pairs):,.0f}")
            cells.append(f"{statistics.median(weakened for _, weakened in pairs):,.0f}")
            cells.append(f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _interval(values: list[float], draws: int = 2_000) -> tuple[float, float]:
    """95% interval of the median."""
    chance = random.Random(0)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(draws)
    )
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=64, help="of each; default %(default)s")
    parser.add_argument("--turns", type=int, default=60, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print every figure")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    found = measure(arguments.episodes, arguments.turns)
    if arguments.json:
        print(json.dumps({name: asdict(comparison) for name, comparison in found.items()}))
        return
    print(table(found))
    print(
        f"\n{arguments.episodes} episodes of each, {arguments.turns} turns of {_STEPS_A_TURN} "
        f"steps of all and {_STARTS_A_TURN} starts; load average {before:.2f} before, "
        f"{os.getloadavg()[0]:.2f} after."
    )


if __name__ == "__main__":
    main()
