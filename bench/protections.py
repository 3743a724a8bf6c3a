"""What each protection costs: steps and episode starts a second with one taken away at a time.

    python bench/protections.py --rounds 9

There is no switch for any of this in the server. Here a backend of the script's own starts
jails from an edited policy, and zygotes from an edited copy of the worker, in this process
alone; it runs one harmless program, and never a stranger's.

Measured at the engine, without gRPC, so that the part of the protections is not hidden behind
what a call costs. What counts is CPU time, of the engine and of all processes below it: it is
what a machine full of episodes runs out of, and other work on the machine changes it little.
Variants take turns within each round, and a variant is compared with its own round's run with
all protections; medians and quartiles of that are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import runtime
from sandbox_server.backends import BACKENDS
from sandbox_server.backends.nsjail import NsjailBackend
from sandbox_server.cache import worker_folder
from sandbox_server.config import ServerConfig
from sandbox_server.doctor.limits import raise_open_files
from sandbox_server.engine import Engine
from sandbox_server.runtime import Runtime

_PROGRAM = """
class TrivialEnv:
    def reset(self, seed=None):
        return "x" * 64, {}

    def step(self, action):
        return "x" * 64, 0.0, False, False, {}
"""

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


_ALL = Variant("nothing (all protections)")
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

        def _config(
            self, runtime: Runtime, hash_seed: int, control: socket.socket, group: str
        ) -> str:
            text = super()._config(runtime, hash_seed, control, group)
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
class Figures:
    """What one run of a variant took.

    Attributes:
        step_cpu_us: CPU time of a step: the engine's, the zygote's and the episode's.
        steps_per_s: By the clock; on a busy machine, little more than a hint.
        start_cpu_ms: CPU time of an episode's start, first observation and end.
        starts_per_s: By the clock.
    """

    step_cpu_us: float
    steps_per_s: float
    start_cpu_ms: float
    starts_per_s: float


async def _measure(backend: str, episodes: int, starts: int, rounds: int) -> Figures:
    """Start and end batches of episodes, then step the last batch."""
    config = ServerConfig(backend=backend, max_episodes=episodes + 16)
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        limits = pb.Limits(max_steps=100_000, cpu_time_s=3_600)
        request = pb.RegisterProgramRequest(source=_PROGRAM, limits=limits)
        program = await engine.register(request)
        assert program.outcome == pb.OUTCOME_COMPLETED, program
        await _start(engine, program.program_id, episodes, ends=True)
        with _Stopwatch() as starting:
            for _ in range(starts):
                await _start(engine, program.program_id, episodes, ends=True)
        ids = await _start(engine, program.program_id, episodes, ends=False)
        await _step(engine, ids, 0)
        with _Stopwatch() as stepping:
            for index in range(1, rounds + 1):
                await _step(engine, ids, index)
        return Figures(
            1e6 * stepping.cpu_s / (rounds * episodes),
            rounds * episodes / stepping.wall_s,
            1e3 * starting.cpu_s / (starts * episodes),
            starts * episodes / starting.wall_s,
        )
    finally:
        await engine.close()


class _Stopwatch:
    """Wall and CPU time of a block, the CPU time of all processes below this one included."""

    def __enter__(self) -> _Stopwatch:
        self.cpu_s = -_descendants_cpu_s() - time.process_time()
        self.wall_s = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time() + _descendants_cpu_s()


def _descendants_cpu_s() -> float:
    """CPU seconds of the processes below this one, those that ended and were waited for too."""
    parents, waited_for = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            waited_for[pid] = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in parents:
        above = parents[pid]
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            with contextlib.suppress(OSError):
                # Nanoseconds; those of `stat` are of the clock's ticks, too long for a step.
                running = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
                total += int(running) / 1e9 + waited_for[pid]
    return total


async def _start(engine: Engine, program_id: str, episodes: int, *, ends: bool) -> list[str]:
    item = pb.ResetItem(program_id=program_id)
    results = await asyncio.gather(*(engine.reset(i, item) for i in range(episodes)))
    ids = [result.episode_id for result in results]
    assert all(ids), next(r.error for r in results if not r.episode_id)
    if ends:
        engine.close_episodes(ids)
        while engine.jails.live:
            await asyncio.sleep(0.002)
    return ids


async def _step(engine: Engine, ids: list[str], index: int) -> None:
    left, done = len(ids), asyncio.get_running_loop().create_future()

    def put(result: pb.StepResult) -> None:
        nonlocal left
        assert result.outcome == pb.OUTCOME_COMPLETED, result
        left -= 1
        if left == 0:
            done.set_result(None)

    for position, episode_id in enumerate(ids):
        item = pb.StepItem(episode_id=episode_id, step_index=index, action="a")
        engine.step(position, item, put)
    await done


def measure(episodes: int, starts: int, steps: int, rounds: int) -> dict[str, list[Figures]]:
    """Figures of each variant, in turn in every round."""
    raise_open_files(episodes)
    figures = defaultdict(list)
    with backends() as names:
        for _ in range(rounds):
            for name, backend in names.items():
                figures[name].append(asyncio.run(_measure(backend, episodes, starts, steps)))
    return dict(figures)


def table(figures: dict[str, list[Figures]]) -> str:
    """A row a variant: medians, and the quartiles of what CPU time it spares in each round."""
    lines = [
        "| taken away | CPU us/step | spares | CPU ms/start | spares | steps/s | starts/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, runs in figures.items():
        cells = []
        for what in ("step_cpu_us", "start_cpu_ms"):
            taken = [getattr(run, what) for run in runs]
            whole = [getattr(run, what) for run in figures[_ALL.name]]
            spared = [100 - 100 * some / all_ for some, all_ in zip(taken, whole, strict=True)]
            low, middle, high = _quartiles(spared)
            cells.append(f"{statistics.median(taken):.1f}")
            cells.append("" if name == _ALL.name else f"{middle:.0f}% ({low:.0f} to {high:.0f})")
        cells.append(f"{statistics.median(run.steps_per_s for run in runs):,.0f}")
        cells.append(f"{statistics.median(run.starts_per_s for run in runs):,.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=64, help="at once; default %(default)s")
    parser.add_argument("--starts", type=int, default=2, help="times all; default %(default)s")
    parser.add_argument("--steps", type=int, default=60, help="of each; default %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print every figure")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    figures = measure(arguments.episodes, arguments.starts, arguments.steps, arguments.rounds)
    if arguments.json:
        found = {name: [asdict(run) for run in runs] for name, runs in figures.items()}
        print(json.dumps(found))
        return
    print(table(figures))
    print(
        f"\n{arguments.episodes} episodes, {arguments.rounds} rounds in turn; load average "
        f"{before:.2f} before, {os.getloadavg()[0]:.2f} after."
    )


if __name__ == "__main__":
    main()
