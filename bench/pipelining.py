"""How long a rollout loop waits for its environments, with batches in flight and without.

    python bench/pipelining.py [--episodes N] [--batch N ...] [--generation-ms MS] [--slow SHARE]

A model is simulated by a sleep for each batch of episodes that acts. Without pipelining all
episodes act, batch by batch, and then all are stepped in one call; with it each batch is stepped
while the next ones generate. Waiting is all the time in which nothing is generated, the client's
own work included. Both ways take turns; medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_api import AsyncSandboxClient, Limits, ResetItem, StepItem, StepResult

from sandbox_server import LocalServer

GAME = """
import time

class CountEnv:
    def reset(self, seed=None):
        self.count = 0
        return "go", {}

    def step(self, action):
        self.count += 1
        if action == "slow":
            time.sleep(0.2)
        return f"at {self.count}", 0.0, False, False, {}
"""
LIMITS = Limits(max_steps=100_000, step_timeout_s=60, cpu_time_s=3_600)


@dataclass
class Model:
    """Stands for a model: so long for a batch, whatever is in it.

    Attributes:
        spent_s: Seconds in which it generated.
    """

    generation_s: float
    slow_share: float
    spent_s: float = 0.0
    written: int = 0

    async def act(self, states: Sequence[StepResult]) -> list[StepItem]:
        started_at = time.perf_counter()
        await asyncio.to_thread(time.sleep, self.generation_s)
        self.spent_s += time.perf_counter() - started_at
        return [StepItem(s.episode_id, s.step_index + 1, self._action()) for s in states]

    def _action(self) -> str:
        self.written += 1
        return "slow" if self.written * self.slow_share % 1 < self.slow_share else "on"


async def one_after_the_other(
    client: AsyncSandboxClient, model: Model, states: list[StepResult], batch: int, turns: int
) -> list[StepResult]:
    """All act, then all are stepped."""
    for _ in range(turns):
        items: list[StepItem] = []
        for start in range(0, len(states), batch):
            items += await model.act(states[start : start + batch])
        states = await client.step(items)
    return states


async def pipelined(
    client: AsyncSandboxClient, model: Model, states: list[StepResult], batch: int, turns: int
) -> list[StepResult]:
    """Whoever is ready acts, and is stepped while others act; each as often as all others."""
    ends = states[0].step_index + turns
    ended: list[StepResult] = []
    async with client.pipeline() as pipeline:
        for start in range(0, len(states), batch):
            pipeline.submit(await model.act(states[start : start + batch]))
        while results := await pipeline.results(at_least=batch, at_most=batch):
            ended += [result for result in results if result.step_index == ends]
            going_on = [result for result in results if result.step_index < ends]
            if going_on:
                pipeline.submit(await model.act(going_on))
    return ended


WAYS = {"one after the other": one_after_the_other, "pipelined": pipelined}


async def measure(asked: argparse.Namespace) -> None:
    print(
        "| way | batch | slow steps | waiting | least | steps/s |\n|---|---:|---:|---:|---:|---:|"
    )
    group = ["--group-size", str(asked.group_size)] if asked.group_size else []
    with LocalServer(options=group) as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(GAME, limits=LIMITS, group_mode=bool(group))
            started = await client.reset([ResetItem(program.program_id)] * asked.episodes)
            states = [StepResult(e.episode_id, -1, e.outcome, e.observation) for e in started]
            states = await one_after_the_other(client, Model(0, 0), states, asked.episodes, 5)
            for batch in asked.batch:
                for slow in dict.fromkeys((0.0, asked.slow)):
                    shares: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
                    for _ in range(asked.rounds):
                        for way, play in WAYS.items():
                            model = Model(asked.generation_ms / 1e3, slow)
                            started_at = time.perf_counter()
                            states = await play(client, model, states, batch, asked.turns)
                            wall_s = time.perf_counter() - started_at
                            assert len(states) == asked.episodes
                            assert all(state.ok for state in states)
                            steps_per_s = asked.episodes * asked.turns / wall_s
                            shares[way].append((1 - model.spent_s / wall_s, steps_per_s))
                    for way, found in shares.items():
                        waiting = [share for share, _ in found]
                        rate = statistics.median(rate for _, rate in found)
                        print(
                            f"| {way} | {batch} | {slow:.0%} | {statistics.median(waiting):.1%} "
                            f"| {min(waiting):.1%} | {rate:,.0f} |",
                            flush=True,
                        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[125, 250])
    parser.add_argument("--generation-ms", type=float, default=20.0)
    parser.add_argument("--slow", type=float, default=0.01, help="share of steps of 200 ms")
    parser.add_argument("--group-size", type=int, default=0, help="in group mode, so many each")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    load_before = os.getloadavg()[0]
    asyncio.run(measure(parser.parse_args()))
    print(f"\nLoad average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
