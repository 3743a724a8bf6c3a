"""What a run showed, in one object and one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from trainer.runfolder import RunFolder
from trainer.statistics import bootstrap_interval, mean, wilson_interval


def summarize(folder: RunFolder, *, wall_s: float) -> dict[str, Any]:
    """Sum up metrics and evaluation of a run.

    Args:
        folder: The run's.
        wall_s: Wall seconds of this process's part of the run.
    """
    rows = folder.metrics()
    evaluation = folder.read_json("eval.json") or {"policies": {}}
    policies = evaluation["policies"]
    gates: Counter[str] = Counter()
    for row in rows:
        gates.update({k[6:]: v for k, v in row.items() if k.startswith("gates/")})
    return {
        "steps": len(rows),
        "wall_s": wall_s,
        "learning": _learning(policies),
        "policies": {
            name: {k: v for k, v in policy.items() if k not in ("returns", "by_family")}
            for name, policy in policies.items()
        },
        "curriculum": curriculum(rows),
        "gates": dict(gates),
        "lost_plays": sum(row.get("sandbox/lost_plays", 0) for row in rows),
        "time_s": {
            part: sum(row.get(f"time/{part}_s", 0.0) for row in rows)
            for part in ("design", "play", "update")
        },
    }


def curriculum(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The designer's reward and the learnable share, early against late in a run.

    Early and late are the first and the last third of the design cycles, at least one each.
    """
    cycles = [row for row in rows if "designer/rewards" in row]
    if len(cycles) < 2:
        return {"cycles": len(cycles)}
    third = max(1, len(cycles) // 3)
    return {
        "cycles": len(cycles),
        "early": _curriculum_part(cycles[:third]),
        "late": _curriculum_part(cycles[-third:]),
    }


def _curriculum_part(cycles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rewards = [r for row in cycles for r in row["designer/rewards"]]
    learnable = sum(row["designer/learnable_n"] for row in cycles)
    families: Counter[str] = Counter()
    regimes: Counter[str] = Counter()
    for row in cycles:
        families.update(row["designer/families"])
        regimes.update(row["designer/regimes"])
    return {
        "steps": [cycles[0]["step"], cycles[-1]["step"]],
        "environments": len(rewards),
        "mean_reward": mean(rewards),
        "reward_ci95": list(bootstrap_interval(rewards)),
        "learnable_share": learnable / len(rewards),
        "learnable_ci95": list(wilson_interval(learnable, len(rewards))),
        "families": dict(families),
        "regimes": dict(regimes),
    }


def _learning(policies: dict[str, Any]) -> dict[str, Any] | None:
    if not {"before", "after"} <= policies.keys():
        return None
    before, after = policies["before"], policies["after"]
    return {
        "gain": after["mean_return"] - before["mean_return"],
        "intervals_apart": after["ci95"][0] > before["ci95"][1],
    }


def summary_table(summary: dict[str, Any]) -> Table:
    """The summary for a terminal."""
    table = Table(title=f"{summary['steps']} steps, {summary['wall_s'] / 60:.1f} minutes")
    for heading in ("", "episodes", "mean return", "95% interval", "win rate"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in ("random", "before", "after", "oracle"):
        policy = summary["policies"].get(name)
        if policy:
            low, high = policy["ci95"]
            table.add_row(
                f"held out, {name}",
                str(policy["n"]),
                f"{policy['mean_return']:+.3f}",
                f"{low:+.3f} .. {high:+.3f}",
                f"{policy['win_rate']:.0%}",
            )
    for name in ("early", "late"):
        part = summary["curriculum"].get(name)
        if part:
            low, high = part["reward_ci95"]
            table.add_row(
                f"designer reward, {name}",
                str(part["environments"]),
                f"{part['mean_reward']:+.3f}",
                f"{low:+.3f} .. {high:+.3f}",
                f"{part['learnable_share']:.0%} learnable",
            )
    return table
