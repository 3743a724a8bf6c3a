"""Write report.html into a run's folder: curves, environments, transcripts, offline.

Prints the path of the report.
"""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "write a run's report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="folder of a run")
    parser.add_argument("--json", action="store_true", help='print {"report": PATH}')


def run(args: argparse.Namespace) -> int:
    from spadework import console

    if not args.run_dir.is_dir():
        raise console.CommandError(f"{args.run_dir} is no folder; name one under runs/")
    if not (args.run_dir / "metrics.jsonl").exists():
        raise console.CommandError(
            f"{args.run_dir} holds no metrics.jsonl, so it is no run of `spadework train`"
        )
    from spadework.report import write_report

    path = write_report(args.run_dir)
    if args.json:
        console.print_json({"report": str(path)})
    else:
        print(path)
    return console.OK
