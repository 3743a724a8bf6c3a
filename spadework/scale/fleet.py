"""A node with its shards and the clients that play on it, in simulated time.

    client --call--> network --> shard (one thread) --> environment processes
           <-------  network <-- shard             <--

A shard reads the call, sends each item to its environment, and takes each answer, one thing at
a time and on a core of the node; environments share the cores. What is not simulated: the
network's width, preemption (a core does a job to its end), and caches beyond what measured
costs contain.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from spadework.scale.costs import Costs, Items
from spadework.scale.events import Clock, Lane, Station

# Items that a shard sends on before it lets anything else have its core.
_CHUNK = 32
# A loop that hangs gives way so often; a core is not held by it while others wait.
_SLICE_S = 0.004
# What other work on the machine does at a time, and how often a run is looked at for its end.
_OTHER_SLICE_S, _LOOK_S = 0.001, 0.01
# Starts that a shard has under way at once: the server's own bound.
STARTS_AT_ONCE = 8


class Shard:
    """A server process: one thread, and its environments on the node's cores.

    Args:
        clock: Of the simulation.
        cores: Of the node.
        costs: As measured.
        items: What an item costs, with as many episodes as there are.
    """

    def __init__(self, clock: Clock, cores: Station, costs: Costs, items: Items) -> None:
        self._clock = clock
        self._cores = cores
        self._costs = costs
        self._items = items
        self.thread = Lane(cores)
        self._starting = 0
        self._to_start: deque[tuple[Callable[[], None], float]] = deque()

    def call(self, items: list[Item], answer: Callable[[Item], None]) -> None:
        """Take a call of many items; each is answered by itself."""
        call_s = self._costs.server_call_s
        for first in range(0, len(items), _CHUNK):
            chunk = items[first : first + _CHUNK]
            work_s = call_s + len(chunk) * self._items.server_s / 2
            self.thread.submit(work_s, self._send, chunk, answer)
            call_s = 0.0

    def start(self, then: Callable[[], None], replayed: float = 0.0) -> None:
        """Start an episode, and replay so many steps in it."""
        self._to_start.append((then, replayed))
        self._start_more()

    def _start_more(self) -> None:
        costs, items = self._costs, self._items
        while self._to_start and self._starting < STARTS_AT_ONCE:
            self._starting += 1
            then, replayed = self._to_start.popleft()
            own_s = costs.start_server_s + replayed * items.server_s
            work_s = costs.start_environment_s + replayed * items.environment_s
            self.thread.submit(own_s, self._cores.submit, work_s, self._started, then)

    def _started(self, then: Callable[[], None]) -> None:
        self._starting -= 1
        self._start_more()
        then()

    def end(self) -> None:
        """End an episode."""
        self._cores.submit(self._costs.end_s, _nothing)

    def _send(self, items: list[Item], answer: Callable[[Item], None]) -> None:
        for item in items:
            if not item.hangs_s:
                self._cores.submit(self._items.environment_s, self._answered, item, answer)
            elif item.loops:
                self._loop(item, answer, item.hangs_s)
            else:
                self._clock.after(item.hangs_s, self._answered, item, answer)

    def _loop(self, item: Item, answer: Callable[[Item], None], left_s: float) -> None:
        # It has a core or waits for one until its time is over.
        if left_s <= 0:
            self._answered(item, answer)
            return
        began = self._clock.now

        def again() -> None:
            self._loop(item, answer, left_s - (self._clock.now - began))

        self._cores.submit(_SLICE_S, again)

    def _answered(self, item: Item, answer: Callable[[Item], None]) -> None:
        self.thread.submit(self._items.server_s / 2, answer, item)


@dataclass(slots=True)
class Item:
    """A step of an episode in a call.

    Attributes:
        began: When its call began.
        hangs_s: How long it takes without an answer of its own; 0 for one that does not hang.
        loops: It takes a core meanwhile.
    """

    episode: Episode
    began: float
    hangs_s: float = 0.0
    loops: bool = False


@dataclass(slots=True, eq=False)
class Episode:
    """One place of a client: an episode, and another when that has ended."""

    steps: int = 0


@dataclass(frozen=True)
class Habits:
    """How clients play.

    Attributes:
        think_s: Generation of one action, on average; half to one and a half of it, evenly.
        gather_s: How long a client collects ready actions into one call.
        steps: Of an episode.
        hang_share: Episodes that hang once, at some step.
        loop_share: Of those, how many loop (the others sleep).
        hang_s: The time limit of a step.
        network_s: One way.
    """

    think_s: float
    gather_s: float
    steps: int
    hang_share: float
    loop_share: float
    hang_s: float
    network_s: float


@dataclass
class Record:
    """What was seen from `since` on.

    Attributes:
        item_s: From the call's start to the answer at the client, of items that do not hang.
        steps: Answered.
        hung: Items that hung.
        asked: Items sent, those that hang included, from the very start.
        answered: Items answered, from the very start.
    """

    since: float
    item_s: list[float] = field(default_factory=list)
    steps: int = 0
    hung: int = 0
    asked: int = 0
    answered: int = 0


class Client:
    """Plays many episodes on one shard, each at its own pace."""

    def __init__(
        self,
        clock: Clock,
        shard: Shard,
        costs: Costs,
        habits: Habits,
        record: Record,
        chance: random.Random,
    ) -> None:
        self._clock = clock
        self._shard = shard
        self._costs = costs
        self._habits = habits
        self._record = record
        self._chance = chance
        # A thread on a machine of its own.
        self.thread = Station(clock, 1)
        self._item_s = costs.cold.client_s
        self._ready: list[Episode] = []

    def play(self, episodes: int) -> None:
        """Have so many episodes under way, as if they had been for long."""
        for _ in range(episodes):
            episode = Episode(self._chance.randrange(self._habits.steps))
            self._clock.after(self._chance.random() * self._habits.think_s, self._wants, episode)

    def take_over(self, episodes: int, done: Callable[[], None]) -> None:
        """Rebuild so many lost episodes on this client's shard, by replay, and play on."""
        for _ in range(episodes):
            episode = Episode(self._chance.randrange(self._habits.steps))

            def rebuilt(episode: Episode = episode) -> None:
                done()
                self._think(episode)

            self._shard.start(rebuilt, episode.steps)

    def _think(self, episode: Episode) -> None:
        mean = self._habits.think_s
        self._clock.after(mean * (0.5 + self._chance.random()), self._wants, episode)

    def _wants(self, episode: Episode) -> None:
        if not self._ready:
            self._clock.after(self._habits.gather_s, self._call)
        self._ready.append(episode)

    def _call(self) -> None:
        ready, self._ready = self._ready, []
        habits, chance, now = self._habits, self._chance, self._clock.now
        hangs = habits.hang_share / habits.steps
        items = []
        for episode in ready:
            item = Item(episode, now)
            if chance.random() < hangs:
                item.hangs_s = habits.hang_s
                item.loops = chance.random() < habits.loop_share
            items.append(item)
        self._record.asked += len(items)
        work_s = self._costs.client_call_s + len(items) * self._item_s / 2
        self.thread.submit(work_s, self._send, items)

    def _send(self, items: list[Item]) -> None:
        self._clock.after(self._habits.network_s, self._shard.call, items, self._answer)

    def _answer(self, item: Item) -> None:
        self._clock.after(self._habits.network_s, self._receive, item)

    def _receive(self, item: Item) -> None:
        self.thread.submit(self._item_s / 2, self._received, item)

    def _received(self, item: Item) -> None:
        record, episode = self._record, item.episode
        record.answered += 1
        if self._clock.now >= record.since:
            if item.hangs_s:
                record.hung += 1
            else:
                record.steps += 1
                record.item_s.append(self._clock.now - item.began)
        if item.hangs_s:
            # Killed, and rebuilt by replay.
            self._shard.end()
            self._shard.start(lambda: self._think(episode), episode.steps)
            return
        episode.steps += 1
        if episode.steps < self._habits.steps:
            self._think(episode)
            return
        episode.steps = 0
        self._shard.end()
        self._shard.start(lambda: self._think(episode))


def closed_loop(costs: Costs, episodes: int, batches: int, other_cpus: float = 0.0) -> Record:
    """One client on the measured machine itself that steps all episodes in one call.

    It does so again and again, as the benchmark does, for its figures to be compared with.

    Args:
        costs: As measured.
        episodes: In a call.
        batches: So many calls.
        other_cpus: What other work on the machine keeps busy meanwhile.
    """
    clock = Clock()
    cores = Station(clock, costs.cpus)
    each = costs.items(episodes)
    shard = Shard(clock, cores, costs, each)
    thread, record = Lane(cores), Record(0.0)
    places = [Episode() for _ in range(episodes)]

    def call() -> None:
        items = [Item(episode, clock.now) for episode in places]
        record.asked += episodes
        work_s = costs.client_call_s + episodes * each.client_s / 2
        thread.submit(work_s, shard.call, items, answer)

    def answer(item: Item) -> None:
        thread.submit(each.client_s / 2, received, item)

    def received(item: Item) -> None:
        record.steps += 1
        record.answered += 1
        record.item_s.append(clock.now - item.began)
        if record.steps % episodes == 0 and record.steps < batches * episodes:
            call()

    _disturb(clock, cores, other_cpus)
    call()
    while record.steps < batches * episodes:
        clock.run(clock.now + _LOOK_S)
    return record


def _disturb(clock: Clock, cores: Station, cpus: float) -> None:
    """Keep so many cores busy with other work, a slice at a time."""
    tasks = math.ceil(cpus)

    def work() -> None:
        cores.submit(_OTHER_SLICE_S, rest)

    def rest() -> None:
        clock.after(_OTHER_SLICE_S * (tasks / cpus - 1), work)

    for _ in range(tasks):
        work()


def _nothing() -> None:
    """A job whose end concerns nobody."""
