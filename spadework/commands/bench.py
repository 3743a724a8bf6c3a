"""Measure ours beside what else steps many environments: one run, everybody in turn.

A C ping-pong (what the kernel takes), `exec` in process, Gymnasium's vector environments,
OpenEnv's server and client, a fresh nsjail and Python a step, and ours end to end: client, gRPC,
server, one locked-down process an episode. Needs a C compiler and a source checkout; the
competitors are installed into an environment of their own on first use (250 MB).
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_server.options import BACKENDS

if TYPE_CHECKING:
    from spadework.benchmark.report import Report

SUMMARY = "measure steps a second, costs and starts beside others"

_SECONDS, _ROUNDS = 2.0, 3
_QUICK_SECONDS, _QUICK_ROUNDS = 0.1, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="write bench.json, table.md and plot.svg there"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a little of everything, to see that it runs"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="all subjects, sizes and programs, not only what the goals compare",
    )
    parser.add_argument(
        "--subjects",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these, in all their sizes: floor, exec, sync-vector, async-vector, openenv, "
        "fresh-jail, sandbox, and sandbox- with group, shards, direct or unprotected",
    )
    parser.add_argument(
        "--programs",
        nargs="+",
        default=[],
        metavar="NAME",
        help='only these of trivial, "1 ms", game and minigrid (default: trivial; with --full or '
        "--subjects, all)",
    )
    parser.add_argument(
        "--episodes",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="episodes at once, for all subjects (default: each subject's own, 1 to 5,000)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"seconds of one measurement (default: {_SECONDS:g}; quick: {_QUICK_SECONDS:g})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"rounds to take (default: {_ROUNDS}; quick: {_QUICK_ROUNDS})",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="of our server; `process` isolates nothing (default: nsjail)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.benchmark import plan, rounds, subjects
    from spadework.benchmark.case import Case
    from spadework.benchmark.programs import PROGRAMS
    from spadework.benchmark.report import in_rounds

    seconds = (
        (_QUICK_SECONDS if args.quick else _SECONDS) if args.seconds is None else args.seconds
    )
    count = (_QUICK_ROUNDS if args.quick else _ROUNDS) if args.rounds is None else args.rounds
    if min([*args.episodes, 1]) < 1 or count < 1 or seconds <= 0:
        raise console.UsageError("--episodes, --rounds and --seconds must be positive")
    for option, asked, known in (
        ("--subjects", args.subjects, subjects.SUBJECTS),
        ("--programs", args.programs, PROGRAMS),
    ):
        for name in asked:
            if name not in known:
                raise console.UsageError(f"{option}: no {name!r}; there are {', '.join(known)}")
    wanted = plan.Selection(args.subjects, args.programs, args.episodes, args.quick, args.full)
    with rounds.ending_on_sigterm(), rounds.floor_binary() as binary:
        settings = {"binary": str(binary), "backend": args.backend}
        cases = plan.cases(wanted, seconds, settings)
        if not cases:
            raise console.UsageError("none of these subjects runs any of these programs")
        minutes = max(1, round(count * sum(map(plan.estimated_s, cases)) / 60))
        console.announce(
            f"{len(cases)} cases, {in_rounds(count)}: about {minutes} min on "
            "an idle machine, more beside other work; the competitors' packages come on top once"
        )
        with console.progress("getting ready", len(cases) * count) as bar:

            def show(case: Case) -> None:
                bar.describe(f"{case.subject}, {case.program.name}, {case.episodes:,}")

            command = _command(args)
            for report in rounds.run(
                cases, count, command=command, on_trial=show, on_done=bar.advance
            ):
                # After each round: the next may be interrupted.
                if args.out:
                    _write(args.out, report)
    if args.json:
        console.print_json(report.to_json())
    else:
        print(report.to_markdown())
    return console.OK


def _command(args: argparse.Namespace) -> str:
    """What to type for the same again."""
    words = ["spadework bench"]
    words += [f"--{name}" for name in ("quick", "full") if getattr(args, name)]
    words += [
        f"--{name} {shlex.join(map(str, values))}"
        for name in ("subjects", "programs", "episodes")
        if (values := getattr(args, name))
    ]
    words += [
        f"--{name} {value:g}"
        for name in ("seconds", "rounds")
        if (value := getattr(args, name)) is not None
    ]
    if args.backend != "nsjail":
        words.append(f"--backend {args.backend}")
    return " ".join(words)


def _write(folder: Path, report: Report) -> None:
    from spadework.benchmark import plot
    from spadework.console import CommandError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.json").write_text(json.dumps(report.to_json(), indent=1) + "\n")
        (folder / "table.md").write_text(report.to_markdown() + "\n")
        (folder / "plot.svg").write_text(plot.draw(report))
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror}") from error
