"""Settings of a server: every limit, queue and timeout, named and with units."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

from sandbox_api.errors import CapacityError, InvalidRequestError, QuotaError
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
    # A tree search of a thousand and more copies, all of one family.
    max_processes=2_048,
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


# Who everybody is on a server without tenants.
DEFAULT_TENANT = "default"


class AddressError(Exception):
    """The server cannot listen where it was asked to; the message says what to do."""


def default_address() -> str:
    """Where a server listens that is not told: at $SPADEWORK_ADDRESS, else on loopback."""
    return os.environ.get("SPADEWORK_ADDRESS") or ServerConfig.address


@dataclass(frozen=True)
class TenantConfig:
    """Who may use a server, and how much of it; see `tenants.py` for the file that says so.

    Attributes:
        name: Appears in logs, metrics and the audit log.
        token_sha256: Hex SHA-256 of its bearer token; empty where it has none.
        certificate: Common name, or a DNS name, of its client certificate;
            empty where it has none. A tenant with both must show both.
        weight: Its share of what is not given out by number, beside the others' weights; also
            of the CPU, where cgroups can be had.
        max_episodes: Live episodes at most; 0 means its share.
        max_programs: Programs remembered at most; 0 means its share.
        steps_per_s: Steps a second, with bursts of one second's worth; 0 means no bound.
        memory_bytes: Memory of all its jails, by cgroup; 0 means no bound of its own.
    """

    name: str
    token_sha256: str = ""
    certificate: str = ""
    weight: int = 1
    max_episodes: int = 0
    max_programs: int = 0
    steps_per_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one server, or of one tenant's part of it.

    Attributes:
        address: "host:port" (port 0: any free one), "unix:/path", or "unix:" alone for a
            socket in a folder of the server's own.
        metrics_address: "host:port" (port 0: any free one) of the Prometheus metrics, which
            are not served when it is empty. They hold no secrets, and ask for none.
        otlp_endpoint: Where traces go, as "http://host:4317"; nowhere when it is empty.
        backend: "nsjail", "docker", or "process", which isolates nothing.
        runtimes: Runtimes to offer; each is built at the start if it is not there.
        tenants: Who may use it; empty means anybody who reaches it.
        tls_certificate: PEM file of the server's certificate chain; empty means no TLS.
        tls_key: PEM file of its key.
        tls_client_ca: PEM file of what signs clients' certificates, which are then required.
        allow_unauthenticated: Let anybody in although the address is not this machine's alone.
        allow_plaintext: Take tokens without TLS although the address is not this machine's alone.
        audit_log: File that gets a line of JSON for each thing done; empty means none.
        shard: Name of this server among several behind one book; empty where it is alone.
        tenant: Whose part of the server this is; empty where there are no tenants.
        group_size: How many episodes of a program that asks for it share a process, in the
            process's whole life; 1 means that none do.
        max_episodes: Live episodes at most, those of groups included; more is
            RESOURCE_EXHAUSTED.
        max_records: Episodes remembered at most, ended ones included; the oldest ended
            ones are forgotten first.
        max_record_bytes: What all records of episodes may take, transcripts included: over it,
            ended ones are forgotten, and live ones take no further step while they alone
            are over it.
        max_programs: Programs remembered at most; the oldest are forgotten first.
        max_programs_bytes: What all of them may take, sources and compiled code.
        max_program_bytes: Source of one program.
        max_options_bytes: Options of one episode.
        max_batch_items: Items in one call.
        max_pending_items: Items in work in all calls together.
        max_streams: Streams of steps that are open at once; more is RESOURCE_EXHAUSTED.
        max_unread_bytes: Results that are ready and that clients have not read, in all calls
            together; over it, calls that would give more are refused. What was in work when it
            was reached may come on top.
        unread_timeout_s: How long a client may leave the next message of a call unread before
            the call is ended.
        request_timeout_s: How long the message of a call may take to come, and the next one of a
            stream: one that is idle for so long is ended.
        max_running_steps: With several tenants, steps and other items that run at once; each
            tenant has its share, and what is over waits at the server, so that one tenant's
            burst is not in front of another's step.
        max_steps_per_s: Steps a second; 0 means no bound.
        max_spawns_in_flight: Forks that a zygote is asked for ahead; bounds how long a
            kill waits behind them.
        spawn_timeout_s: From asking for a process to its first word, many others asked for before
            it included. A zygote that says nothing at all for so long is ended with its jail.
        jail_memory_bytes: Memory of one jail, by cgroup where there is one; 0 means four
            fifths of the machine's.
        jail_cpus: CPUs of one jail of the docker backend; 0 means all of the machine's.
        docker_runtime: Which of the daemon's runtimes the docker backend uses, as "runsc";
            empty for the daemon's default.
        tenant_memory_bytes: Memory of all jails together, by cgroup; 0 means no bound but
            those of the jails.
        cpu_weight: CPU of all jails beside other tenants', by cgroup; 100 is the usual.
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
    tenants: tuple[TenantConfig, ...] = ()
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    allow_unauthenticated: bool = False
    allow_plaintext: bool = False
    audit_log: str = ""
    shard: str = ""
    tenant: str = ""
    default_limits: Limits = DEFAULT_LIMITS
    max_limits: Limits = MAX_LIMITS
    group_size: int = 1
    max_episodes: int = 6_000
    max_records: int = 50_000
    max_record_bytes: int = 2 * 1024 * _MIB
    max_programs: int = 10_000
    max_programs_bytes: int = 2 * 1024 * _MIB
    max_program_bytes: int = _MIB
    max_options_bytes: int = 256 * 1024
    max_batch_items: int = 8_192
    max_pending_items: int = 32_768
    max_streams: int = 1_024
    max_unread_bytes: int = 1024 * _MIB
    unread_timeout_s: float = 60.0
    request_timeout_s: float = 30.0
    max_running_steps: int = 1_024
    max_steps_per_s: float = 0.0
    max_spawns_in_flight: int = 8
    spawn_timeout_s: float = 60.0
    jail_memory_bytes: int = 0
    jail_cpus: float = 0.0
    docker_runtime: str = ""
    tenant_memory_bytes: int = 0
    cpu_weight: int = 100
    retry_delay_s: float = 0.5
    kill_timeout_s: float = 5.0
    drain_timeout_s: float = 20.0
    stop_grace_s: float = 5.0

    def full(self, why: str, retry_delay_s: float = 0.0) -> CapacityError | QuotaError:
        """The error for what does not fit: a tenant is told that it is its own share.

        Args:
            why: What is full, and what to do.
            retry_delay_s: When it may fit; 0 means the usual delay.
        """
        delay_s = retry_delay_s or self.retry_delay_s
        if self.tenant:
            return QuotaError(f"tenant {self.tenant}: {why}", delay_s)
        return CapacityError(why, delay_s)

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
