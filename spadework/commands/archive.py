"""Look into an archive of environments, and exchange environments with others.

    spadework archive list ARCHIVE          what it holds, one line each
    spadework archive show ARCHIVE ENV_ID   one of them whole; the beginning of its id will do
    spadework archive export ARCHIVE FILE   to .jsonl or .parquet, one environment a row
    spadework archive import ARCHIVE FILE   from such a file
    spadework archive opinions ARCHIVE      what a model thought can be solved, against what could

ARCHIVE is the file archive.sqlite, or the folder of a run that has one. What is imported has been
judged by nobody, whatever its file says; --validate puts it through the gates.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from designer import Archive
    from designer.entries import Entry
    from designer.pools import PoolRows

SUMMARY = "list, show, export and import environments"
ARCHIVE_FILE = "archive.sqlite"
# Imported environments were designed at no step.
IMPORTED_STEP = -1
# Of the rows that an import refuses; the rest is counted.
_SHOWN_REFUSALS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in (
        ("list", "what an archive holds"),
        ("show", "one environment whole"),
        ("export", "write a pool that others can import"),
        ("import", "take in the environments of a pool"),
        ("opinions", "a model's opinions against the oracle and the players"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        action.add_argument("archive", type=Path, metavar="ARCHIVE")
        if name == "show":
            action.add_argument("env_id", metavar="ENV_ID")
        if name in ("export", "import"):
            action.add_argument("file", type=Path, metavar="FILE")
        if name in ("list", "export"):
            _add_filters(action)
        if name == "import":
            action.add_argument(
                "--validate", action="store_true", help="put them through the gates at once"
            )
            action.add_argument(
                "--max-turns",
                type=int,
                default=12,
                help="turn cap to validate (default: 12)",
            )
            action.add_argument("--runtime", default="", help="runtime of the server")
            add_server_arguments(action)
        if name != "export":
            action.add_argument("--json", action="store_true", help="print JSON")


def _add_filters(action: argparse.ArgumentParser) -> None:
    action.add_argument("--skill", default="")
    action.add_argument("--kind", default="", help="GAME, TOOL_USE or GYMNASIUM")
    action.add_argument("--regime", default="", help="frontier, mastered, intractable, ...")
    action.add_argument("--reason", default="", help="verdict of the gates, such as OK or FUZZ")
    action.add_argument("--step", type=int, help="training step that designed it")
    action.add_argument(
        "--all", action="store_true", help="refused and unjudged ones, too (default: passed ones)"
    )


def run(args: argparse.Namespace) -> int:
    from designer import Archive, ArchiveError
    from designer.pools import PoolError
    from spadework import console

    path = args.archive / ARCHIVE_FILE if args.archive.is_dir() else args.archive
    if not path.is_file() and args.action != "import":
        raise console.CommandError(f"there is no archive {path}")
    try:
        with Archive(path) as archive:
            return _ACTIONS[args.action](args, archive)
    except (ArchiveError, PoolError) as error:
        raise console.CommandError(str(error)) from error


def _entries(args: argparse.Namespace, archive: Archive) -> list[Entry]:
    from designer.entries import PASSED, EntryFilter

    return archive.entries(
        EntryFilter(
            kind=args.kind.upper(),
            skill=args.skill,
            regime=args.regime,
            reason=args.reason.upper() or ("" if args.all else PASSED),
            step=args.step,
        )
    )


def _list(args: argparse.Namespace, archive: Archive) -> int:
    from spadework import console

    entries = _entries(args, archive)
    if args.json:
        console.print_json([entry_json(entry, whole=False) for entry in entries])
        return console.OK
    rows = [
        (
            entry.env_id[:12] if entry.passed else entry.env_id[:20],
            entry.family or entry.skill or entry.kind.lower(),
            "imported" if entry.step < 0 else str(entry.step),
            entry.reason,
            entry.regime,
            _number(entry.return_plain),
            _number(entry.regret, "+") + (f" ±{entry.regret_se:.2f}" if entry.regret_se else ""),
        )
        for entry in entries
    ]
    columns = ("id", "family", "step", "verdict", "regime", "return", "regret")
    console.print_table("", columns, rows)
    console.say(f"{len(entries)} environments")
    return console.OK


def _show(args: argparse.Namespace, archive: Archive) -> int:
    from designer.entries import EntryFilter
    from spadework import console
    from spadework.explanations import explain_finding

    matching = archive.entries(EntryFilter(env_id=args.env_id))
    exact = [entry for entry in matching if entry.env_id == args.env_id]
    if len(exact or matching) != 1:
        some = f"{len(matching)} environments begin with"
        what = some if matching else "no environment is called"
        raise console.CommandError(f"{what} {args.env_id!r}; `spadework archive list --all`")
    (entry,) = exact or matching
    if args.json:
        console.print_json(entry_json(entry, whole=True))
        return console.OK
    for name, value in entry_json(entry, whole=False).items():
        if value not in ("", None, []):
            console.say(f"{name:>15}: {value}")
    found = explain_finding(entry.env_id, entry.source, entry.finding) if entry.finding else ""
    for title, text in (("finding", found), ("hint", entry.hint), ("source", entry.source)):
        if text:
            console.say(f"\n-- {title} --\n{text}")
    return console.OK


def _export(args: argparse.Namespace, archive: Archive) -> int:
    from designer.pools import pool_row, write_pool
    from spadework import console

    rows, skipped = [], 0
    for entry in _entries(args, archive):
        try:
            rows.append(pool_row(entry))
        except (SyntaxError, ValueError, RecursionError):
            # A refused draft need not be a program.
            skipped += 1
    if not rows:
        raise console.CommandError("no environment to export; --all exports refused ones, too")
    write_pool(args.file, rows)
    console.say(f"{len(rows)} environments written to {args.file}")
    if skipped:
        console.announce(f"{skipped} drafts that are no programs are left out")
    return console.OK


def _import(args: argparse.Namespace, archive: Archive) -> int:
    from designer.pools import read_pool
    from designer.twins import program_key
    from spadework import console

    if args.max_turns < 1:
        raise console.UsageError("--max-turns must be at least 1")
    from designer.entries import EntryFilter

    known = []
    for entry in archive.entries(EntryFilter()):
        try:
            known.append(program_key(entry.source))
        except (SyntaxError, ValueError, RecursionError):
            continue
    rows = read_pool(args.file, known)
    reasons = _take_in(args, archive, rows)
    passed = reasons.count("OK")
    if args.json:
        console.print_json(
            {
                "imported": len(rows.kept),
                "passed": passed,
                "twins": len(rows.twins),
                "refused": [{"row": number, "why": why} for number, why in rows.refused],
            }
        )
    else:
        for number, why in rows.refused[:_SHOWN_REFUSALS]:
            console.print_error(f"{args.file}:{number}: {why}")
        if (more := len(rows.refused) - _SHOWN_REFUSALS) > 0:
            console.print_error(f"{more} more rows are refused")
        judged = f"{passed} of them passed the gates" if args.validate else "judged by nobody yet"
        console.say(
            f"{len(rows.kept)} imported, {judged}; {len(rows.twins)} were there already; "
            f"{len(rows.refused)} refused"
        )
    return console.NEGATIVE if rows.refused else console.OK


def _take_in(args: argparse.Namespace, archive: Archive, rows: PoolRows) -> list[str]:
    from designer import GateReport, Reason
    from spadework.sandbox import server_address

    drafts = [row.draft(slot, args.max_turns) for slot, row in enumerate(rows.kept)]
    if args.validate and drafts:
        with server_address(args, [args.runtime]) as address:
            reports = asyncio.run(_judge(args, address, drafts))
    else:
        detail = "imported, and judged by nobody"
        reports = [GateReport(draft, str(Reason.UNJUDGED), detail) for draft in drafts]
    for row, report in zip(rows.kept, reports, strict=True):
        archive.record_import(report, row.key, IMPORTED_STEP)
    return [str(report.reason) for report in reports]


async def _judge(args: argparse.Namespace, address: str, drafts: list[Any]) -> list[Any]:
    from sandbox_api import AsyncSandboxClient

    from designer.designer import DEFAULT_LIMITS
    from designer.gates import Gates
    from spadework import console

    with console.progress("validating", len(drafts)) as bar:
        async with AsyncSandboxClient(address) as client:
            gates = Gates(client, limits=DEFAULT_LIMITS, runtime=args.runtime)
            return await gates.judge(drafts, lambda _: bar.advance())


def entry_json(entry: Entry, *, whole: bool) -> dict[str, Any]:
    """An entry as JSON values.

    Args:
        entry: What the archive says.
        whole: With its source, hint and finding.
    """
    values = {**asdict(entry), "parents": list(entry.parents)}
    if not whole:
        for name in ("source", "hint", "finding"):
            del values[name]
    return values


def _opinions(args: argparse.Namespace, archive: Archive) -> int:
    from designer.entries import EntryFilter
    from designer.opinions import confusion, solved_by_oracle, solved_by_players
    from spadework import console
    from trainer.statistics import wilson_interval

    entries = archive.entries(EntryFilter())
    found = {
        "oracle": confusion(entries, solved_by_oracle),
        "players": confusion(entries, solved_by_players),
    }
    if args.json:
        console.print_json({name: asdict(counts) for name, counts in found.items()})
        return console.OK
    rows = []
    for name, counts in found.items():
        precision = wilson_interval(counts.right_yes, counts.yes)
        recall = wilson_interval(counts.right_yes, counts.solvable)
        rows.append(
            (
                name,
                *map(str, asdict(counts).values()),
                _share(counts.right_yes, counts.yes, precision),
                _share(counts.right_yes, counts.solvable, recall),
            )
        )
    columns = (
        "solved by",
        "right yes",
        "wrong yes",
        "right no",
        "wrong no",
        "precision",
        "recall",
    )
    console.print_table("", columns, rows)
    asked = sum(entry.opinion is not None for entry in entries)
    console.say(f"{asked} opinions; shares with their 95% Wilson intervals")
    return console.OK


def _share(successes: int, trials: int, interval: tuple[float, float]) -> str:
    if not trials:
        return ""
    low, high = interval
    return f"{successes / trials:.2f}\n{low:.2f} to {high:.2f}"


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.2f}"


_ACTIONS = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "opinions": _opinions,
}
