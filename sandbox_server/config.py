"""Settings of a server: every limit, queue and timeout, named and with units."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from sandbox_api.errors import InvalidRequestError
from sandbox_api.types import Limits

_MIB = 1024 * 1024

DEFAULT_LIMITS = Limits(
    step_timeout_s=10.0,
    load_timeout_s=20.0,
    cpu_time_s=60.0,
    memory_bytes=256 * _MIB,
    max_processes=1,
    max_open_files=32,
    scratch_bytes=16 * _MIB,
    scratch_inodes=256,
    max_observation_bytes=32 * 1024,
    max_info_bytes=32 * 1024,
    max_action_bytes=64 * 1024,
    max_output_bytes=_MIB,
    max_steps=1_000,
    idle_timeout_s=600.0,
    lifetime_s=7_200.0,
)

MAX_LIMITS = Limits(
    step_timeout_s=600.0,
    load_timeout_s=600.0,
    cpu_time_s=36_000.0,
    memory_bytes=16 * 1024 * _MIB,
    max_processes=128,
    max_open_files=1_024,
    scratch_bytes=1024 * _MIB,
    scratch_inodes=65_536,
    max_observation_bytes=4 * _MIB,
    max_info_bytes=4 * _MIB,
    max_action_bytes=4 * _MIB,
    max_output_bytes=1024 * _MIB,
    max_steps=100_000,
    idle_timeout_s=86_400.0,
    lifetime_s=604_800.0,
)


class AddressError(Exception):
    """The server cannot listen where it was asked to; the message says what to do."""


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one server.

    Attributes:
        address: "host:port" (port 0: any free one), "unix:/path", or "unix:" alone for a
            socket in a folder of the server's own.
        metrics_address: "host:port" (port 0: any free one) of the Prometheus metrics, which
            are not served when it is empty. They hold no secrets, and ask for none.
        otlp_endpoint: Where traces go, as "http://host:4317"; nowhere when it is empty.
        backend: "nsjail", "docker", or "process", which isolates nothing.
        runtimes: Runtimes to offer; each is built at the start if it is not there.
        max_episodes: Live episode processes at most; more is RESOURCE_EXHAUSTED.
        max_records: Episodes remembered at most, ended ones included; the oldest ended
            ones are forgotten first.
        max_record_bytes: What all records of episodes may take, transcripts included: over it,
            ended ones are forgotten, and live ones take no further step while they alone
            are over it.
        max_programs: Programs remembered at most.
        max_program_bytes: Source of one program.
        max_options_bytes: Options of one episode.
        max_batch_items: Items in one call.
        max_pending_items: Items in work in all calls together.
        max_spawns_in_flight: Forks that a zygote is asked for ahead; bounds how long a
            kill waits behind them.
        jail_memory_bytes: Memory of one jail, by cgroup where there is one; 0 means four
            fifths of the machine's.
        jail_cpus: CPUs of one jail of the docker backend; 0 means all of the machine's.
        docker_runtime: Which of the daemon's runtimes the docker backend uses, as "runsc";
            empty for the daemon's default.
        retry_delay_s: What a client is told to wait when the server is full.
        kill_timeout_s: How long a killed process may take to be gone before the item is
            answered anyway.
        drain_timeout_s: How long a server that was told to end (SIGTERM, SIGINT) waits for its
            live episodes. With `stop_grace_s` after it, within the 30 s that Kubernetes
            gives by default; `docker stop` gives 10 (raise it with --stop-timeout).
        stop_grace_s: How long calls in flight may take after that.
    """

    address: str = "127.0.0.1:50061"
    metrics_address: str = ""
    otlp_endpoint: str = ""
    backend: str = "nsjail"
    runtimes: tuple[str, ...] = ("stdlib",)
    default_limits: Limits = DEFAULT_LIMITS
    max_limits: Limits = MAX_LIMITS
    max_episodes: int = 6_000
    max_records: int = 50_000
    max_record_bytes: int = 2 * 1024 * _MIB
    max_programs: int = 10_000
    max_program_bytes: int = _MIB
    max_options_bytes: int = 256 * 1024
    max_batch_items: int = 8_192
    max_pending_items: int = 32_768
    max_spawns_in_flight: int = 8
    jail_memory_bytes: int = 0
    jail_cpus: float = 0.0
    docker_runtime: str = ""
    retry_delay_s: float = 0.5
    kill_timeout_s: float = 5.0
    drain_timeout_s: float = 20.0
    stop_grace_s: float = 5.0

    def resolve_limits(self, asked: Limits) -> Limits:
        """Fill in defaults and hold to the maxima.

        Raises:
            InvalidRequestError: If a limit is negative or over the server's maximum.
        """
        filled = {}
        for field in fields(Limits):
            value = getattr(asked, field.name)
            most = getattr(self.max_limits, field.name)
            if not 0 <= value <= most:
                raise InvalidRequestError(
                    f"limits.{field.name} is {value:g}; this server allows 0 (its default) "
                    f"to {most:g}"
                )
            filled[field.name] = value or min(getattr(self.default_limits, field.name), most)
        return replace(asked, **filled)
