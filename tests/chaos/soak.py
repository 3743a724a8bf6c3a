"""A soak: many steps, some of the episodes hostile, and what the server holds meanwhile.

    python -m tests.chaos.soak --steps 200000

After every round all episodes are closed, and what is left is measured: the server's memory
and descriptors, the processes and the memory of its jails, files. A line is fitted to each;
it must be flat. Every honest step is compared with the same program run here, and every
hostile episode must get an outcome that it has earned, and no reward.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, Outcome, ResetItem, StepItem

from tests.chaos.playing import Transcript, entry, none_live, walk
from tests.chaos.server import ChaosServer
from tests.server.test_limits import stepping

_MIB = 1 << 20
_HOSTILE_SHARE = 0.05
# Of an honest episode; a hostile one ends in its first.
_STEPS = 20
_EPISODES_AT_ONCE = 64
# Of all rounds, those before memory is in a steady state.
_WARM_UP = 0.2

# What the fitted line may rise from the end of the warm-up to the end, whatever the length.
_MAX_RISE_BYTES, _MAX_RISE_COUNT = 8 * _MIB, 0.5


@dataclass(frozen=True)
class Hostile:
    """A program that means harm.

    Attributes:
        body: Of its step.
        outcomes: Any of these is right.
        limits: Of the program.
    """

    body: str
    outcomes: tuple[Outcome, ...]
    limits: dict[str, float] = field(default_factory=dict)


HOSTILE = {
    "hangs": Hostile("while True: pass", (Outcome.TIME_LIMIT,)),
    "sleeps": Hostile("time.sleep(3600)", (Outcome.TIME_LIMIT,)),
    "exits": Hostile("os._exit(3)", (Outcome.EXITED,)),
    "crashes": Hostile("import ctypes; ctypes.string_at(0)", (Outcome.SIGNALED,)),
    "takes memory": Hostile(
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        (Outcome.MEMORY_LIMIT,),
        {"memory_bytes": 64 * _MIB, "step_timeout_s": 20},
    ),
    "floods its output": Hostile(
        "while True: print('x' * 1000)", (Outcome.OUTPUT_LIMIT,), {"step_timeout_s": 20}
    ),
    "fills its scratch folder": Hostile(
        "for i in range(1000):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(1 << 20))",
        (Outcome.OUTPUT_LIMIT,),
        {"scratch_bytes": 4 * _MIB, "step_timeout_s": 20},
    ),
    "forks without end": Hostile(
        "while True:\n    try: os.fork()\n    except OSError: pass",
        (Outcome.TIME_LIMIT,),
        {"max_processes": 8},
    ),
    "forks and leaves": Hostile(
        "for _ in range(5):\n    if os.fork() == 0: time.sleep(3600)\nos._exit(0)",
        (Outcome.EXITED,),
        {"max_processes": 8, "step_timeout_s": 20},
    ),
    "garbles its socket": Hostile(
        "os.write(3, b'\\x00garbage')\ntime.sleep(30)", (Outcome.PROTOCOL_VIOLATION,)
    ),
    "floods its socket": Hostile(
        "while True: os.write(3, b'\\x00' + bytes(40))", (Outcome.PROTOCOL_VIOLATION,)
    ),
    "closes its socket": Hostile(
        "os.closerange(0, 64)\ntime.sleep(30)", (Outcome.PROTOCOL_VIOLATION,)
    ),
    "rewards itself with infinity": Hostile(
        "return '', float('inf'), True, False, {}",
        (Outcome.PROGRAM_ERROR, Outcome.PROTOCOL_VIOLATION),
    ),
}


@dataclass
class Sample:
    """What a server holds while no episode lives.

    Attributes:
        steps: Taken so far.
    """

    steps: int
    server_bytes: int
    descriptors: int
    processes: int
    jails_bytes: int
    files: int


# The quantities in a sample, and what each may rise.
BOUNDS = {
    f.name: _MAX_RISE_BYTES if f.name.endswith("_bytes") else _MAX_RISE_COUNT
    for f in fields(Sample)
    if f.name != "steps"
}


@dataclass
class Soak:
    """One soak, and what came of it.

    Attributes:
        wrong: What was lost or made up, in words; must stay empty.
        outcomes: Of the hostile episodes, by program and outcome.
    """

    server: ChaosServer
    client: AsyncSandboxClient
    steps: int = 0
    honest: int = 0
    samples: list[Sample] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def prepare(self) -> None:
        """Register all programs."""
        self._honest = await self.client.register_program(_long_walk())
        self._hostile = {}
        for name, program in HOSTILE.items():
            limits = Limits(**{"step_timeout_s": 1.5, **program.limits})
            self._hostile[name] = await self.client.register_program(
                stepping(program.body), limits=limits
            )

    async def round(self, steps: int, chance: random.Random) -> None:
        """Take about so many steps, close everything, and measure."""
        until = self.steps + steps
        async with asyncio.TaskGroup() as group:
            # Several batches beside one another: one that waits for a hang delays no other.
            for _ in range(4):
                group.create_task(self._play_until(until, chance))
        await none_live(self.client, within_s=60)
        self.samples.append(self._sample())

    async def _play_until(self, until: int, chance: random.Random) -> None:
        while self.steps < until:
            names = [
                chance.choice(list(HOSTILE)) if chance.random() < _HOSTILE_SHARE else ""
                for _ in range(_EPISODES_AT_ONCE // 4)
            ]
            await self._play(names, [chance.randrange(1 << 30) for _ in names])

    async def _play(self, names: list[str], seeds: list[int]) -> None:
        """Play one episode a name; the empty one is of the honest program."""
        programs = [self._hostile[name] if name else self._honest for name in names]
        episodes = await self.client.reset(
            [ResetItem(p.program_id, seed=s) for p, s in zip(programs, seeds, strict=True)]
        )
        expected = [_expected(seed) for seed in seeds]
        going = []
        for number, episode in enumerate(episodes):
            if not episode.ok:
                self.wrong.append(f"{names[number] or 'honest'}: no start: {episode.error}")
            else:
                going.append(number)
        for turn in range(_STEPS):
            items = [
                StepItem(episodes[n].episode_id, turn, str((seeds[n] + turn) % 11)) for n in going
            ]
            results = await self.client.step(items)
            self.steps += len(items)
            left = []
            for number, result in zip(going, results, strict=True):
                if names[number]:
                    self._check_hostile(names[number], result)
                elif entry(result) != expected[number][turn]:
                    self.wrong.append(f"honest: {entry(result)}, not {expected[number][turn]}")
                else:
                    left.append(number)
            going = left
        self.honest += len(going)
        await self.client.close_episodes(
            [episode.episode_id for episode in episodes if episode.ok]
        )

    def _check_hostile(self, name: str, result: Any) -> None:
        said = result.outcome.name if result.outcome else type(result.error).__name__
        self.outcomes[name, said] += 1
        if result.outcome not in HOSTILE[name].outcomes or result.reward is not None:
            self.wrong.append(f"{name}: {said}, reward {result.reward}, {result.error}")

    def _sample(self) -> Sample:
        server = self.server
        return Sample(
            steps=self.steps,
            server_bytes=server.memory_bytes(),
            descriptors=server.descriptors(),
            processes=len(server.processes()),
            jails_bytes=server.jails_bytes(),
            files=server.file_count(),
        )

    def rises(self) -> dict[str, float]:
        """What the line fitted to each quantity rises from the end of the warm-up to the end."""
        steady = self.samples[int(len(self.samples) * _WARM_UP) :]
        steps = [sample.steps for sample in steady]
        return {
            name: _slope(steps, [getattr(s, name) for s in steady]) * (steps[-1] - steps[0])
            for name in BOUNDS
        }

    def flat(self) -> bool:
        return all(rise <= BOUNDS[name] for name, rise in self.rises().items())


def _long_walk() -> str:
    return walk().replace("4 + seed % 4", str(_STEPS))


def _expected(seed: int) -> Transcript:
    """What the honest program's steps are, run here."""
    space: dict[str, Any] = {}
    exec(_long_walk(), space)
    env = space["WalkEnv"]()
    env.reset(seed=seed)
    transcript: Transcript = []
    for turn in range(_STEPS):
        seen, reward, terminated, truncated, _ = env.step(str((seed + turn) % 11))
        transcript.append(("COMPLETED", seen, reward, terminated, truncated))
    return transcript


def _slope(xs: list[int], ys: list[float]) -> float:
    """Of the line of least squares."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    together = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return together / spread if spread else 0.0


async def run(server: ChaosServer, steps: int, rounds: int, seed: int = 0) -> Soak:
    """Soak a server that has just been started."""
    async with AsyncSandboxClient(server.address) as client:
        soak = Soak(server, client)
        await soak.prepare()
        chance = random.Random(seed)
        for _ in range(rounds):
            await soak.round(steps // rounds, chance)
        return soak


def report(soak: Soak, shown: int = 10) -> Iterator[str]:
    """The table of a soak, in Markdown, and what it comes to."""
    yield "| steps | server MiB | descriptors | processes | jails MiB | files |"
    yield "|---:|---:|---:|---:|---:|---:|"
    every = max(1, len(soak.samples) // shown)
    for s in [soak.samples[0], *soak.samples[every - 1 :: every]]:
        yield (
            f"| {s.steps} | {s.server_bytes / _MIB:.1f} | {s.descriptors} | {s.processes} "
            f"| {s.jails_bytes / _MIB:.1f} | {s.files} |"
        )
    yield ""
    for name, rise in soak.rises().items():
        unit, bound = (" MiB", _MIB) if name.endswith("_bytes") else ("", 1)
        verdict = "flat" if rise <= BOUNDS[name] else "NOT FLAT"
        yield (
            f"{name}: the fitted line rises by {rise / bound:.2f}{unit} after the warm-up; "
            f"at most {BOUNDS[name] / bound:g}{unit}: {verdict}"
        )
    hostile = sum(soak.outcomes.values())
    share = hostile / (hostile + soak.honest)
    yield f"{soak.steps} steps; {soak.honest} honest episodes, {hostile} hostile ({share:.1%})"
    for (name, said), count in sorted(soak.outcomes.items()):
        yield f"  {name}: {said} {count}"
    yield f"lost or made up: {len(soak.wrong)}"
    yield from soak.wrong[:20]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--backend", default="nsjail", choices=("nsjail", "docker"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        server = ChaosServer(Path(folder), arguments.backend)
        server.start()
        started = time.monotonic()
        try:
            soak = asyncio.run(run(server, arguments.steps, arguments.rounds, arguments.seed))
        finally:
            server.stop()
        server.assert_nothing_left()
    print("\n".join(report(soak)))
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if soak.flat() and not soak.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
