"""The sandbox server of a command: the one the user names, or one started for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from sandbox_server.options import BACKENDS
from spadework.console import CommandError


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --server and --backend."""
    group = parser.add_argument_group("sandbox server")
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        help="host:port of a running server, to which SPADEWORK_TOKEN and SPADEWORK_TLS_CA, "
        "_CERTIFICATE and _KEY apply; without it one is started for this command",
    )
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="backend of the server started for this command; `process` isolates nothing: "
        "only for programs that you trust (default: nsjail)",
    )


@contextmanager
def server_address(args: argparse.Namespace, runtimes: Sequence[str] = ()) -> Iterator[str]:
    """The address of the server that `args` asks for, started if need be.

    Args:
        args: With what `add_server_arguments` adds.
        runtimes: Runtimes that a server started here must offer beside stdlib.

    Raises:
        CommandError: If a server cannot be started here, or the one named does not answer.
    """
    if args.server:
        _require_answer(args.server)
        yield args.server
        return
    from sandbox_server import LocalServer

    wanted = ("stdlib", *(name for name in runtimes if name not in ("", "stdlib")))
    try:
        server = LocalServer(backend=args.backend, runtimes=wanted)
    except (OSError, RuntimeError) as error:
        raise CommandError(str(error)) from error
    with closing(server):
        yield server.address


def _require_answer(address: str) -> None:
    """Find out at once that there is no server, before a folder is made or a model loaded."""
    from sandbox_api import SandboxClient, SandboxError

    try:
        with SandboxClient(address, max_retries=1) as client:
            client.server_info()
    except SandboxError as error:
        raise CommandError(
            f"no sandbox server answers at {address} ({error}); "
            "`spadework serve` runs one, and without --server one is started for the command"
        ) from error
