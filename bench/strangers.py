"""Environments that nobody here wrote: which load, and which of them the gates refuse, and why.

    python bench/strangers.py [--only LIBRARY ...] [--checkouts DIR]

Gymnasium, MiniGrid, BabyAI and reasoning-gym are those of the `library` runtime; TextArena and
GEM are downloaded from PyPI. What is on no package index is read from checkouts: DIR/rlve is one
of Zhiyuan-Zeng/RLVE, DIR/bytesized32 one of cognitiveailab/BYTESIZED32. Nothing of any of them
runs outside the sandbox. Rows of earlier runs are kept, library by library, in
bench/results/strangers.json; docs/strangers.md is written from all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sandbox_api import AsyncSandboxClient
from sandbox_api.types import Diagnostic, Limits, Outcome, ResetItem, StepItem

from bench.strangers_page import page
from designer import DesignRequest, Draft, GateReport, Gates, GateSettings
from sandbox_server import LocalServer
from tests.library import strangers
from tests.library.strangers import Stranger

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = "library"
# Libraries take longer to import than a designed program; RLVE generates in a thread of its own.
LIMITS = Limits(
    step_timeout_s=30.0,
    load_timeout_s=60.0,
    cpu_time_s=300.0,
    memory_bytes=1024 * 1024 * 1024,
    max_processes=8,
    scratch_bytes=16 * 1024 * 1024,
)
# Actions that some environment or other understands; every one must answer to all of them.
SCRIPT = ("0", "1", "2", "[0.0]", "no idea", "\\boxed{1}", "[1]", "<answer>1</answer>")
SEED = 3
# Folder of --checkouts, and what of it is read.
CHECKOUTS = {
    "RLVE": ("rlve", "Gym"),
    "BYTESIZED32": ("bytesized32", "results/GPT-4-32k/final_games"),
}
WHEELS = {"TextArena": "textarena==0.7.4", "GEM": "gem-llm==0.1.0"}
AT_ONCE = 24

Row = dict[str, Any]


async def catalogue(client: AsyncSandboxClient) -> list[Stranger]:
    """What the runtime's own libraries register, asked in the sandbox."""
    program = await client.register_program(strangers.LISTING, runtime=RUNTIME, limits=LIMITS)
    (episode,) = await client.reset([ResetItem(program.program_id, timeout_s=60.0)])
    await client.close_episodes([episode.episode_id])
    return strangers.of_runtime(episode.info)


def downloaded(library: str) -> list[Stranger]:
    """The environments of a library that is on PyPI and not in the runtime."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        subprocess.run([*command, WHEELS[library]], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        return strangers.ADAPTERS[library](strangers.of_wheel(wheel))


async def load(client: AsyncSandboxClient, stranger: Stranger) -> Row:
    """Load it and play a few steps; where it fails, the row says at what."""
    row: Row = {"library": stranger.library, "name": stranger.name, "loads": False, "steps": 0}
    try:
        program = await client.register_program(stranger.source, runtime=RUNTIME, limits=LIMITS)
    except Exception as error:
        return {**row, "stage": "register", "why": f"{type(error).__name__}: {error}"}
    if program.outcome is not Outcome.COMPLETED:
        return {**row, "stage": "load", "why": _why(program.outcome, program.diagnostic)}
    item = ResetItem(program.program_id, seed=SEED, timeout_s=60.0)
    (episode,) = await client.reset([item])
    if not episode.ok:
        why = str(episode.error or _why(episode.outcome, episode.diagnostic))
        return {**row, "stage": "reset", "why": why}
    for number, action in enumerate(SCRIPT):
        step = StepItem(episode.episode_id, number, action, timeout_s=60.0)
        (result,) = await client.step([step])
        if not result.ok:
            why = str(result.error or _why(result.outcome, result.diagnostic))
            row |= {"stage": "step", "why": f"action {action!r}: {why}"}
            break
        row["steps"] += 1
        if result.done:
            break
    await client.close_episodes([episode.episode_id])
    # It has loaded once it has taken a step; that it fails at another action is for gate 4.
    row["loads"] = row["steps"] > 0
    return row


def _why(outcome: Outcome | None, diagnostic: Diagnostic | None) -> str:
    return f"{outcome.name if outcome else ''}: {diagnostic or ''}"


async def load_all(client: AsyncSandboxClient, chosen: Sequence[Stranger]) -> list[Row]:
    """Load and play all, some at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(stranger: Stranger) -> Row:
        async with slots:
            return await load(client, stranger)

    return await asyncio.gather(*(one(stranger) for stranger in chosen))


async def verdicts(client: AsyncSandboxClient, chosen: Sequence[Stranger]) -> list[GateReport]:
    """Put all through the gates."""
    drafts = [
        Draft(
            DesignRequest(slot, "", "free_code", [], None, stranger.max_turns, 0),
            "",
            source=stranger.source,
        )
        for slot, stranger in enumerate(chosen)
    ]
    gates = Gates(client, settings=GateSettings(), limits=LIMITS, runtime=RUNTIME)
    return await gates.judge(drafts)


async def judge(address: str, chosen: Sequence[Stranger]) -> list[Row]:
    """Load all, and put those that load through the gates."""
    async with AsyncSandboxClient(address) as client:
        rows = await load_all(client, chosen)
        loaded = [(s, row) for s, row in zip(chosen, rows, strict=True) if row["loads"]]
        print(f"{len(loaded)} of {len(chosen)} load", flush=True)
        reports = await verdicts(client, [stranger for stranger, _ in loaded])
    for (_, row), report in zip(loaded, reports, strict=True):
        gate = "" if report.passed else list(report.cost_s)[-1]
        row |= {"reason": str(report.reason), "detail": report.detail[:600], "gate": gate}
        row["seconds"] = round(sum(report.cost_s.values()), 2)
    return rows


def select(args: argparse.Namespace, of_runtime: Sequence[Stranger]) -> Iterator[list[Stranger]]:
    """The environments asked for, a library at a time."""
    wanted = set(args.only or [])

    def is_wanted(library: str) -> bool:
        return not wanted or library in wanted

    for library in dict.fromkeys(s.library for s in of_runtime):
        if is_wanted(library):
            yield [s for s in of_runtime if s.library == library]
    for library in WHEELS:
        if is_wanted(library):
            yield downloaded(library)
    for library, (folder, under) in CHECKOUTS.items():
        if args.checkouts and is_wanted(library):
            files = strangers.of_folder(args.checkouts / folder, under)
            yield strangers.ADAPTERS[library](files)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="LIBRARY")
    parser.add_argument("--checkouts", type=Path, metavar="DIR")
    parser.add_argument("--every", type=int, default=1, help="only each n-th, to try it out")
    parser.add_argument("--figures", type=Path, default=ROOT / "bench/results/strangers.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/strangers.md")
    args = parser.parse_args()
    rows: list[Row] = json.loads(args.figures.read_text()) if args.figures.exists() else []
    with LocalServer(runtimes=["stdlib", RUNTIME], log_level="error") as server:

        async def listed() -> list[Stranger]:
            async with AsyncSandboxClient(server.address) as client:
                return await catalogue(client)

        for chosen in select(args, asyncio.run(listed())):
            chosen = chosen[:: args.every]
            library = chosen[0].library
            print(f"{library}: {len(chosen)}", flush=True)
            rows = [row for row in rows if row["library"] != library]
            rows += asyncio.run(judge(server.address, chosen))
            args.figures.parent.mkdir(parents=True, exist_ok=True)
            args.figures.write_text(json.dumps(rows, indent=1))
    args.page.write_text(page(rows))
    print(f"wrote {args.page}")


if __name__ == "__main__":
    main()
