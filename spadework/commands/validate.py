"""Put environments through the gates that designed ones must pass, in the sandbox.

Exits with 0 if every file passes and with 1 if one is refused; the reason says why. UNJUDGED
is no verdict: the sandbox failed, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from designer import GateReport

SUMMARY = "check environments as designed ones are checked"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="Python source of a program"
    )
    parser.add_argument(
        "--max-turns", type=int, default=8, help="turn cap to validate under (default: 8)"
    )
    parser.add_argument("--hint", default="", help="hint to check with them")
    parser.add_argument("--runtime", default="", help="runtime of the server (default: stdlib)")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from designer import Reason
    from spadework import console
    from spadework.commands.play import read_source
    from spadework.sandbox import server_address

    if args.max_turns < 1:
        raise console.UsageError(f"--max-turns is {args.max_turns}; it must be at least 1")
    sources = [read_source(path) for path in args.files]
    with (
        server_address(args, [args.runtime]) as address,
        console.progress(f"validating {len(sources)} file(s)", None),
    ):
        reports = asyncio.run(_validate(address, sources, args))
    named = [
        {"file": str(path), **report_json(report)}
        for path, report in zip(args.files, reports, strict=True)
    ]
    if args.json:
        console.print_json(named)
    else:
        rows = [(r["file"], r["reason"], f"{r['cost_s']:.2f}", r["detail"]) for r in named]
        console.print_table("", ("file", "verdict", "s", "detail"), rows)
    if any(report.reason == Reason.UNJUDGED for report in reports):
        return console.FAILED
    return console.OK if all(report.passed for report in reports) else console.NEGATIVE


def report_json(report: GateReport) -> dict[str, Any]:
    """A gate report as JSON values, the program's source left out."""
    return {
        "passed": report.passed,
        "reason": str(report.reason),
        "detail": report.detail,
        "env_id": report.env_id,
        "cost_s": sum(report.cost_s.values()),
        "cost_by_gate_s": dict(report.cost_s),
    }


async def _validate(
    address: str, sources: list[str], args: argparse.Namespace
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
            )
            return await designer.validate(drafts)
