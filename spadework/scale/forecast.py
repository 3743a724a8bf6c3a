"""What many more episodes would need: a plan by laws, checked by simulating a node of it."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spadework.scale import fleet
from spadework.scale.axes import EPISODES
from spadework.scale.costs import Costs
from spadework.scale.events import Clock, Station
from spadework.scale.growth import Growth

CALIBRATED = (64, 1_000, 5_000)
SIZES = (10_000, 100_000, 1_000_000)
THINK_S = (1.0, 5.0, 20.0)

_CALIBRATION_BATCHES = 5
# Of the measured machine, what is left to the simulation however busy it was.
_LEFT_CPUS = 0.25
# Of simulated time, what is not counted, and steps that are enough for a 99th percentile.
_WARM_UP = 1.5
_STEPS = 300_000


@dataclass(frozen=True)
class Assumptions:
    """What nobody measured here; everything else is.

    Attributes:
        node_cores: Of a node; each as fast as those measured.
        node_mib: Its memory.
        usable_memory: Share of it that episodes may fill.
        busy: Share of a node's cores that may be busy, on average.
        thread_busy: The same of a shard's one thread.
        episodes_per_core: Live ones at most: as many as were measured.
        spare_nodes: Beyond what is needed, so that the loss of one is made up for.
        episodes_per_client: That one trainer process plays.
        gather: How long it collects ready actions into a call, as a share of the generation.
        steps: Of an episode.
        hang_share: Episodes that hang once.
        loop_share: Of those, how many take a core meanwhile.
        hang_s: The time limit of a step.
        network_s: One way between a client and a node.
        notice_s: Until a lost node is known to be lost.
    """

    node_cores: int = 32
    node_mib: float = 128 * 1024.0
    usable_memory: float = 0.8
    busy: float = 0.6
    thread_busy: float = 0.5
    episodes_per_core: float = 2_500.0
    spare_nodes: int = 1
    episodes_per_client: int = 1_000
    gather: float = 0.02
    steps: int = 20
    hang_share: float = 0.01
    loop_share: float = 0.5
    hang_s: float = 2.0
    network_s: float = 0.00025
    notice_s: float = 5.0

    def habits(self, think_s: float) -> fleet.Habits:
        return fleet.Habits(
            think_s,
            self.gather * think_s,
            self.steps,
            self.hang_share,
            self.loop_share,
            self.hang_s,
            self.network_s,
        )


@dataclass(frozen=True)
class Plan:
    """What is needed for a demand, by laws alone.

    Attributes:
        steps_per_s: Asked for by all.
        cores: Busy ones, of all nodes; and of all clients.
        memory_mib: Of all episodes.
        nodes: With the spare ones.
        bound_by: Which of cores, memory or density asks for so many.
        shards: Of a node.
        clients: Processes.
        core_us: CPU time on the nodes for a step, by what it goes to.
    """

    episodes: int
    think_s: float
    steps_per_s: float
    cores: float
    client_cores: float
    memory_mib: float
    nodes: int
    bound_by: str
    shards: int
    clients: int
    core_us: dict[str, float]

    @property
    def episodes_per_node(self) -> int:
        return math.ceil(self.episodes / self.nodes)


def plan(costs: Costs, assumed: Assumptions, episodes: int, think_s: float) -> Plan:
    """Nodes, shards and clients for so many episodes, each of which acts every `think_s`."""
    rate = episodes / (think_s + assumed.gather * think_s / 2)
    # The first of a call waits the whole time for the others.
    clients = max(1, round(episodes / assumed.episodes_per_client))
    a_call = 1 + rate / clients * assumed.gather * think_s
    hangs = assumed.hang_share / assumed.steps
    starts = 1 / assumed.steps + hangs
    parts = {
        "calls": costs.server_call_s / a_call,
        "the server, an item": costs.cold.server_s,
        "the environments, an item": costs.cold.environment_s,
        "starts and ends": starts * (costs.start_s + costs.end_s),
        "rebuilding after hanging": hangs
        * assumed.steps
        / 2
        * (costs.cold.server_s + costs.cold.environment_s),
        "hanging in a loop": hangs * assumed.loop_share * assumed.hang_s,
    }
    cores = rate * sum(parts.values())
    thread_s = parts["calls"] + costs.cold.server_s + starts * costs.start_server_s
    memory = episodes * costs.mib
    needed = {
        "cores": cores / assumed.busy / assumed.node_cores,
        "memory": memory / assumed.usable_memory / assumed.node_mib,
        "density": episodes / assumed.episodes_per_core / assumed.node_cores,
    }
    bound_by = max(needed, key=lambda name: needed[name])
    nodes = math.ceil(needed[bound_by]) + assumed.spare_nodes
    shards = max(1, math.ceil(rate * thread_s / nodes / assumed.thread_busy))
    return Plan(
        episodes=episodes,
        think_s=think_s,
        steps_per_s=rate,
        cores=cores,
        client_cores=rate * (costs.client_call_s / a_call + costs.cold.client_s),
        memory_mib=memory,
        nodes=nodes,
        bound_by=bound_by,
        shards=shards,
        clients=clients,
        core_us={name: 1e6 * value for name, value in parts.items()},
    )


@dataclass(frozen=True)
class Outcome:
    """What simulating one node of a plan showed.

    Attributes:
        busy: Share of its cores' time.
        thread_busy: Share of its shards' threads' time, the busiest one's.
        p50_ms: Of an item.
        p99_ms: Of an item.
        steps_per_s: Of the node.
        lost_episodes: That another node took with it, and this one rebuilt.
        rebuilt_s: From the loss until all of those played on.
        loss_p99_ms: Of an item meanwhile.
    """

    busy: float
    thread_busy: float
    p50_ms: float
    p99_ms: float
    steps_per_s: float
    lost_episodes: int
    rebuilt_s: float
    loss_p99_ms: float


def simulate(costs: Costs, assumed: Assumptions, planned: Plan, seed: int = 0) -> Outcome:
    """Play one node of a plan; nodes are alike, and know nothing of one another.

    Then one of the others is lost, and this one gets its share of that one's episodes.
    """
    chance = random.Random(seed)
    clock = Clock()
    cores = Station(clock, assumed.node_cores)
    here = planned.episodes_per_node
    habits = assumed.habits(planned.think_s)
    warm_up_s = _WARM_UP * planned.think_s
    length_s = max(2 * planned.think_s, _STEPS / (planned.steps_per_s / planned.nodes))
    record = fleet.Record(warm_up_s)
    shards = [fleet.Shard(clock, cores, costs, costs.cold) for _ in range(planned.shards)]
    # Clients are many, and each is on one shard: evenly many episodes of each.
    clients = []
    for number, episodes in enumerate(_spread(here, assumed.episodes_per_client)):
        shard = shards[number % len(shards)]
        client = fleet.Client(clock, shard, costs, habits, record, chance)
        client.play(episodes)
        clients.append(client)
    clock.run(warm_up_s)
    before = cores.busy_s, [shard.thread.busy_s for shard in shards]
    clock.run(warm_up_s + length_s)
    busy = (cores.busy_s - before[0]) / length_s / assumed.node_cores
    threads = [
        (shard.thread.busy_s - was) / length_s
        for shard, was in zip(shards, before[1], strict=True)
    ]
    calm, steps = sorted(record.item_s), record.steps
    record.item_s = []
    lost = math.ceil(here / (planned.nodes - 1)) if planned.nodes > 1 else 0
    rebuilt_s = _lose(clock, clients, lost) if lost else 0.0
    return Outcome(
        busy=busy,
        thread_busy=max(threads),
        p50_ms=1e3 * percentile(calm, 50),
        p99_ms=1e3 * percentile(calm, 99),
        steps_per_s=steps / length_s,
        lost_episodes=lost,
        rebuilt_s=assumed.notice_s + rebuilt_s if lost else 0.0,
        loss_p99_ms=1e3 * percentile(sorted(record.item_s), 99) if lost else 0.0,
    )


def _lose(clock: Clock, clients: list[fleet.Client], lost: int) -> float:
    """Give the clients so many episodes to rebuild, and wait until they are; seconds."""
    began = clock.now
    left = lost

    def done() -> None:
        nonlocal left
        left -= 1

    shares = [lost // len(clients) + (n < lost % len(clients)) for n in range(len(clients))]
    for client, share in zip(clients, shares, strict=True):
        client.take_over(share, done)
    step_s = 0.05
    while left:
        clock.run(clock.now + step_s)
    return clock.now - began


def _spread(whole: int, most: int) -> list[int]:
    """A number in parts of a size at most, as equal as can be."""
    count = math.ceil(whole / most)
    return [whole // count + (number < whole % count) for number in range(count)]


@dataclass(frozen=True)
class Calibration:
    """A run of the benchmark beside its simulation; each figure measured, and simulated.

    Attributes:
        other_cpus: What other work kept busy when it was measured, and so in the simulation.
    """

    episodes: int
    other_cpus: float
    steps_per_s: tuple[float, float]
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]

    @staticmethod
    def error(pair: tuple[float, float]) -> float:
        """Relative, of the simulated one."""
        return pair[1] / pair[0] - 1


def calibrate(growth: Growth, costs: Costs) -> list[Calibration]:
    """Simulate what was measured, of those sizes that were."""
    found = []
    for episodes in CALIBRATED:
        seen = [s.figures for s in growth.of(EPISODES) if s.episodes == episodes]
        if not seen:
            continue

        def median(name: str, seen: list[Any] = seen) -> float:
            return statistics.median(getattr(figures, name) for figures in seen)

        other_cpus = min(median("other_cpus"), costs.cpus - _LEFT_CPUS)
        record = fleet.closed_loop(costs, episodes, _CALIBRATION_BATCHES, other_cpus)
        times = sorted(record.item_s)
        # A batch is over with its last item, and the next one begins.
        lasts = [max(batch) for batch in _batches(record.item_s, episodes)]
        batch_s = statistics.fmean(lasts)
        found.append(
            Calibration(
                episodes,
                other_cpus,
                (median("steps_per_s"), episodes / batch_s),
                (median("item_p50_ms"), 1e3 * percentile(times, 50)),
                (median("item_p99_ms"), 1e3 * percentile(times, 99)),
            )
        )
    return found


def _batches(times: list[float], size: int) -> list[list[float]]:
    return [times[first : first + size] for first in range(0, len(times), size)]


def percentile(ordered: list[float], percent: float) -> float:
    """Of values in order; NaN without any."""
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(frozen=True)
class Forecast:
    """All questions, answered."""

    assumed: Assumptions
    costs: dict[str, Any]
    calibrations: list[Calibration]
    plans: list[Plan]
    outcomes: list[Outcome]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Forecast:
        return cls(
            Assumptions(**value["assumed"]),
            value["costs"],
            [
                Calibration(
                    each["episodes"],
                    each["other_cpus"],
                    *(tuple(each[name]) for name in ("steps_per_s", "p50_ms", "p99_ms")),
                )
                for each in value["calibrations"]
            ],
            [Plan(**each) for each in value["plans"]],
            [Outcome(**each) for each in value["outcomes"]],
        )


def forecast(
    growth: Growth,
    costs: Costs,
    assumed: Assumptions,
    on_done: Callable[[], None] = lambda: None,
) -> Forecast:
    """Calibrate, plan, and simulate each plan."""
    calibrations = calibrate(growth, costs)
    on_done()
    plans = [plan(costs, assumed, n, think_s) for n in SIZES for think_s in THINK_S]
    outcomes = []
    for planned in plans:
        outcomes.append(simulate(costs, assumed, planned))
        on_done()
    return Forecast(assumed, costs.to_json(), calibrations, plans, outcomes)


def questions() -> int:
    """How often `forecast` calls `on_done`."""
    return 1 + len(SIZES) * len(THINK_S)
