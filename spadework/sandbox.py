"""The sandbox server of a command: the one the user names, or one started for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from spadework.console import CommandError

BACKENDS = ("nsjail", "process")


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --server and --backend."""
    group = parser.add_argument_group("sandbox server")
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        help="host:port of a running server; without it one is started for this command",
    )
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="backend of the server started for this command; `process` isolates nothing: "
        "only for programs that you trust (default: nsjail)",
    )


@contextmanager
def server_address(args: argparse.Namespace) -> Iterator[str]:
    """The address of the server that `args` asks for, started if need be.

    Raises:
        CommandError: If a server cannot be started here.
    """
    if args.server:
        yield args.server
        return
    from sandbox_server import LocalServer

    try:
        server = LocalServer(backend=args.backend).__enter__()
    except (OSError, RuntimeError) as error:
        raise CommandError(
            f"no sandbox server could be started ({error}); `spadework doctor` says what is "
            "missing"
        ) from error
    try:
        yield server.address
    finally:
        server.__exit__(None, None, None)
