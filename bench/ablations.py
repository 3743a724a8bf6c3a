"""What parts of the method are worth: the same run without them, three seeds each.

    python bench/ablations.py run [--seeds 0 1 2] [--only NAME ...] [--runs FOLDER]
    python bench/ablations.py page

`run` trains each variant of `cpu-demo` on each seed, and adds what it gave to docs/ablations.json;
what is there already is left, and a run that was interrupted goes on. `page` writes the tables of
docs/results.md between its marks from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.student import t_quantile

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "ablations.json"
PAGE = ROOT / "docs" / "results.md"
MARKS = ("<!-- ablations -->", "<!-- end of ablations -->")
PRESET, BASELINE = "cpu-demo", "baseline"

# Name: what it changes, and how.
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    BASELINE: ("the preset: paired arms, blended reward, designer trained", ()),
    "unpaired": ("each arm on seeds of its own", ("design.paired=false",)),
    "regret": ("designer's reward: regret alone", ("design.reward=regret",)),
    "plateau": ("designer's reward: difficulty anchor alone", ("design.reward=plateau",)),
    "learnability": ("designer's reward: p (1 - p)", ("design.reward=learnability",)),
    "frozen": ("designer not trained", ("design.train=false",)),
    "memory": (
        "half of the designs are made of remembered environments",
        (
            "design.lineage_easier=0.125",
            "design.lineage_harder=0.125",
            "design.lineage_theme=0.125",
            "design.lineage_crossover=0.125",
        ),
    ),
    "no rehearsal": ("earlier environments are not played again", ("play.rehearsed=0",)),
    "horizon": (
        "ScalingInter-RL: 4, 8, then 12 turns, 20 steps each",
        ("play.horizon_stages=[4,8,12]", "play.horizon_interval=20"),
    ),
}


def measure(name: str, seed: int, runs: Path) -> dict[str, Any]:
    """Train one variant on one seed, and say what came of it."""
    folder = runs / f"{name.replace(' ', '-')}-seed{seed}"
    command = [sys.executable, "-m", "spadework", "train", PRESET, *VARIANTS[name][1]]
    command += ["--seed", str(seed), "--run-dir", str(folder), "--resume"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    summary = json.loads((folder / "summary.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    errors = [row["regret/se"] for row in rows if "regret/se" in row]
    return {
        "variant": name,
        "seed": seed,
        "commit": _commit(),
        "steps": summary["steps"],
        "before": summary["policies"]["before"]["mean_return"],
        "after": summary["policies"]["after"]["mean_return"],
        "win_rate": summary["policies"]["after"]["win_rate"],
        "learnable_early": summary["curriculum"]["early"]["learnable_share"],
        "learnable_late": summary["curriculum"]["late"]["learnable_share"],
        "reward_late": summary["curriculum"]["late"]["mean_reward"],
        "regret_se": statistics.fmean(errors),
        "lost_plays": summary["lost_plays"],
        "time_s": summary["time_s"],
    }


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def run(seeds: Sequence[int], names: Sequence[str], runs: Path) -> None:
    """Measure what is missing, all variants of a seed before the next seed."""
    missing = [
        (name, seed)
        for seed in seeds
        for name in names
        if not any(f["variant"] == name and f["seed"] == seed for f in figures())
    ]
    for number, (name, seed) in enumerate(missing, 1):
        print(f"{number}/{len(missing)}: {name}, seed {seed}", flush=True)
        new = measure(name, seed, runs)
        scratch = FIGURES.with_suffix(".new")
        scratch.write_text(json.dumps([*figures(), new], indent=1) + "\n")
        os.replace(scratch, FIGURES)


def figures() -> list[dict[str, Any]]:
    """What was measured so far."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else []


def table(measured: Sequence[dict[str, Any]]) -> str:
    """One row a variant: means over its seeds, and their differences from the baseline's.

    Intervals are Student's over seeds; a difference is paired by the seed.
    """
    by_variant = {
        name: {f["seed"]: f for f in measured if f["variant"] == name} for name in VARIANTS
    }
    lines = [
        "| variant | what it changes | seeds | return after | against the baseline | wins "
        "| learnable, late | s.e. of the mean regret |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (change, _) in VARIANTS.items():
        runs = by_variant[name]
        if not runs:
            continue
        shared = sorted(runs.keys() & by_variant[BASELINE].keys())
        gains = [runs[s]["after"] - by_variant[BASELINE][s]["after"] for s in shared]
        cells = [
            name,
            change,
            str(len(runs)),
            interval([f["after"] for f in runs.values()]),
            "" if name == BASELINE else interval(gains, signed=True),
            f"{statistics.fmean(f['win_rate'] for f in runs.values()):.0%}",
            f"{statistics.fmean(f['learnable_late'] for f in runs.values()):.0%}",
            f"{statistics.fmean(f['regret_se'] for f in runs.values()):.3f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def interval(values: Sequence[float], *, signed: bool = False) -> str:
    """A mean with its 95% interval, where there are two values or more."""
    if not values:
        return "not measured"
    sign = "+" if signed else ""
    centre = statistics.fmean(values)
    if len(values) < 2:
        return f"{centre:{sign}.3f}"
    half = t_quantile(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{centre:{sign}.3f} ({centre - half:{sign}.3f} to {centre + half:{sign}.3f})"


def time_shares(measured: Sequence[dict[str, Any]]) -> str:
    """Where the time of the baseline's steps went."""
    totals: dict[str, float] = {}
    for f in measured:
        if f["variant"] == BASELINE:
            for part, seconds in f["time_s"].items():
                totals[part] = totals.get(part, 0.0) + seconds
    whole = sum(totals.values())
    shares = ", ".join(f"{part} {seconds / whole:.0%}" for part, seconds in totals.items())
    return f"Time of the baseline's steps: {shares}."


def page() -> None:
    """Write the table into the page."""
    measured = figures()
    commits = sorted({f["commit"] for f in measured})
    text = PAGE.read_text()
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    if not after:
        raise SystemExit(f"{PAGE} has no {MARKS[0]} and {MARKS[1]}")
    note = f"{time_shares(measured)} Measured at {', '.join(commits)}."
    body = f"{MARKS[0]}\n{table(measured)}\n\n{note}\n{MARKS[1]}"
    PAGE.write_text(before + body + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    running = parts.add_parser("run")
    running.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    running.add_argument("--runs", type=Path, default=ROOT / "runs" / "ablations")
    parts.add_parser("page")
    arguments = parser.parse_args()
    if arguments.part == "run":
        run(arguments.seeds, arguments.only, arguments.runs)
    else:
        page()


if __name__ == "__main__":
    main()
