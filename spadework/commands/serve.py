"""Run a sandbox server until it is interrupted.

Prints one line of JSON with its address when it is ready. Stop it with Ctrl-C or SIGTERM:
it takes nothing new then, and waits for live episodes to end. A second signal ends it at once.
"""

from __future__ import annotations

import argparse

from spadework.sandbox import BACKENDS

SUMMARY = "run a sandbox server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        default="127.0.0.1:50061",
        help="host:port to listen on (port 0 picks a free one) or unix:/path "
        "(default: 127.0.0.1:50061)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="`process` isolates nothing: only for programs that you trust (default: nsjail)",
    )
    parser.add_argument(
        "--runtime",
        action="append",
        dest="runtimes",
        metavar="NAME",
        help="runtime to offer, built at first use; may be repeated (default: stdlib)",
    )
    parser.add_argument(
        "--max-episodes", type=int, metavar="N", help="live episodes at most (default: 6000)"
    )
    parser.add_argument(
        "--drain-timeout-s",
        type=float,
        metavar="S",
        help="wait so long for live episodes after Ctrl-C or SIGTERM (default: 20)",
    )
    parser.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        default="",
        help="serve Prometheus metrics at http://HOST:PORT/metrics (default: nowhere)",
    )
    parser.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send OpenTelemetry traces there, as http://localhost:4317 (default: "
        "$OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere)",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="(default: text)"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of the log on standard error (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    import asyncio

    from sandbox_server.__main__ import serve
    from sandbox_server.config import ServerConfig
    from sandbox_server.telemetry import logs, traces
    from spadework import console

    if args.max_episodes is not None and args.max_episodes < 1:
        raise console.UsageError(f"--max-episodes is {args.max_episodes}; it must be at least 1")
    drain_timeout_s = args.drain_timeout_s
    if drain_timeout_s is None:
        drain_timeout_s = ServerConfig.drain_timeout_s
    logs.configure(args.log_format, args.log_level)
    config = ServerConfig(
        address=args.address,
        backend=args.backend,
        runtimes=tuple(args.runtimes or ("stdlib",)),
        max_episodes=args.max_episodes or ServerConfig.max_episodes,
        drain_timeout_s=drain_timeout_s,
        metrics_address=args.metrics_address,
        otlp_endpoint=args.otlp_endpoint or traces.endpoint_from_environment(),
    )
    asyncio.run(serve(config))
    return console.OK
