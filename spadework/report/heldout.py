"""The held-out evaluation: one row a policy, and the sentence that sums it up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spadework.report.intervals import Estimate
from spadework.report.run_folder import estimate

# In the order of the table; name in eval.json, name for people, color class.
_POLICIES = (
    ("random", "random policy", "unknown"),
    ("before", "before training", "hinted"),
    ("after", "after training", "plain"),
    ("oracle", "oracle", "frontier"),
)


@dataclass(frozen=True)
class PolicyRow:
    """What one policy reached on the held-out environments and seeds."""

    key: str
    name: str
    color: str
    mean_return: Estimate
    win_rate: Estimate | None
    by_family: dict[str, Estimate] = field(default_factory=dict)


def policies(evaluation: dict[str, Any]) -> list[PolicyRow]:
    """Rows of eval.json that hold a mean return, in the order random to oracle."""
    found = evaluation.get("policies")
    if not isinstance(found, dict):
        return []
    known = {key: (name, color) for key, name, color in _POLICIES}
    order = [*known, *sorted(str(k) for k in found if k not in known)]
    rows = []
    for key in order:
        record = found.get(key)
        mean = estimate(record, "mean_return", "ci95")
        if mean is None or not isinstance(record, dict):
            continue
        name, color = known.get(key, (key, "unknown"))
        families = record.get("by_family")
        by_family = {}
        for family, cell in (families if isinstance(families, dict) else {}).items():
            of_family = estimate(cell, "mean_return", "ci95")
            if of_family is not None:
                by_family[str(family)] = of_family
        rows.append(
            PolicyRow(key, name, color, mean, estimate(record, "win_rate", "win_ci95"), by_family)
        )
    return rows


def verdict(rows: list[PolicyRow]) -> tuple[str, str]:
    """(tone, sentence) about before against after; tone is good, bad or open."""
    if not rows:
        return "open", "There is no eval.json: the held-out evaluation was not run."
    by_key = {row.key: row for row in rows}
    before, after = by_key.get("before"), by_key.get("after")
    if after is None or before is None:
        missing = "after" if after is None else "before"
        return "open", f"The evaluation {missing} training is not there, so nothing is shown yet."
    a, b = before.mean_return, after.mean_return
    overlap = a.overlaps(b)
    if overlap is None:
        return "open", "The evaluation carries no intervals, so the difference proves nothing."
    if overlap:
        return "open", "The 95% intervals overlap: this run does not show that the agent learned."
    if b.value > a.value:
        return "good", "The agent learned: the 95% intervals do not overlap."
    return "bad", "The agent got worse: the 95% intervals do not overlap."
