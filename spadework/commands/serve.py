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
        help="host:port to listen on; port 0 picks a free one (default: 127.0.0.1:50061)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="`process` isolates nothing: only for programs that you trust (default: nsjail)",
    )


def run(args: argparse.Namespace) -> int:
    from sandbox_server.__main__ import main

    return main(["--address", args.address, "--backend", args.backend]) or 0
