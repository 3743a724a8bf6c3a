"""The simulation's queues, against what queueing theory says of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from spadework.report.intervals import of_mean
from spadework.scale.events import Clock, Lane, Station

# Parts of a run that are as good as independent, for an interval of its mean.
BATCHES, JOBS_OF_A_BATCH = 30, 4_000


class _Queue:
    """Poisson arrivals at a station, and how long each job waited."""

    def __init__(self, servers: int, rate: float, service_s: Callable[[], float], seed: int):
        self.clock = Clock()
        self.station = Station(self.clock, servers)
        self.rate, self.service_s = rate, service_s
        self.chance = random.Random(seed)
        self.waits: list[float] = []
        self._arrive()

    def _arrive(self) -> None:
        service_s, came = self.service_s(), self.clock.now
        self.station.submit(service_s, self._leave, came, service_s)
        self.clock.after(self.chance.expovariate(self.rate), self._arrive)

    def _leave(self, came: float, service_s: float) -> None:
        self.waits.append(self.clock.now - came - service_s)

    def run(self) -> list[float]:
        """Mean waits of batches, after a warm-up of one."""
        wanted = (BATCHES + 1) * JOBS_OF_A_BATCH
        while len(self.waits) < wanted:
            self.clock.run(self.clock.now + JOBS_OF_A_BATCH / self.rate)
        return [
            math.fsum(self.waits[i : i + JOBS_OF_A_BATCH]) / JOBS_OF_A_BATCH
            for i in range(JOBS_OF_A_BATCH, wanted, JOBS_OF_A_BATCH)
        ]


def _erlang_c(servers: int, load: float) -> float:
    """Probability that a job waits, of an M/M/c queue with so many servers' worth of load."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)


def _holds(batches: list[float], truth: float) -> bool:
    found = of_mean(batches)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    # Twice its 95% interval: batches are not quite independent.
    half = found.high - found.low
    return found.value - half < truth < found.value + half and half < 0.3 * truth


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_waiting_for_one_server_with_equal_jobs_is_that_of_m_d_1(load: float):
    queue = _Queue(1, load, lambda: 1.0, seed=1)
    # Pollaczek-Khinchine.
    assert _holds(queue.run(), load / (2 * (1 - load)))


@pytest.mark.parametrize(("servers", "load"), [(2, 1.2), (8, 6.4)])
def test_waiting_for_several_servers_is_that_of_m_m_c(servers: int, load: float):
    chance = random.Random(7)
    queue = _Queue(servers, load, lambda: chance.expovariate(1.0), seed=2)
    assert _holds(queue.run(), _erlang_c(servers, load) / (servers - load))


def test_servers_are_as_busy_as_arrivals_times_service():
    queue = _Queue(4, 2.0, lambda: 1.5, seed=3)
    queue.clock.run(20_000)
    # Both are of this run's own arrivals, but for jobs under way at its end.
    assert queue.station.busy_s == pytest.approx(queue.station.served * 1.5, abs=4 * 1.5)
    assert queue.station.busy_s / 20_000 / 4 == pytest.approx(2.0 * 1.5 / 4, rel=0.03)


def test_no_job_is_lost_or_made_up():
    queue = _Queue(3, 2.5, lambda: 1.0, seed=4)
    queue.clock.run(1_000)
    station = queue.station
    assert station.arrived == station.served + station.present
    assert len(queue.waits) == station.served
    assert min(queue.waits) >= -1e-9


def test_a_lane_has_one_job_at_a_time_though_the_station_is_free():
    clock, done = Clock(), []
    lane = Lane(Station(clock, 8))
    for number in range(3):
        lane.submit(1.0, lambda n=number: done.append((n, clock.now)))
    assert lane.waiting == 2
    clock.run(10.0)
    assert done == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert lane.busy_s == 3.0


def test_calls_of_one_time_are_made_in_the_order_they_were_asked_for():
    clock, made = Clock(), []
    for number in range(5):
        clock.after(1.0, made.append, number)
    clock.after(0.5, made.append, "first")
    clock.run(0.75)
    assert made == ["first"]
    assert clock.now == 0.75
    clock.run(1.0)
    assert made == ["first", 0, 1, 2, 3, 4]
