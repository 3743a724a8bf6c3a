"""Run a sandbox server until it is interrupted.

Prints one line of JSON with its address when it is ready. Stop it with Ctrl-C or SIGTERM:
it takes nothing new then, and waits for live episodes to end. A second signal ends it at once.
"""

from __future__ import annotations

import argparse

from sandbox_server import options

SUMMARY = "run a sandbox server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from sandbox_server.__main__ import REFUSALS, run_server
    from spadework import console

    try:
        run_server(args)
    except REFUSALS as error:
        raise console.CommandError(str(error)) from error
    return console.OK
