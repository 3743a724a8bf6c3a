"""How the curriculum moved: regimes, learnable share, families, gates, each environment."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from spadework.report import charts, intervals
from spadework.report.charts import Series, percent
from spadework.report.figures import Figure, early_late, step_range
from spadework.report.intervals import Estimate
from spadework.report.run_folder import RunRecord, number
from spadework.report.untrusted_text import short

REGIMES = (
    ("frontier", "frontier", "won with the hint more often than without"),
    ("mastered", "mastered", "won without the hint"),
    ("intractable", "intractable", "lost with and without the hint"),
    ("misleading hint", "misleading", "the hint makes it worse"),
)
# An environment teaches when it is sometimes won and sometimes lost.
LEARNABLE = (0.2, 0.8)
# Environment ids are hashes; a longer one is not ours, and is cut wherever it is shown.
ID_CHARS = 80


def regime_key(regime: Any) -> str:
    """One of the four regimes, or "unknown"; spelling of the archive aside."""
    word = str(regime or "").lower().replace("_", " ").replace("-", " ").strip()
    return next(
        (key for name, key, _ in REGIMES if word.startswith(key) or word == name), "unknown"
    )


def mean_win(run: RunRecord) -> dict[str, float]:
    """env_id -> mean return without the hint over all its measurements (w of the paper)."""
    seen: dict[str, list[float]] = defaultdict(list)
    for row in run.measurements:
        value = number(row.get("return_plain"))
        if value is not None:
            seen[str(row.get("env_id"))].append(value)
    return {env: math.fsum(v) / len(v) for env, v in seen.items()}


def curriculum(run: RunRecord) -> list[Figure]:
    """Regimes, learnable share, families, and the life of each environment."""
    span = step_range(run)
    by_env = {str(row.get("env_id")): row for row in run.environments}
    steps = sorted(
        {int(s) for row in run.measurements if (s := number(row.get("step"))) is not None}
    )
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    heat: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    lives: dict[str, list[tuple[float, float | None, float | None, str]]] = defaultdict(list)
    for row in run.measurements:
        step = number(row.get("step"))
        if step is None:
            continue
        env, regime = str(row.get("env_id")), regime_key(row.get("regime"))
        win, regret = number(row.get("return_plain")), number(row.get("regret"))
        counts[int(step)][regime] += 1
        lives[env].append((step, win, regret, regime))
        if win is not None:
            family = short(by_env.get(env, {}).get("family") or "no family", 40)
            heat[family][step].append(win)
    steps = sorted(counts)
    layers = [
        (name, key, [counts[s][key] for s in steps])
        for name, key, _ in (*REGIMES, ("unknown", "unknown", ""))
    ]
    layers = [layer for layer in layers if any(layer[2])]
    learnable = _learnable_by_design_step(run)
    rows = sorted(
        (family, {s: (math.fsum(v) / len(v), len(v)) for s, v in cells.items()})
        for family, cells in heat.items()
    )
    win_lives: list[charts.Track] = []
    regret_lives: list[charts.Track] = []
    for env, points in lives.items():
        row = by_env.get(env, {})
        color = points[-1][3]
        wins = [(step, win) for step, win, _, _ in points if win is not None]
        regrets = [(step, regret) for step, _, regret, _ in points if regret is not None]
        for line, unit, store in (
            (wins, "mean return", win_lives),
            (regrets, "regret", regret_lives),
        ):
            if line:
                said = ", ".join(f"{y:.2f}" for _, y in line)
                label = f"{short(row.get('family') or env, 40)} · {unit} {said} · {color}"
                store.append(charts.Track(short(env, ID_CHARS), label, color, line))
    signed = [y for life in regret_lives for _, y in life.points]
    low, high = min(signed, default=0.0), max(signed, default=0.0)
    legend = [(name, key) for name, key, _ in REGIMES]
    return [
        Figure(
            "Regimes",
            "Environments measured at each step, by what the hint changes.",
            charts.stacked_bars(steps, layers, label="Regimes over steps", x_range=span),
            [(name, key) for name, key, _ in layers],
        ),
        Figure(
            "Learnable share",
            f"Share of new environments whose mean return lies in [{LEARNABLE[0]}, "
            f"{LEARNABLE[1]}], Wilson interval. "
            + early_late([e.value for _, e in learnable], percent),
            charts.line_chart(
                [Series("learnable", "frontier", learnable)],
                label="Learnable share by design step",
                x_range=span,
                y_range=(0.0, 1.0),
                y_format=percent,
                value_format=percent,
            ),
            [("learnable share of the environments written at that step", "frontier")],
        ),
        Figure(
            "Win rate of each environment",
            "Mean return without the hint; one line an environment, over the steps it was "
            "replayed. In the green range it teaches. Click a line to open it.",
            charts.tracks(
                win_lives,
                label="Win rate of each environment",
                x_range=span,
                y_range=(min([0.0, *(y for t in win_lives for _, y in t.points)]), 1.0),
                y_format=lambda v: f"{v:g}",
                guides=LEARNABLE,
            ),
            legend,
        ),
        Figure(
            "Regret of each environment",
            "What the hint still adds: near zero once the agent needs none, below zero where "
            "it misleads. Click a line to open it.",
            charts.tracks(
                regret_lives,
                label="Regret of each environment",
                x_range=span,
                y_range=(min(low, -0.1), max(high, 0.2) + 0.05),
                y_format=lambda v: f"{v:g}",
            ),
            legend,
        ),
        Figure(
            "Families",
            "Mean return without the hint by family; the stronger the colour, the higher.",
            charts.heat_rows(rows, label="Mean return by family and step", x_range=span),
        ),
        _regret_figure(signed),
        _gate_figure(run),
        _drafts_figure(run, span),
    ]


def _learnable_by_design_step(run: RunRecord) -> list[tuple[float, Estimate]]:
    wins = mean_win(run)
    cohorts: dict[float, list[float]] = defaultdict(list)
    for row in run.environments:
        step, win = number(row.get("created_step")), wins.get(str(row.get("env_id")))
        if step is not None and win is not None:
            cohorts[step].append(win)
    points = []
    for step, cohort in sorted(cohorts.items()):
        hits = sum(LEARNABLE[0] <= win <= LEARNABLE[1] for win in cohort)
        estimate = intervals.of_share(hits, len(cohort))
        if estimate is not None:
            points.append((step, estimate))
    return points


def gate_counts(run: RunRecord) -> Counter[str]:
    """Drafts by reason: from the archive, else from the metrics."""
    counts = Counter(short(r["gate_reason"], 40) for r in run.environments if r.get("gate_reason"))
    if not counts:
        for row in run.metrics:
            for key, value in row.items():
                if key.startswith("gates/") and (n := number(value)):
                    counts[short(key.removeprefix("gates/"), 40)] += int(n)
    return counts


def _gate_figure(run: RunRecord) -> Figure:
    counts = gate_counts(run)
    total = sum(counts.values())
    order = sorted(counts.items(), key=lambda item: (item[0] != "OK", -item[1], item[0]))
    rows = [
        (
            reason,
            float(n),
            "frontier" if reason == "OK" else "lost",
            f"{n:,} · {percent(n / total)}",
        )
        for reason, n in order
    ]
    return Figure(
        "Gates",
        f"{total:,} drafts, by the first gate that refused them; OK passed all.",
        charts.horizontal_bars(rows, label="Drafts by gate reason"),
    )


def _drafts_figure(run: RunRecord, span: tuple[float, float]) -> Figure:
    by_step: dict[float, Counter[bool]] = defaultdict(Counter)
    for row in run.environments:
        step = number(row.get("created_step"))
        if step is not None and row.get("gate_reason"):
            by_step[step][row["gate_reason"] == "OK"] += 1
    steps = sorted(by_step)
    shares = [by_step[s][True] / by_step[s].total() for s in steps]
    layers = [
        ("passed", "frontier", [float(by_step[s][True]) for s in steps]),
        ("refused", "lost", [float(by_step[s][False]) for s in steps]),
    ]
    return Figure(
        "Drafts over time",
        "Drafts at each design step. Share that passes: " + early_late(shares, percent),
        charts.stacked_bars(steps, layers, label="Drafts by design step", x_range=span),
        [(name, color) for name, color, _ in layers],
    )


def _regret_figure(regrets: list[float]) -> Figure:
    """Distribution of the signed regret; its mean alone hides hints that mislead."""
    width = 0.125
    counts = Counter(round(value / width) for value in regrets)
    bins = range(min(counts, default=0), max(counts, default=0) + 1)
    negative = sum(value < 0 for value in regrets)
    text = f"{len(regrets):,} measurements, one an environment and step; "
    text += f"{percent(negative / len(regrets))} are below zero." if regrets else ""
    return Figure(
        "Regret, signed",
        text,
        charts.stacked_bars(
            [b * width for b in bins],
            [("measurements", "regret", [float(counts[b]) for b in bins])],
            label="Distribution of the signed regret",
            x_label="regret",
        ),
    )


def _gate_color(reason: str) -> str:
    return "frontier" if reason == "OK" else "lost"


def comparisons(run: RunRecord) -> list[dict[str, Any]]:
    """Early against late: the first third of the design steps against the last third."""
    steps = sorted(
        {s for r in run.environments if (s := number(r.get("created_step"))) is not None}
    )
    if len(steps) < 3:
        return []
    third = len(steps) // 3
    wins = mean_win(run)
    halves: list[dict[str, Estimate | None]] = []
    for cohort in (set(steps[:third]), set(steps[-third:])):
        drafts = [r for r in run.environments if number(r.get("created_step")) in cohort]
        kept = [r for r in drafts if r.get("gate_reason") == "OK"]
        rewards = [v for r in kept if (v := number(r.get("designer_reward"))) is not None]
        played = [wins[e] for r in kept if (e := str(r.get("env_id"))) in wins]
        learnable = sum(LEARNABLE[0] <= w <= LEARNABLE[1] for w in played)
        halves.append(
            {
                "Designer's mean reward": intervals.of_mean(rewards),
                "Learnable share": intervals.of_share(learnable, len(played)),
                "Share of drafts that pass the gates": intervals.of_share(len(kept), len(drafts)),
            }
        )
    early, late = halves
    rows = []
    for name, a in early.items():
        b = late[name]
        overlap = a.overlaps(b) if a and b else None
        said = {None: "no interval", True: "intervals overlap"}.get(
            overlap, "rose" if a and b and b.value > a.value else "fell"
        )
        rows.append({"name": name, "early": a, "late": b, "verdict": said})
    return rows
