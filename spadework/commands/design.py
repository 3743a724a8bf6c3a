"""Write environments and put them through the gates.

Without --model or --endpoint, specifications are drawn at random: no model is needed. The
folder --out receives a .py file for each environment that passes, environments.jsonl with
every draft and its verdict, and an archive.sqlite that remembers them; a folder that has them
is added to. Exits with 1 if none passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from designer import GateReport
    from spadework.writers import Writer

SUMMARY = "write environments and validate them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--number", type=int, default=8, help="environments to write (default: 8)"
    )
    parser.add_argument(
        "--method",
        choices=("structured", "free_code"),
        default="structured",
        help="a specification that is compiled, or a program (default: structured)",
    )
    parser.add_argument(
        "--skill",
        action="append",
        dest="skills",
        metavar="SKILL",
        help="skill to write for: math, logic, spatial, pattern, optim or causal; may be "
        "repeated (default: all)",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--model", metavar="NAME", help="model to write with, as in `train`")
    who.add_argument(
        "--endpoint", metavar="URL", help="OpenAI-compatible server to write with (.../v1)"
    )
    parser.add_argument("--endpoint-model", default="", metavar="NAME", help="its model")
    parser.add_argument(
        "--endpoint-key-variable",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable that holds its key (default: OPENAI_API_KEY)",
    )
    parser.add_argument(
        "--prompt-style",
        choices=("compact", "chat"),
        help="one line, for models made by `train` from scratch, or instructions "
        "(default: compact for --model tiny, else chat)",
    )
    parser.add_argument("--temperature", type=float, default=0.8, help="default: 0.8")
    parser.add_argument(
        "--max-tokens", type=int, default=4096, help="longest completion (default: 4096)"
    )
    parser.add_argument("--max-turns", type=int, default=12, help="turn cap (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="seeds prompts and sampling")
    parser.add_argument(
        "--out", type=Path, default=Path("designed"), help="folder to write to (default: designed)"
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.sandbox import server_address

    if args.number < 1 or args.max_turns < 1:
        raise console.UsageError("--number and --max-turns must be at least 1")
    if bool(args.endpoint) != bool(args.endpoint_model):
        raise console.UsageError("--endpoint and --endpoint-model go together")
    if args.method == "free_code" and not (args.model or args.endpoint):
        raise console.UsageError(
            "--method free_code needs --model or --endpoint: chance writes no programs"
        )
    _check_skills(args.skills or ())
    args.out.mkdir(parents=True, exist_ok=True)
    with server_address(args) as address:
        reports = asyncio.run(_design(args, address))
    rows = [_save(args.out, number, report) for number, report in enumerate(reports)]
    if args.json:
        console.print_json(rows)
    else:
        cells = [
            (str(n), r["family"] or r["skill"], r["reason"], r["file"] or r["detail"])
            for n, r in enumerate(rows)
        ]
        console.print_table("", ("", "family", "verdict", "file, or why not"), cells)
        passed = sum(report.passed for report in reports)
        print(f"{passed} of {len(reports)} passed; written to {args.out}")
    return console.OK if any(report.passed for report in reports) else console.NEGATIVE


def _check_skills(skills: Sequence[str]) -> None:
    from designer.families import SKILLS
    from spadework.console import UsageError

    for skill in skills:
        if skill not in SKILLS:
            raise UsageError(f"no skill {skill!r}; there are {', '.join(SKILLS)}")


def _writer(args: argparse.Namespace) -> Writer:
    from spadework.writers import EndpointWriter, ModelWriter, RandomWriter

    if args.endpoint:
        return EndpointWriter(
            args.endpoint, args.endpoint_model, args.endpoint_key_variable, args.temperature
        )
    if args.model:
        # Room for the prompt beside the completion.
        context_tokens = args.max_tokens + 4096
        return ModelWriter(args.model, args.temperature, context_tokens, args.seed)
    return RandomWriter()


async def _design(args: argparse.Namespace, address: str) -> list[GateReport]:
    from sandbox_api import AsyncSandboxClient

    from designer import Archive, Designer
    from spadework import console

    writer = _writer(args)
    try:
        with (
            Archive(args.out / "archive.sqlite") as archive,
            console.progress("writing", args.number) as bar,
        ):
            async with AsyncSandboxClient(address) as client:
                designer = Designer(
                    client,
                    archive,
                    method=args.method,
                    skills=args.skills or (),
                    max_turns=args.max_turns,
                    seed=args.seed,
                    prompt_style=args.prompt_style
                    or ("compact" if args.model == "tiny" else "chat"),
                )
                step = archive.next_step()
                requests = designer.requests(args.number, step)
                texts = await writer.complete(requests, args.max_tokens)
                drafts = [
                    designer.parse(request, text)
                    for request, text in zip(requests, texts, strict=True)
                ]
                for number, draft in enumerate(drafts):
                    request = designer.hint_request(draft) if draft.reason is None else None
                    if request is not None:
                        (hint,) = await writer.complete([request], args.max_tokens)
                        drafts[number] = designer.accept_hint(draft, hint)
                bar.describe("validating")
                reports = await designer.validate(drafts)
                bar.advance(len(reports))
                for report in reports:
                    designer.remember(report, step)
                return reports
    finally:
        await writer.aclose()


def _save(folder: Path, number: int, report: GateReport) -> dict[str, Any]:
    """Write one draft down; returns what `--json` prints of it."""
    from spadework.commands.validate import report_json

    draft = report.draft
    file = ""
    if report.passed and draft.source is not None:
        path = folder / f"{draft.family or 'environment'}_{report.env_id[:12]}.py"
        path.write_text(draft.source, encoding="utf-8")
        file = str(path)
    row = {
        **report_json(report),
        "file": file,
        "skill": draft.request.skill,
        "method": draft.request.method,
        "family": draft.family,
        "spec": draft.spec,
        "hint": draft.hint,
    }
    line = {**row, "number": number, "source": draft.source, "completion": draft.completion}
    with (folder / "environments.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return row
