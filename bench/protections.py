"""What each protection costs: steps and episode starts a second with one taken away at a time.

    python bench/protections.py --rounds 9

There is no switch for any of this in the server. Here a backend of the script's own starts
jails from an edited policy, and zygotes from an edited copy of the worker, in this process
alone; it runs one harmless program, and never a stranger's.

Measured at the engine, without gRPC, so that the part of the protections is not hidden behind
what a call costs. Variants take turns within each round; a ratio is to the round's own run
with all protections, and its median over the rounds is shown.
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
from dataclasses import dataclass
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
    # Below the cache: jails' ids can enter it.
    with tempfile.TemporaryDirectory(dir=worker_folder().parent, prefix=".bench-") as scratch:
        Path(scratch).chmod(0o755)
        for number, variant in enumerate(VARIANTS):
            folder = _worker(variant, Path(scratch) / str(number))
            BACKENDS[variant.name] = _backend(variant, folder)
        try:
            yield {v.name: v.name for v in VARIANTS} | {_NONE: "process"}
        finally:
            for variant in VARIANTS:
                del BACKENDS[variant.name]


async def _measure(backend: str, episodes: int, seconds: float) -> tuple[float, float]:
    """Steps a second, and episodes started and ended a second, of one backend."""
    config = ServerConfig(backend=backend, max_episodes=episodes + 16)
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        limits = pb.Limits(max_steps=100_000, cpu_time_s=3_600)
        request = pb.RegisterProgramRequest(source=_PROGRAM, limits=limits)
        program = await engine.register(request)
        assert program.outcome == pb.OUTCOME_COMPLETED, program
        ids: list[str] = []
        started, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds or not ids:
            engine.close_episodes(ids)
            while engine.jails.live:
                # Their ends are part of what an episode costs.
                await asyncio.sleep(0.001)
            item = pb.ResetItem(program_id=program.program_id)
            results = await asyncio.gather(*(engine.reset(i, item) for i in range(episodes)))
            ids = [result.episode_id for result in results]
            assert all(ids), next(r.error for r in results if not r.episode_id)
            started += len(ids)
        starts_per_s = started / (time.perf_counter() - begun)
        await _step(engine, ids, 0)
        rounds, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            rounds += 1
            await _step(engine, ids, rounds)
        return rounds * episodes / (time.perf_counter() - begun), starts_per_s
    finally:
        await engine.close()


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


def measure(episodes: int, seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Steps and starts a second of each variant, a pair a round, in turn."""
    raise_open_files(episodes)
    figures = defaultdict(list)
    with backends() as names:
        for _ in range(rounds):
            for name, backend in names.items():
                figures[name].append(asyncio.run(_measure(backend, episodes, seconds)))
    return dict(figures)


def table(figures: dict[str, list[tuple[float, float]]]) -> str:
    """A row a variant: medians, and the median of its ratios to the round's baseline."""
    lines = [
        "| taken away | steps/s | times all | range | starts/s | times all | range |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, pairs in figures.items():
        cells = []
        for which in (0, 1):
            values = [pair[which] for pair in pairs]
            ratios = [
                pair[which] / whole[which]
                for pair, whole in zip(pairs, figures[_ALL.name], strict=True)
            ]
            cells += [
                f"{statistics.median(values):,.0f}",
                f"{statistics.median(ratios):.3f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=64, help="at once; default %(default)s")
    parser.add_argument("--seconds", type=float, default=1.0, help="each; default %(default)g")
    parser.add_argument("--rounds", type=int, default=9, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print every figure")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    figures = measure(arguments.episodes, arguments.seconds, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(table(figures))
    print(
        f"\n{arguments.episodes} episodes, {arguments.rounds} rounds of {arguments.seconds:g} s "
        f"each in turn; load average {before:.2f} before, {os.getloadavg()[0]:.2f} after."
    )


if __name__ == "__main__":
    main()
