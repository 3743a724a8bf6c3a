"""A growth that nobody measured, with laws that are known."""

from __future__ import annotations

from spadework.benchmark.case import Figures
from spadework.benchmark.report import Machine
from spadework.scale import axes
from spadework.scale.growth import Growth, Sample, Setting

MACHINE = Machine("a CPU", 2, 24_000, "6", "3.11", 0.1, 0.1, 60.0)
# CPU us of a step: a call's fixed part, and each item's.
CLIENT, SERVER, ENVIRONMENTS = (500.0, 6.0), (600.0, 35.0), (20.0, 40.0)
START_MS, MIB = 4.5, 1.0


def figures(episodes: int, *, cpus: int = 2, programs: int = 1) -> Figures:
    client, server, environments = (
        fixed / episodes + each for fixed, each in (CLIENT, SERVER, ENVIRONMENTS)
    )
    step_us = client + server + environments
    batch_ms = 1e-3 * step_us * episodes / (1 if cpus == 1 else 1.5)
    return Figures(
        steps_per_s=1e3 * episodes / batch_ms,
        item_p50_ms=0.8 * batch_ms,
        item_p99_ms=batch_ms,
        client_cpu_us=client,
        server_cpu_us=server,
        environment_cpu_us=environments,
        mib_per_episode=MIB,
        machine_mib_per_episode=1.2 * MIB,
        programs_mib=0.01 * programs,
        register_cpu_ms=6.0,
        starts_per_s=400.0,
        start_cpu_ms=START_MS,
        start_server_cpu_ms=0.2 * START_MS,
        close_cpu_ms=0.5,
        close_all_s=0.1,
        other_cpus=0.02,
    )


def growth(rounds: int = 2) -> Growth:
    """Every point of every axis."""
    made = Growth(Setting("sandbox", "nsjail", 0.5, False), "spadework scale measure", MACHINE)
    for number in range(1, rounds + 1):
        for point in axes.points(list(axes.AXES), few=False):
            case = point.case("sandbox", "nsjail", 0.5, few=False)
            seen = figures(case.episodes, cpus=case.cpus, programs=case.programs)
            made.samples.append(Sample(point, number, case.episodes, seen))
    return made
