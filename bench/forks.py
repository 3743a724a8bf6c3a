"""What a copy of a running episode costs, by how many are made in one call.

    python bench/forks.py [--rounds N] [--backend NAME]

Wall milliseconds of the client's call for each copy, CPU milliseconds of client, server and jail
(the original, its copies, the zygote), and beside them the start of an episode that replays as
many actions as the original has behind it. Sizes take turns; medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from sandbox_api import Limits, ResetItem, SandboxClient, StepItem

from sandbox_server import LocalServer
from sandbox_server.options import BACKENDS
from spadework.benchmark.meter import SIDES, Meter

COPIES = (1, 8, 64)
STEPS = 20
# Calls of each size in a row: more of the short ones.
CALLS = {1: 32, 8: 8, 64: 1}
# After each row, for what was closed to be gone.
PAUSE_S = 0.1

GAME = """
class BoardEnv:
    def reset(self, seed=None):
        self.board = [random.randrange(100) for _ in range(400)]
        return "go", {}

    def step(self, action):
        self.board[random.randrange(400)] = int(action)
        return str(sum(self.board)), 0.0, False, False, {}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backend", choices=BACKENDS, default="nsjail")
    asked = parser.parse_args()
    load_before = os.getloadavg()[0]
    found: dict[tuple[str, int], list[Row]] = {}
    with LocalServer(backend=asked.backend) as server, SandboxClient(server.address) as client:
        meter = Meter()
        meter.servers = {server.process.pid}
        program = client.register_program(GAME, limits=Limits(max_processes=129))
        (episode,) = client.reset([ResetItem(program.program_id)])
        actions = tuple(str(n) for n in range(STEPS))
        for index, action in enumerate(actions):
            client.step([StepItem(episode.episode_id, index, action)])
        replay = ResetItem(program.program_id, prefix_actions=actions)

        def fork(count: int) -> list[str]:
            return client.fork(episode.episode_id, count)

        def start(count: int) -> list[str]:
            return [started.episode_id for started in client.reset([replay] * count)]

        ways: dict[str, Callable[[int], list[str]]] = {"fork": fork, "replay": start}
        for _ in range(asked.rounds):
            for count in COPIES:
                for name, make in ways.items():
                    found.setdefault((name, count), []).append(_row(meter, make, count, client))
    print(f"Load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after.\n")
    print("| way | at once | ms each | least | CPU ms each: client | server | jail | other CPUs |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for (name, count), rows in sorted(found.items()):
        walls = [wall for row in rows for wall in row.wall_ms]
        figures = [statistics.median(walls), min(walls)]
        figures += [statistics.median(row.cpu_ms[side] for row in rows) for side in SIDES]
        figures.append(statistics.median(row.other_cpus for row in rows))
        print(f"| {name} | {count} | " + " | ".join(f"{f:.3g}" for f in figures) + " |")


class Row(NamedTuple):
    """Calls of one size: for each episode made, of each call and of all of them."""

    wall_ms: list[float]
    cpu_ms: dict[str, float]
    other_cpus: float


def _row(meter: Meter, make: Callable[[int], list[str]], count: int, client: SandboxClient) -> Row:
    made: list[str] = []
    wall_ms = []
    before = meter.cpu(starts=True)
    for _ in range(CALLS[count]):
        started_at = time.perf_counter()
        made += make(count)
        wall_ms.append((time.perf_counter() - started_at) / count * 1e3)
    spent = meter.cpu(starts=False).since(before)
    client.close_episodes(made)
    time.sleep(PAUSE_S)
    return Row(
        wall_ms, {side: spent.total[side] / len(made) * 1e3 for side in SIDES}, spent.other_cpus
    )


if __name__ == "__main__":
    main()
