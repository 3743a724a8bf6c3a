"""Write environments and put them through the gates.

Without --model or --endpoint, specifications are drawn at random: no model is needed. The
folder --out receives a .py file for each environment that passes, environments.jsonl with
every draft and its verdict, an archive.sqlite that remembers them, and what an endpoint
answered (endpoint.jsonl); a folder that has them is added to. What was interrupted goes on
with the same command, and no answer is paid for twice. --dry-run prints the prompts and what
they may cost, and asks nobody. Exits with 1 if none passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.endpoint_options import add_endpoint_arguments
from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from sandbox_api import AsyncSandboxClient

    from designer import Archive, Designer, GateReport, WritingOutcome, WritingSettings
    from spadework.writers import Writer
    from trainer.endpoint_config import EndpointConfig

SUMMARY = "write environments and validate them"
ARCHIVE_FILE = "archive.sqlite"
# Names the step that was begun and not ended, and what began it.
BEGUN_FILE = "begun.json"
# Room for the prompt of a model in this process, beside the completion.
PROMPT_TOKENS = 4096


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
        "--kind",
        choices=("game", "tool_use"),
        default="game",
        help="games, or tasks that tools solve (default: game)",
    )
    parser.add_argument(
        "--skill",
        action="append",
        dest="skills",
        metavar="SKILL",
        help="skill to write for: math, logic, spatial, pattern, optim or causal, for programs "
        "also planning, memory or language; of tool use retrieval, state, recovery, selection or "
        "workflow, for programs also api; may be repeated (default: all take turns)",
    )
    parser.add_argument("--model", metavar="NAME", help="model to write with, as in `train`")
    parser.add_argument(
        "--prompt-style",
        choices=("compact", "chat"),
        help="one line, for models made by `train` from scratch, or instructions "
        "(default: compact for --model tiny, else chat)",
    )
    parser.add_argument(
        "--corpus",
        default="embedded",
        metavar="FILE",
        help="documents that programs draw their settings from: JSON Lines with text or "
        "orig_doc; 'embedded' for the package's own, '' for none (default: embedded)",
    )
    parser.add_argument(
        "--document-quota",
        type=int,
        default=0,
        metavar="N",
        help="environments of a document before all others had as many (default: no quota)",
    )
    parser.add_argument(
        "--opinions",
        action="store_true",
        help="also ask the model whether what it wrote can be solved; decides nothing, see "
        "`spadework archive opinions`",
    )
    parser.add_argument(
        "--repair-rounds",
        type=int,
        metavar="N",
        help="times a refused draft is given back to be mended (default: 1 for programs)",
    )
    for operator in ("easier", "harder", "theme", "crossover"):
        parser.add_argument(
            f"--{operator}",
            type=float,
            default=0.0,
            metavar="SHARE",
            help=f"share of designs made of remembered environments: {operator} (default: 0)",
        )
    parser.add_argument("--temperature", type=float, default=0.8, help="default: 0.8")
    parser.add_argument(
        "--max-tokens", type=int, default=4096, help="longest completion (default: 4096)"
    )
    parser.add_argument(
        "--hint-max-tokens", type=int, default=400, help="longest hint (default: 400)"
    )
    parser.add_argument("--max-turns", type=int, default=12, help="turn cap (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="seeds prompts and sampling")
    parser.add_argument(
        "--out", type=Path, default=Path("designed"), help="folder to write to (default: designed)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print prompts and an estimate; ask nobody"
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    add_endpoint_arguments(parser)
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.endpoint_options import endpoint_config
    from spadework.sandbox import server_address

    _check(args)
    endpoint = endpoint_config(args)
    if args.dry_run:
        return _dry_run(args, endpoint)
    args.out.mkdir(parents=True, exist_ok=True)
    with server_address(args) as address:
        outcome, step = asyncio.run(_design(args, endpoint, address))
    rows = _save(args.out, step, outcome.reports)
    passed = sum(entry.report.passed for entry in outcome.written)
    if outcome.unanswered:
        console.announce(
            f"the budget did not reach for {outcome.unanswered} requests; the same command with "
            "a higher one goes on with them, and pays for nothing twice"
        )
    else:
        (args.out / BEGUN_FILE).unlink(missing_ok=True)
    if args.json:
        console.print_json(rows)
    else:
        cells = [
            (str(n), r["family"] or r["skill"], r["reason"], r["file"] or r["detail"])
            for n, r in enumerate(rows)
        ]
        console.print_table("", ("", "family", "verdict", "file, or why not"), cells)
        mended = f", {outcome.mended} after a repair" if outcome.mended else ""
        print(f"{passed} of {args.number} passed{mended}; written to {args.out}")
    return console.OK if passed else console.NEGATIVE


def _check(args: argparse.Namespace) -> None:
    from designer.designer import skills_of
    from spadework.console import UsageError

    if args.number < 1 or args.max_turns < 1 or args.max_tokens < 1 or args.hint_max_tokens < 1:
        raise UsageError(
            "--number, --max-turns, --max-tokens and --hint-max-tokens must be at least 1"
        )
    if args.document_quota < 0 or (args.repair_rounds or 0) < 0:
        raise UsageError("--document-quota and --repair-rounds must not be negative")
    if args.model and args.endpoint_url:
        raise UsageError("--model and --endpoint: one of them writes")
    writes = args.model or args.endpoint_url or args.dry_run
    if args.method == "free_code" and not writes:
        raise UsageError(
            "--method free_code needs --model or --endpoint: chance writes no programs"
        )
    if args.opinions and not writes:
        raise UsageError("--opinions needs --model or --endpoint: chance has none")
    known = skills_of(args.method, args.kind)
    for skill in args.skills or ():
        if skill not in known:
            raise UsageError(f"no skill {skill!r} for {args.method}; there are {', '.join(known)}")


def _writing_settings(args: argparse.Namespace) -> WritingSettings:
    from designer import WritingSettings

    rounds = args.repair_rounds
    if rounds is None:
        rounds = int(args.method == "free_code")
    return WritingSettings(args.max_tokens, args.hint_max_tokens, rounds, args.opinions)


def _designer(args: argparse.Namespace, client: AsyncSandboxClient, archive: Archive) -> Designer:
    from designer import Corpus, CorpusError, Designer, LineageShares
    from spadework.console import UsageError

    corpus = args.corpus if args.method == "free_code" else ""
    try:
        return Designer(
            client,
            archive,
            method=args.method,
            kind=args.kind,
            skills=args.skills or (),
            max_turns=args.max_turns,
            seed=args.seed,
            prompt_style=args.prompt_style or ("compact" if args.model == "tiny" else "chat"),
            corpus=Corpus.named(corpus) if corpus else None,
            document_quota=args.document_quota,
            lineage=LineageShares(args.easier, args.harder, args.theme, args.crossover),
            writing=_writing_settings(args),
        )
    except (CorpusError, ValueError) as error:
        raise UsageError(str(error)) from error


def _dry_run(args: argparse.Namespace, endpoint: EndpointConfig) -> int:
    """Print what would be asked, and what it may cost."""
    from sandbox_api import AsyncSandboxClient

    from designer import Archive
    from spadework import console
    from spadework.estimate import estimate_json, expected

    path = args.out / ARCHIVE_FILE
    with Archive(path if path.is_file() else ":memory:") as archive:
        # Never entered, it connects to nothing.
        designer = _designer(args, AsyncSandboxClient("nowhere:0"), archive)
        requests = designer.requests(args.number, archive.next_step())
    rows = expected(requests, _writing_settings(args))
    estimate = estimate_json(rows, endpoint)
    if args.json:
        prompts = [
            {
                "slot": request.slot,
                "skill": request.skill,
                "difficulty": request.difficulty,
                "operator": str(request.operator),
                "parents": list(request.parents),
                "document": request.document,
                "messages": request.messages,
            }
            for request in requests
        ]
        console.print_json({"prompts": prompts, "estimate": estimate})
        return console.OK
    for request in requests:
        about = [request.skill, request.difficulty, request.operator, request.document]
        console.say(f"=== {request.slot + 1} of {args.number}: {', '.join(filter(None, about))}")
        for message in request.messages:
            console.say(f"--- {message['role']}\n{message['content']}")
    cells = [
        (r.what, *(f"{v:,}" for v in (r.requests, r.about_in, r.most_in, r.about_out, r.most_out)))
        for r in rows
    ]
    columns = ("", "requests, at most", "tokens in, about", "at most", "tokens out, about")
    console.print_table("", (*columns, "at most"), cells)
    tokens = estimate["tokens_in_at_most"] + estimate["tokens_out_at_most"]
    print(f"At most {estimate['requests']} requests and {tokens:,} tokens.")
    if "money_about" in estimate:
        about, most = estimate["money_about"], estimate["money_at_most"]
        print(f"About {about:.4f} of money, at most {most:.4f}.")
        if endpoint.budget_money and most > endpoint.budget_money:
            print(f"The budget of {endpoint.budget_money:g} may end it before that.")
    if endpoint.budget_tokens and tokens > endpoint.budget_tokens:
        print(f"The budget of {endpoint.budget_tokens:,} tokens may end it before that.")
    print("Nobody was asked.")
    return console.OK


def _writer(args: argparse.Namespace, endpoint: EndpointConfig) -> Writer:
    from spadework.writers import RandomWriter, endpoint_writer, model_writer

    if endpoint.url:
        return endpoint_writer(endpoint, args.temperature, args.out)
    if args.model:
        context_tokens = args.max_tokens + PROMPT_TOKENS
        return model_writer(args.model, args.temperature, context_tokens, args.seed)
    return RandomWriter()


async def _design(
    args: argparse.Namespace, endpoint: EndpointConfig, address: str
) -> tuple[WritingOutcome, int]:
    """Have the environments written; returns what came of it, and the step."""
    from sandbox_api import AsyncSandboxClient

    from designer import Archive
    from spadework import console

    writer = _writer(args, endpoint)
    try:
        with (
            Archive(args.out / ARCHIVE_FILE) as archive,
            console.progress("writing", args.number) as bar,
        ):
            async with AsyncSandboxClient(address) as client:
                designer = _designer(args, client, archive)
                step = _begin(args, endpoint, archive)
                return await designer.write(writer, args.number, step, bar), step
    finally:
        if spent := writer.spent():
            console.announce(f"endpoint: {spent}")
        await writer.aclose()


def _begin(args: argparse.Namespace, endpoint: EndpointConfig, archive: Archive) -> int:
    """The step to write: the one that the same command began and did not end, or a new one."""
    path = args.out / BEGUN_FILE
    asked = {
        name: value if isinstance(value, int | float | str | list | None) else str(value)
        for name, value in vars(args).items()
        if name in _ASKED
    }
    asked |= {"model": args.model or endpoint.model}
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        begun = {}
    step = begun["step"] if begun.get("asked") == asked else archive.next_step()
    path.write_text(json.dumps({"step": step, "asked": asked}), encoding="utf-8")
    return int(step)


# What decides the requests of a step.
_ASKED = frozenset(
    """number method kind skills prompt_style corpus document_quota repair_rounds easier harder
    theme crossover temperature max_tokens hint_max_tokens max_turns seed""".split()
)


def _save(folder: Path, step: int, reports: Sequence[GateReport]) -> list[dict[str, Any]]:
    """Write a step's drafts down; returns what `--json` prints of them."""
    rows = [_row(folder, report) for report in reports]
    path = folder / "environments.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    # A step that is taken up again is written anew.
    lines = [line for line in lines if json.loads(line).get("step") != step]
    for number, (row, report) in enumerate(zip(rows, reports, strict=True)):
        draft = report.draft
        more = {"step": step, "number": number, "source": draft.source}
        line = {**row, **more, "completion": draft.completion}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return rows


def _row(folder: Path, report: GateReport) -> dict[str, Any]:
    """What is told of one draft; its file is written if it passed."""
    from spadework.commands.validate import report_json

    draft = report.draft
    request = draft.request
    file = ""
    if report.passed and draft.source is not None:
        path = folder / f"{draft.family or 'environment'}_{report.env_id[:12]}.py"
        path.write_text(draft.source, encoding="utf-8")
        file = str(path)
    return {
        **report_json(report),
        "file": file,
        "skill": request.skill,
        "method": request.method,
        "difficulty": request.difficulty,
        "operator": str(request.operator),
        "parents": list(request.parents),
        "document": request.document,
        "repair_of": request.repair_of,
        "round": request.round,
        "family": draft.family,
        "spec": draft.spec,
        "hint": draft.hint,
    }
