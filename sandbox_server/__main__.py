"""Runs one server in the foreground: `python -m sandbox_server --address ...`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys

from sandbox_server import cache, doctor, runtime, state
from sandbox_server.backends import BACKENDS, BackendError
from sandbox_server.config import AddressError, ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.service import Server
from sandbox_server.telemetry import logs, traces

_log = logging.getLogger("sandbox_server")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the server's options; `spadework serve` shares them."""
    defaults = ServerConfig()
    parser.add_argument(
        "--address",
        default=defaults.address,
        help="host:port (port 0: any free one), unix:/path, or unix: alone for a socket that only "
        "this user can reach; default %(default)s",
    )
    parser.add_argument(
        "--backend",
        choices=sorted(BACKENDS),
        default=defaults.backend,
        help="nsjail, docker, or process, which isolates nothing; default %(default)s",
    )
    parser.add_argument(
        "--docker-runtime",
        default=defaults.docker_runtime,
        metavar="NAME",
        help="with --backend docker: which of the daemon's runtimes to use, as runsc; "
        "default: the daemon's own",
    )
    parser.add_argument(
        "--runtime",
        action="append",
        dest="runtimes",
        metavar="NAME",
        help="runtime to offer, built at first use; may be given several times; default stdlib",
    )
    parser.add_argument(
        "--max-episodes",
        type=int,
        default=defaults.max_episodes,
        help="live episodes at most; default %(default)s",
    )
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="exit when standard input closes: the server then never outlives who started it",
    )
    parser.add_argument(
        "--drain-timeout-s",
        type=float,
        metavar="S",
        default=defaults.drain_timeout_s,
        help="wait so long for live episodes after SIGTERM or Ctrl-C; a second signal ends the "
        "wait; default %(default)g",
    )
    parser.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        default=defaults.metrics_address,
        help="serve Prometheus metrics at http://HOST:PORT/metrics; default: nowhere",
    )
    parser.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        default=traces.endpoint_from_environment(),
        help="send OpenTelemetry traces there, as http://localhost:4317; default: "
        "$OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere",
    )
    parser.add_argument(
        "--log-format", choices=logs.FORMATS, default="text", help="default %(default)s"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        type=str.lower,
        default="info",
        help="default %(default)s",
    )


def config_from(arguments: argparse.Namespace) -> ServerConfig:
    return ServerConfig(
        address=arguments.address,
        backend=arguments.backend,
        docker_runtime=arguments.docker_runtime,
        runtimes=tuple(arguments.runtimes or ["stdlib"]),
        max_episodes=arguments.max_episodes,
        drain_timeout_s=arguments.drain_timeout_s,
        metrics_address=arguments.metrics_address,
        otlp_endpoint=arguments.otlp_endpoint,
    )


async def serve(config: ServerConfig, *, exit_with_stdin: bool = False) -> None:
    """Serve until SIGTERM, SIGINT or, if asked, the end of standard input.

    Prints one line of JSON with the address when it is ready. A signal drains: live episodes
    may go on to their ends for `drain_timeout_s`. A second one ends at once. The end of
    standard input ends at once, too: whoever the episodes were for is gone.

    Raises:
        AddressError, BackendError, RuntimeBuildError, StateFolderError, TracingError: If it
            cannot serve as asked.
    """
    doctor.limits.raise_open_files(config.max_episodes)
    doctor.require(config)
    if config.backend == "process":
        _log.warning("backend `process` isolates nothing: do not run code you do not trust")
    runtimes = {name: runtime.ensure(name) for name in config.runtimes}
    cache.tidy()
    state.reap_dead()
    told, hurried = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurried if told.is_set() else told).set()

    def on_stdin() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            told.set()
            hurried.set()

    loop = asyncio.get_running_loop()
    if exit_with_stdin:
        try:
            loop.add_reader(0, on_stdin)
        except OSError:
            raise BackendError(
                "--exit-with-stdin needs a pipe, a socket or a terminal as standard input, "
                "which a file or /dev/null is not"
            ) from None
    if config.address == "unix:":
        config = dataclasses.replace(config, address=f"unix:{state.folder()}/socket")
    try:
        if config.otlp_endpoint:
            traces.start(config.otlp_endpoint)
        server = Server(Engine(config, runtimes))
        address = await server.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        print(json.dumps({"address": address}), flush=True)
        await told.wait()
        await server.drain(hurried)
        await server.stop(at_once=hurried.is_set())
        await traces.stop()
    finally:
        state.remove()


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandbox_server", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    logs.configure(arguments.log_format, arguments.log_level)
    try:
        asyncio.run(serve(config_from(arguments), exit_with_stdin=arguments.exit_with_stdin))
    except (
        AddressError,
        BackendError,
        runtime.RuntimeBuildError,
        state.StateFolderError,
        traces.TracingError,
    ) as error:
        print(f"sandbox_server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
