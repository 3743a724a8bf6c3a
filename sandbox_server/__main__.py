"""Runs one server in the foreground: `python -m sandbox_server --address ...`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import logging
import sys

from sandbox_server import cache, doctor, options, runtime, state
from sandbox_server.audit import AuditError
from sandbox_server.backends import BackendError
from sandbox_server.config import AddressError, ServerConfig
from sandbox_server.server import Server
from sandbox_server.shards import serving
from sandbox_server.shards.child import ShardError
from sandbox_server.shards.local import LocalFleet
from sandbox_server.stopping import Stop
from sandbox_server.telemetry import logs, traces
from sandbox_server.tenants import TenantFileError

_log = logging.getLogger("sandbox_server")

# Objects made since the last search of the youngest, and searches of a generation before that of
# the next older one; Python's own are 700, 10 and 10.
_GC_THRESHOLDS = (20_000, 5, 5)

# Why a server does not start, each with a message that says what to do.
REFUSALS = (
    AddressError,
    AuditError,
    BackendError,
    ShardError,
    TenantFileError,
    runtime.RuntimeBuildError,
    state.StateFolderError,
    traces.TracingError,
)


async def serve(config: ServerConfig, *, exit_with_stdin: bool = False) -> None:
    """Serve until SIGTERM, SIGINT or, if asked, the end of standard input.

    Prints one line of JSON with the address when it is ready. A signal drains: live episodes
    may go on to their ends for `drain_timeout_s`. A second one ends at once. The end of
    standard input ends at once, too: whoever the episodes were for is gone.

    Raises:
        REFUSALS: If it cannot serve as asked.
    """
    doctor.limits.raise_open_files(config.max_episodes)
    doctor.require(config)
    if config.backend == "process":
        _log.warning("backend `process` isolates nothing: do not run code you do not trust")
    runtimes = {name: runtime.ensure(name) for name in config.runtimes}
    cache.tidy()
    state.reap_dead()
    stop = Stop(with_stdin=exit_with_stdin)
    if config.address == "unix:":
        config = dataclasses.replace(config, address=f"unix:{state.folder()}/socket")
    try:
        if config.otlp_endpoint:
            traces.start(config.otlp_endpoint)
        server = Server(config, runtimes)
        address = await server.start()
        stop.on_signals()
        _collect_seldom()
        print(json.dumps({"address": address}), flush=True)
        await stop.told.wait()
        await server.drain(stop.hurried)
        await server.stop(at_once=stop.hurried.is_set())
        await traces.stop()
    finally:
        state.remove()


def _collect_seldom() -> None:
    """Look for cyclic garbage less often, and not at all in what there is from the start.

    A server makes next to none, and a full search goes through every episode: with 5,000 it
    stopped everything for 50 ms, again and again, and was an eighth of a step's CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def run_server(arguments: argparse.Namespace, *, exit_with_stdin: bool = False) -> None:
    """Serve as the options of `options.add_arguments` ask, until it is stopped.

    Raises:
        REFUSALS: If it cannot serve as asked.
    """
    logs.configure(arguments.log_format, arguments.log_level)
    config = options.config_from(arguments)
    shards, log = arguments.shards or 0, (arguments.log_format, arguments.log_level)
    if arguments.ray:
        from sandbox_server.shards.cluster import RayFleet

        fleet: serving.Fleet = RayFleet(config, shards, *log)
    elif shards:
        fleet = LocalFleet(config, shards, *log)
    else:
        asyncio.run(serve(config, exit_with_stdin=exit_with_stdin))
        return
    asyncio.run(serving.serve(config, fleet, exit_with_stdin=exit_with_stdin))


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandbox_server", description=__doc__)
    options.add_arguments(parser)
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="exit when standard input closes: the server then never outlives who started it",
    )
    arguments = parser.parse_args()
    try:
        run_server(arguments, exit_with_stdin=arguments.exit_with_stdin)
    except REFUSALS as error:
        print(f"sandbox_server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
