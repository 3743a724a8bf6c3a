"""Options of the command line that runs a server; `spadework serve` has the same.

Imports nothing but the standard library, so that help is instant.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_server.config import ServerConfig

BACKENDS = ("nsjail", "docker", "process")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the server's options; those not given are left to ServerConfig."""
    add = parser.add_argument
    add(
        "--address",
        help="host:port (port 0: any free one), unix:/path, or unix: alone for a socket that only "
        "this user can reach (default: $SPADEWORK_ADDRESS, else 127.0.0.1:50061)",
    )
    add(
        "--backend",
        choices=BACKENDS,
        help="`process` isolates nothing: only for programs that you trust (default: nsjail)",
    )
    add(
        "--runtime",
        action="append",
        dest="runtimes",
        metavar="NAME",
        help="runtime to offer, built at first use; may be repeated (default: stdlib)",
    )
    add(
        "--docker-runtime",
        metavar="NAME",
        help="with --backend docker: which of the daemon's runtimes to use, as runsc (default: "
        "the daemon's own)",
    )
    add(
        "--max-episodes",
        type=_positive,
        metavar="N",
        help="live episodes at most (default: 6000)",
    )
    add(
        "--group-size",
        type=_positive,
        metavar="N",
        help="group mode: N episodes of a program that asks for it share a process, and are not "
        "isolated from each other (default: 1, which is off)",
    )
    add(
        "--drain-timeout-s",
        type=_seconds,
        metavar="S",
        help="wait so long for live episodes after SIGTERM or Ctrl-C; a second signal ends the "
        "wait (default: 20)",
    )
    many = parser.add_argument_group("several servers behind one address")
    add = many.add_argument
    add(
        "--shards",
        type=_positive,
        metavar="N",
        help="run N servers, which share this machine's bounds and are started again when they "
        "die; the address is then that of their book, and clients go to each by themselves",
    )
    add(
        "--ray",
        action="store_true",
        help="have Ray run the shards on the nodes of its cluster ($RAY_ADDRESS, else this "
        "machine's), with the bounds for each node; without --shards one on each",
    )
    who = parser.add_argument_group("who may use it")
    add = who.add_argument
    add("--tenants", metavar="FILE", help="TOML file of tenants, their tokens and quotas")
    add("--tls-certificate", metavar="FILE", help="PEM of the server's certificate chain")
    add("--tls-key", metavar="FILE", help="PEM of its key")
    add(
        "--tls-client-ca",
        metavar="FILE",
        help="PEM of what signs clients' certificates, which are then required (mutual TLS)",
    )
    add(
        "--allow-unauthenticated",
        action="store_true",
        help="let anybody in who reaches an address that is not this machine's alone",
    )
    add(
        "--allow-plaintext",
        action="store_true",
        help="take tokens without TLS on an address that is not this machine's alone",
    )
    add("--audit-log", metavar="FILE", help="append a line of JSON for each thing done")
    told = parser.add_argument_group("what it tells")
    add = told.add_argument
    add(
        "--metrics-address",
        metavar="HOST:PORT",
        help="serve Prometheus metrics at http://HOST:PORT/metrics (default: nowhere)",
    )
    add(
        "--otlp-endpoint",
        metavar="URL",
        help="send OpenTelemetry traces there, as http://localhost:4317 (default: "
        "$OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere)",
    )
    add("--log-format", choices=("text", "json"), default="text", help="(default: text)")
    add(
        "--log-level",
        type=str.lower,
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of the log on standard error (default: info)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it is {number}; it must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"it is {text}; it must be a number of seconds")
    return number


_SETTINGS = (
    "address",
    "backend",
    "max_episodes",
    "group_size",
    "docker_runtime",
    "drain_timeout_s",
    "metrics_address",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "allow_unauthenticated",
    "allow_plaintext",
    "audit_log",
)


def config_from(arguments: argparse.Namespace) -> ServerConfig:
    """The settings that the options ask for.

    Raises:
        TenantFileError: If the tenants file cannot be used.
    """
    from sandbox_server.config import ServerConfig, default_address
    from sandbox_server.telemetry import traces
    from sandbox_server.tenants import read_tenants

    given: dict[str, Any] = {
        name: value for name in _SETTINGS if (value := getattr(arguments, name)) is not None
    }
    given.setdefault("address", default_address())
    given["otlp_endpoint"] = arguments.otlp_endpoint or traces.endpoint_from_environment()
    if arguments.runtimes:
        given["runtimes"] = tuple(arguments.runtimes)
    if arguments.tenants:
        given["tenants"] = read_tenants(arguments.tenants)
    return ServerConfig(**given)
