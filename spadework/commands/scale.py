"""Measure how the cost grows, and what many more episodes would need.

`measure` steps more and more episodes, programs and bytes, with one CPU and with two, and fits
curves; it goes on where it was interrupted, and its answer is no if something grows worse than
linearly. `page` feeds these figures to a simulation and writes the page about it, so that no
figure is typed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_server.options import BACKENDS

if TYPE_CHECKING:
    from spadework.scale.growth import Growth

SUMMARY = "measure how the cost grows, and simulate many more episodes"

_SECONDS, _ROUNDS = 0.5, 2
_QUICK_SECONDS, _QUICK_ROUNDS = 0.05, 1
# Of what is measured in the folder, and of what follows from it.
_FIGURES, _FINDINGS, _TABLES, _PICTURE = "growth.json", "findings.json", "growth.md", "growth.svg"

# What is written of the forecast; beside the page, in a folder, all that it is made of.
_PAGE, _PARTS, _FORECAST, _FORECAST_PICTURE = "scale.md", "scale", "forecast.json", "forecast.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    measure = parts.add_parser("measure", help="measure and fit")
    measure.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        required=True,
        help=f"write {_FIGURES}, {_FINDINGS}, {_TABLES} and {_PICTURE} there; a {_FIGURES} that "
        "is there is gone on with",
    )
    measure.add_argument(
        "--axes",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these of episodes, programs, observation and cpus (default: all)",
    )
    measure.add_argument(
        "--subject",
        default="sandbox",
        metavar="NAME",
        help="which of ours: sandbox, sandbox-group or sandbox-unprotected (default: sandbox)",
    )
    measure.add_argument(
        "--quick", action="store_true", help="a little of everything, to see that it runs"
    )
    measure.add_argument(
        "--seconds",
        type=float,
        help=f"seconds of one measurement (default: {_SECONDS:g}; quick: {_QUICK_SECONDS:g})",
    )
    measure.add_argument(
        "--rounds",
        type=int,
        help=f"rounds to take (default: {_ROUNDS}; quick: {_QUICK_ROUNDS})",
    )
    measure.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="of our server; `process` isolates nothing (default: nsjail)",
    )
    measure.add_argument("--json", action="store_true", help="print the findings as JSON")
    measure.set_defaults(run_part=_measure)
    page = parts.add_parser("page", help="simulate, and write the page")
    page.add_argument(
        "--figures",
        metavar="FOLDER",
        type=Path,
        required=True,
        help=f"where `measure` left its {_FIGURES}",
    )
    page.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        default=Path("docs"),
        help=f"write {_PAGE} there, and what it shows into {_PARTS} beside it (default: docs)",
    )
    page.set_defaults(run_part=_page)


def run(args: argparse.Namespace) -> int:
    return int(args.run_part(args))


def _measure(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.benchmark import rounds
    from spadework.benchmark.case import Case
    from spadework.scale import axes, findings, growth

    seconds = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    count = _rounds(args)
    if count < 1 or seconds <= 0:
        raise console.UsageError("--rounds and --seconds must be positive")
    for option, asked, there in (
        ("--axes", args.axes, list(axes.AXES)),
        ("--subject", [args.subject], list(axes.SUBJECTS)),
    ):
        for name in asked:
            if name not in there:
                raise console.UsageError(f"{option}: no {name!r}; there are {', '.join(there)}")
    wanted = axes.points(args.axes or list(list(axes.AXES)), few=args.quick)
    setting = growth.Setting(args.subject, args.backend, seconds, args.quick)
    file = args.out / _FIGURES
    known = growth.load(file)
    if known is not None and known.setting != setting:
        raise console.UsageError(
            f"{file} was measured with {known.setting}; remove it, or name another folder"
        )
    seen = known or growth.Growth(setting, _command(args))
    with (
        rounds.ending_on_sigterm(),
        console.progress("getting ready", len(wanted) * count) as bar,
    ):

        def show(case: Case) -> None:
            programs = f", {case.programs} programs" if case.programs > 1 else ""
            bar.describe(f"{case.program.name}, {case.episodes:,} episodes{programs}")

        def done() -> None:
            bar.advance()
            _write(args.out, {_FIGURES: json.dumps(seen.to_json(), indent=1) + "\n"})

        growth.measure(seen, wanted, count, on_trial=show, on_done=done)
    _write_findings(args.out, seen)
    if args.json:
        console.print_json(findings.to_json(seen))
    else:
        console.say(findings.to_markdown(seen))
    return console.NEGATIVE if findings.worse(findings.findings(seen)) else console.OK


def _page(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.scale import costs, curves, forecast, growth, page

    file = args.figures / _FIGURES
    seen = growth.load(file)
    if seen is None:
        raise console.CommandError(
            f"there is no {file}; `spadework scale measure --out {args.figures}` makes one"
        )
    read = costs.of(seen)
    with console.progress("simulating", forecast.questions()) as bar:
        answered = forecast.forecast(seen, read, forecast.Assumptions(), bar.advance)
    _write(
        args.out / _PARTS,
        {
            _FIGURES: json.dumps(seen.to_json()) + "\n",
            _FORECAST: json.dumps(answered.to_json(), indent=1) + "\n",
            _PICTURE: curves.draw(seen),
            _FORECAST_PICTURE: page.draw(answered),
        },
    )
    _write(args.out, {_PAGE: page.render(seen, answered)})
    console.say(f"{args.out / _PAGE}")
    return console.OK


def _rounds(args: argparse.Namespace) -> int:
    if args.rounds is not None:
        return int(args.rounds)
    return _QUICK_ROUNDS if args.quick else _ROUNDS


def _command(args: argparse.Namespace) -> str:
    """What to type for the same again."""
    words = [f"spadework scale measure --out {args.out}"]
    if args.axes:
        words.append(f"--axes {' '.join(args.axes)}")
    if args.quick:
        words.append("--quick")
    words += [
        f"--{name} {value:g}"
        for name in ("seconds", "rounds")
        if (value := getattr(args, name)) is not None
    ]
    words += [
        f"--{name} {getattr(args, name)}"
        for name, usual in (("subject", "sandbox"), ("backend", "nsjail"))
        if getattr(args, name) != usual
    ]
    return " ".join(words)


def _write_findings(folder: Path, seen: Growth) -> None:
    from spadework.scale import curves, findings

    _write(
        folder,
        {
            _FINDINGS: json.dumps(findings.to_json(seen), indent=1) + "\n",
            _TABLES: findings.to_markdown(seen) + "\n",
            _PICTURE: curves.draw(seen),
        },
    )


def _write(folder: Path, files: dict[str, str]) -> None:
    from spadework.console import CommandError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            # Whole or not at all: a run may be killed, and goes on with what it finds.
            aside = folder / f".{name}.new"
            aside.write_text(text)
            aside.replace(folder / name)
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror}") from error
