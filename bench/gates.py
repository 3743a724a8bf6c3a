"""What each gate costs: programs of mixed kinds judged side by side, and the time they took.

    python bench/gates.py [--programs N] [--backend NAME] [--at-once N] [--json]

Seven in ten are structured environments, two in ten are sound games written by hand, and one in
ten is refused for a reason of its own: the programs that the tests plant, those that hang among
them. No two have the same source, so that each is loaded anew. The seconds of the gates add up to
the wall time: each moment is shared out evenly among the drafts in work then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sandbox_api import AsyncSandboxClient

from designer import DesignRequest, Draft, GateReport, Gates, GateSettings
from designer.designer import DEFAULT_LIMITS
from designer.families import compile_spec, random_spec
from sandbox_server import LocalServer
from tests.designer import programs

# For a jail alone, or no kind of its own.
LEFT_OUT = {"FORKS_HIDDEN"}


def mixed_drafts(count: int, seed: int) -> list[Draft]:
    """Drafts of mixed kinds, each with a source of its own."""
    rng = random.Random(seed)
    planted = sorted(set(programs.PLANTED) - LEFT_OUT)
    rng.shuffle(planted)
    drafts = []
    for number in range(count):
        hint = None
        if number % 10 == 9:
            source = getattr(programs, planted[number // 10 % len(planted)])
        elif number % 10 >= 7:
            source = getattr(programs, rng.choice(programs.SOUND_PROGRAMS))
        else:
            compiled = compile_spec(random_spec(rng))
            source, hint = compiled.source, compiled.hint
        source += f"\n# number {number}\n"
        request = DesignRequest(number, "", "free_code", [], None, 8, 0)
        drafts.append(Draft(request, "", source=source, hint=hint))
    return drafts


async def judge(address: str, drafts: list[Draft], at_once: int) -> tuple[float, list[GateReport]]:
    """Judge drafts; returns the seconds that it took, too."""
    settings = GateSettings(drafts_at_once=at_once) if at_once else GateSettings()
    async with AsyncSandboxClient(address) as client:
        gates = Gates(client, settings=settings, limits=DEFAULT_LIMITS)
        began = time.perf_counter()
        reports = await gates.judge(drafts)
        return time.perf_counter() - began, reports


def table(reports: list[GateReport]) -> list[dict[str, object]]:
    """A row a gate: drafts that reached it, that it refused, and what it cost."""
    names = list(dict.fromkeys(name for report in reports for name in report.cost_s))
    total_s = sum(sum(report.cost_s.values()) for report in reports)
    rows = []
    for name in names:
        reached = [report for report in reports if name in report.cost_s]
        refused = [r for r in reached if not r.passed and list(r.cost_s)[-1] == name]
        spent_s = sum(report.cost_s[name] for report in reached)
        rows.append(
            {
                "gate": name,
                "drafts": len(reached),
                "refused": len(refused),
                "reasons": dict(Counter(report.reason for report in refused)),
                "seconds": round(spent_s, 2),
                "share": round(spent_s / total_s, 3),
                "ms_a_draft": round(1_000 * spent_s / len(reached), 1),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--backend", default="nsjail")
    parser.add_argument("--at-once", type=int, default=0, help="drafts in work together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    drafts = mixed_drafts(args.programs, args.seed)
    with LocalServer(backend=args.backend, log_level="error") as server:
        seconds, reports = asyncio.run(judge(server.address, drafts, args.at_once))
    rows = table(reports)
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update(report.counts)
    said = {
        "programs": len(drafts),
        "seconds": round(seconds, 2),
        "passed": sum(report.passed for report in reports),
        "counts": dict(counts),
        "gates": rows,
    }
    if args.json:
        print(json.dumps(said))
        return
    print(
        f"{said['programs']} programs in {seconds:.1f} s, {said['passed']} passed; {dict(counts)}"
    )
    print(f"{'gate':12} {'drafts':>7} {'refused':>8} {'s':>8} {'share':>7} {'ms/draft':>9}")
    for row in rows:
        print(
            f"{row['gate']:12} {row['drafts']:7} {row['refused']:8} {row['seconds']:8} "
            f"{row['share']:7.1%} {row['ms_a_draft']:9}  {row['reasons'] or ''}"
        )


if __name__ == "__main__":
    main()
