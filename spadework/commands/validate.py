"""Put environments through the gates that designed ones must pass, in the sandbox.

A folder stands for all programs in it and below: .py files with a class whose name ends in Env.
Exits with 0 if every program passes and with 1 if one is refused; the reason says why, and
what to do about it. UNJUDGED is no verdict: the sandbox failed, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from designer import GateReport

SUMMARY = "check environments as designed ones are checked"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="*", metavar="FILE|DIR", help="programs, or folders of them"
    )
    parser.add_argument(
        "--max-turns", type=int, default=8, help="turn cap to validate under (default: 8)"
    )
    parser.add_argument("--hint", default="", help="hint to check with them")
    parser.add_argument("--runtime", default="", help="runtime of the server (default: stdlib)")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="also write JUnit XML, one test a program"
    )
    parser.add_argument(
        "--explain", metavar="REASON", help="say what a reason means and what to do, and end"
    )
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from designer import Reason
    from spadework import console
    from spadework.commands.play import read_source
    from spadework.sandbox import server_address

    if args.explain is not None:
        return _explain(args.explain)
    if args.max_turns < 1:
        raise console.UsageError(f"--max-turns is {args.max_turns}; it must be at least 1")
    files = programs_in(args.files)
    sources = [read_source(path) for path in files]
    with (
        server_address(args, [args.runtime]) as address,
        console.progress("validating", len(sources)) as bar,
    ):
        reports = asyncio.run(_validate(address, sources, args, lambda _: bar.advance()))
    _show(files, reports, args)
    if any(report.reason == Reason.UNJUDGED for report in reports):
        return console.FAILED
    return console.OK if all(report.passed for report in reports) else console.NEGATIVE


def programs_in(paths: Sequence[Path]) -> list[Path]:
    """The files to judge; of a folder, those that hold an environment.

    Raises:
        CommandError: If a folder holds none, or nothing is named.
    """
    from spadework import console

    if not paths:
        raise console.UsageError("name a file or a folder")
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(f for f in path.rglob("*.py") if f.is_file() and not _hidden(f, path))
        programs = [file for file in found if _holds_environment(file)]
        if not programs:
            raise console.CommandError(
                f"no environment in {path}: {len(found)} .py files, and no class in them whose "
                "name ends in Env"
            )
        if others := len(found) - len(programs):
            console.announce(f"{path}: {others} .py files without an environment are left out")
        files += programs
    return list(dict.fromkeys(files))


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _holds_environment(file: Path) -> bool:
    """Whether it has an environment's class; a file that cannot be read so may well."""
    try:
        with warnings.catch_warnings():
            # What an escape in a stranger's text is worth is not what is asked here.
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return b"Env" in file.read_bytes()
    return any(isinstance(n, ast.ClassDef) and n.name.endswith("Env") for n in tree.body)


def _explain(code: str) -> int:
    from designer import Reason
    from designer.findings import ADVICE
    from designer.meanings import MEANINGS
    from spadework import console

    try:
        reason = Reason(code.upper())
    except ValueError:
        raise console.UsageError(f"no reason {code!r}; there are {', '.join(Reason)}") from None
    console.say(f"{reason}: {MEANINGS[reason]}")
    if reason in ADVICE:
        console.say(f"What to do: {ADVICE[reason]}")
    return console.OK


def _show(files: Sequence[Path], reports: Sequence[GateReport], args: argparse.Namespace) -> None:
    from spadework import console
    from spadework.explanations import explain
    from spadework.junit import Case, junit_xml

    explained = [
        "" if report.passed else explain(str(path), report)
        for path, report in zip(files, reports, strict=True)
    ]
    if args.junit is not None:
        cases = [
            Case(str(path), str(r.reason), r.detail, text, sum(r.cost_s.values()))
            for path, r, text in zip(files, reports, explained, strict=True)
        ]
        try:
            args.junit.parent.mkdir(parents=True, exist_ok=True)
            args.junit.write_text(junit_xml(cases), encoding="utf-8")
        except OSError as error:
            raise console.CommandError(f"cannot write {args.junit}: {error.strerror}") from error
    if args.json:
        named = zip(files, reports, strict=True)
        console.print_json([{"file": str(path), **report_json(r)} for path, r in named])
        return
    rows = [
        (str(path), str(r.reason), f"{sum(r.cost_s.values()):.2f}")
        for path, r in zip(files, reports, strict=True)
    ]
    console.print_table("", ("program", "verdict", "s"), rows)
    for text in filter(None, explained):
        console.say(f"\n{text}")
    passed = sum(report.passed for report in reports)
    if len(reports) > 1:
        console.say(f"\n{passed} of {len(reports)} passed.")


def report_json(report: GateReport) -> dict[str, Any]:
    """A gate report as JSON values, the program's source left out."""
    from spadework.explanations import finding_json

    return {
        "passed": report.passed,
        "reason": str(report.reason),
        "detail": report.detail,
        "env_id": report.env_id,
        "cost_s": sum(report.cost_s.values()),
        "cost_by_gate_s": dict(report.cost_s),
        "finding": finding_json(report.finding) if report.finding is not None else None,
    }


async def _validate(
    address: str,
    sources: list[str],
    args: argparse.Namespace,
    on_report: Callable[[GateReport], None],
) -> list[GateReport]:
    from sandbox_api import AsyncSandboxClient

    from designer import Archive, Designer, DesignRequest, Draft

    drafts = [
        Draft(
            request=DesignRequest(
                slot=slot,
                skill="",
                method="free_code",
                messages=[],
                json_schema=None,
                max_turns=args.max_turns,
                seed=0,
            ),
            completion=source,
            source=source,
            hint=args.hint or None,
        )
        for slot, source in enumerate(sources)
    ]
    async with AsyncSandboxClient(address) as client:
        with Archive(":memory:") as archive:
            designer = Designer(
                client,
                archive,
                method="free_code",
                max_turns=args.max_turns,
                seed=0,
                runtime=args.runtime,
                # Files that are alike are somebody's own business; copies are worth a word.
                twin_similarity=2.0,
            )
            return await designer.validate(drafts, on_report)
