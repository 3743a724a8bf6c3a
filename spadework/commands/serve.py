"""Run a sandbox server until it is interrupted.

Prints one line of JSON with its address when it is ready. Stop it with Ctrl-C or SIGTERM:
it lets running calls end first.
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
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of the log on standard error (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    import asyncio
    import logging

    from sandbox_server.__main__ import serve
    from sandbox_server.config import ServerConfig
    from spadework import console

    if args.max_episodes is not None and args.max_episodes < 1:
        raise console.UsageError(f"--max-episodes is {args.max_episodes}; it must be at least 1")
    logging.basicConfig(
        level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    config = ServerConfig(
        address=args.address,
        backend=args.backend,
        runtimes=tuple(args.runtimes or ("stdlib",)),
        max_episodes=args.max_episodes or ServerConfig.max_episodes,
    )
    asyncio.run(serve(config))
    return console.OK
