"""Measure steps a second: a C ping-pong (the floor), plain in-process exec, and ours.

Ours is end to end: client, gRPC, server, one locked-down process an episode. The three take
turns for some rounds, so that they share what else the machine does; medians are shown.
Needs a C compiler and a source checkout for the floor.
"""

from __future__ import annotations

import argparse

from spadework.sandbox import add_server_arguments

SUMMARY = "measure steps a second beside two references"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--episodes",
        type=int,
        nargs="+",
        default=[64, 1000],
        metavar="N",
        help="episodes at once (default: 64 1000)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="seconds of one measurement (default: 2)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take (default: 5)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from spadework import benchmark, console
    from spadework.sandbox import server_address

    if min(args.episodes) < 1 or args.rounds < 1 or args.seconds <= 0:
        raise console.UsageError("--episodes, --rounds and --seconds must be positive")
    measurements = len(args.episodes) * args.rounds * len(benchmark.SUBJECTS)
    with (
        server_address(args) as address,
        console.progress("measuring", measurements) as bar,
    ):
        report = benchmark.measure(
            address,
            episodes=args.episodes,
            seconds=args.seconds,
            rounds=args.rounds,
            on_measurement=bar.advance,
        )
    if args.json:
        console.print_json(report.to_json())
    else:
        print(report.to_markdown())
    return console.OK
