"""What a step, a call, a start and an episode's memory cost, as measured; for the simulation."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any

from spadework.console import CommandError
from spadework.scale import findings
from spadework.scale.axes import EPISODES
from spadework.scale.findings import Finding
from spadework.scale.growth import Growth, Sample

_MS = 1e-3


@dataclass(frozen=True)
class Costs:
    """CPU seconds of one core like the measured machine's, and MiB.

    Attributes:
        cpus: Of the measured machine.
        most_episodes: The most that were alive at once there.
        client_call_s: Of the caller, for a call, its items left out.
        server_call_s: Of the server, the same.
        client: CPU time of the caller in a batch, over episodes.
        server: Of the server, the same.
        environments: Of the environments, the same.
        start_server_s: Of the server, for a start.
        start_environment_s: Of the episode's process and its zygote.
        end_s: Of all, for the end of an episode.
        mib: Of an episode, the kernel's part included where it was seen.
    """

    cpus: int
    most_episodes: int
    client_call_s: float
    server_call_s: float
    client: Finding
    server: Finding
    environments: Finding
    start_server_s: float
    start_environment_s: float
    end_s: float
    mib: float

    def items(self, episodes: int) -> Items:
        """What an item costs with so many episodes alive on as many CPUs as were measured."""
        client = self.client.between(episodes) * _MS - self.client_call_s
        server = self.server.between(episodes) * _MS - self.server_call_s
        environments = self.environments.between(episodes) * _MS
        return Items(
            max(0.0, client) / episodes, max(0.0, server) / episodes, environments / episodes
        )

    @property
    def cold(self) -> Items:
        """The same with the most of them, whose memory is in no cache any more."""
        return self.items(self.most_episodes)

    @property
    def start_s(self) -> float:
        return self.start_server_s + self.start_environment_s

    def to_json(self) -> dict[str, Any]:
        """All of it but the curves, which are among the findings."""
        curves = ("client", "server", "environments")
        kept = [f.name for f in dataclasses.fields(self) if f.name not in curves]
        return {
            **{name: getattr(self, name) for name in kept},
            "cold": dataclasses.asdict(self.cold),
        }


@dataclass(frozen=True)
class Items:
    """CPU seconds of each side for an item."""

    client_s: float
    server_s: float
    environment_s: float


def of(growth: Growth) -> Costs:
    """Read the costs from a growth.

    Raises:
        CommandError: If it lacks what they are read from.
    """
    found = {f.quantity.name: f for f in findings.findings(growth) if f.quantity.axis == EPISODES}
    samples = growth.of(EPISODES)
    try:
        most = max(sample.episodes for sample in samples)
        last = [sample for sample in samples if sample.episodes == most]
        start, of_server = _median(last, "start_cpu_ms"), _median(last, "start_server_cpu_ms")
        seen_mib = (_median(last, "mib_per_episode"), _median(last, "machine_mib_per_episode"))
        assert growth.machine is not None
        return Costs(
            cpus=growth.machine.cpus,
            most_episodes=most,
            client_call_s=found[findings.BATCH_CLIENT].law.fixed * _MS,
            server_call_s=found[findings.BATCH_SERVER].law.fixed * _MS,
            client=found[findings.BATCH_CLIENT],
            server=found[findings.BATCH_SERVER],
            environments=found[findings.BATCH_ENVIRONMENTS],
            start_server_s=of_server * _MS,
            start_environment_s=(start - of_server) * _MS,
            end_s=_median(last, "close_cpu_ms") * _MS,
            mib=max(seen_mib),
        )
    except (KeyError, ValueError, statistics.StatisticsError) as error:
        raise CommandError(
            "these figures lack what a simulation needs: measure the axis `episodes` in full"
        ) from error


def _median(samples: list[Sample], name: str) -> float:
    return statistics.median(
        value for sample in samples if (value := getattr(sample.figures, name)) is not None
    )
