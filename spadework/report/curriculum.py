"""How the curriculum moved: regimes, learnable share, families, gates, each environment."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from designer.drafts import Reason
from spadework.report import charts, intervals
from spadework.report.charts import Series, percent
from spadework.report.figures import Figure, early_late, step_range
from spadework.report.intervals import Estimate
from spadework.report.run_folder import RunRecord, estimate, number
from spadework.untrusted_text import short

# Name, color class, meaning; the trainer decides which one an environment is in.
REGIMES = (
    ("frontier", "frontier", "sometimes won and sometimes lost without the hint"),
    ("mastered", "mastered", "practically always won without the hint"),
    ("intractable", "intractable", "practically never won without the hint, nor better with it"),
    ("password only", "password", "practically never won without the hint, which helps"),
    ("misleading hint", "misleading", "the hint makes it worse, beyond chance"),
)
# The archive's word for environments that nobody designed here.
GIVEN = "given"
# An environment teaches when it is sometimes won and sometimes lost.
LEARNABLE = (0.2, 0.8)
# Environment ids are hashes; a longer one is not ours, and is cut wherever it is shown.
ID_CHARS = 80


def regime_key(regime: Any) -> str:
    """One of the five regimes, or "unknown"; spelling of the archive aside."""
    word = str(regime or "").lower().replace("_", " ").replace("-", " ").strip()
    return next(
        (key for name, key, _ in REGIMES if word.startswith(key) or word == name), "unknown"
    )


def mean_returns(run: RunRecord) -> dict[str, float]:
    """env_id -> mean return without the hint over all its plays (w of the paper)."""
    sums: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for row in run.plays:
        mean = number(row.get("mean_return"))
        if row.get("arm") == "plain" and mean is not None:
            total, n = sums[str(row["env_id"])]
            sums[str(row["env_id"])] = (total + mean * row["n"], n + row["n"])
    return {env: total / n for env, (total, n) in sums.items()}


def curriculum(run: RunRecord) -> list[Figure]:
    """Regimes, learnable share, families, gates, and the life of each environment."""
    span = step_range(run)
    environments = {str(row.get("env_id")): row for row in run.environments}
    regimes = {
        str(row.get("env_id")): regime_key(row.get("regime"))
        for row in run.measurements  # ordered by step: the last one stays
    }
    learnable = _learnable_by_design_step(run)
    legend = [(name, key) for name, key, _ in REGIMES]
    regret_points = _regret_points(run)
    signed = [points[-1][1] for points in regret_points.values()]
    low, high = min(signed, default=0.0), max(signed, default=0.0)
    wins = Figure(
        "Win rate of each environment",
        "Without the hint; one line an environment, over the steps it was replayed, moved "
        "apart a little. In the green range it teaches. Click a line to open it.",
        charts.tracks(
            _lives(_win_points(run), environments, regimes, "win rate"),
            label="Win rate of each environment",
            x_range=span,
            y_range=(0.0, 1.0),
            y_format=percent,
            guides=LEARNABLE,
        ),
        legend,
    )
    families = _family_figure(run, environments, span)
    if given(run):  # nobody wrote them, and nothing was hinted: there is no more to show
        return [wins, families]
    return [
        _regime_figure(environments, regimes, span),
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
            [("of the environments written at that step", "frontier")],
        ),
        wins,
        Figure(
            "Regret of each environment",
            "What the hint adds: near zero where the agent needs none, below zero where it "
            "misleads. Click a line to open it.",
            charts.tracks(
                _lives(regret_points, environments, regimes, "regret"),
                label="Regret of each environment",
                x_range=span,
                y_range=(min(low, -0.1), max(high, 0.2) + 0.05),
                y_format=lambda v: f"{v:g}",
            ),
            legend,
        ),
        families,
        _regret_figure(signed),
        _gate_figure(run),
        _drafts_figure(run, span),
    ]


def _regime_figure(
    environments: dict[str, dict[str, Any]], regimes: dict[str, str], span: tuple[float, float]
) -> Figure:
    counts: dict[float, Counter[str]] = defaultdict(Counter)
    for env, regime in regimes.items():
        step = number(environments.get(env, {}).get("created_step"))
        if step is not None:
            counts[step][regime] += 1
    steps = sorted(counts)
    layers = [
        (name, key, [float(counts[s][key]) for s in steps])
        for name, key, _ in (*REGIMES, ("unknown", "unknown", ""))
    ]
    layers = [layer for layer in layers if any(layer[2])]
    return Figure(
        "Regimes",
        "Environments by the step that designed them, and what they were to the agent when "
        "last measured.",
        charts.stacked_bars(steps, layers, label="Regimes by design step", x_range=span),
        [(name, key) for name, key, _ in layers],
    )


def _win_points(run: RunRecord) -> dict[str, list[tuple[float, float]]]:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in run.plays:
        step = number(row.get("step"))
        if row.get("arm") == "plain" and row["n"] and step is not None:
            points[str(row["env_id"])].append((step, (row["wins"] or 0) / row["n"]))
    return points


def _regret_points(run: RunRecord) -> dict[str, list[tuple[float, float]]]:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in run.measurements:
        step, regret = number(row.get("step")), number(row.get("regret"))
        if step is not None and regret is not None:
            points[str(row.get("env_id"))].append((step, regret))
    return points


def _lives(
    points: dict[str, list[tuple[float, float]]],
    environments: dict[str, dict[str, Any]],
    regimes: dict[str, str],
    unit: str,
) -> list[charts.Track]:
    lives = []
    for env, line in points.items():
        regime = regimes.get(env, "unknown")
        said = ", ".join(f"{y:.2f}" for _, y in line)
        name = short(environments.get(env, {}).get("family") or env, 40)
        label = f"{name} \u00b7 {unit} {said} \u00b7 {regime}"
        lives.append(charts.Track(short(env, ID_CHARS), label, regime, line))
    return lives


def _family_figure(
    run: RunRecord, environments: dict[str, dict[str, Any]], span: tuple[float, float]
) -> Figure:
    heat: dict[str, dict[float, tuple[float, int]]] = defaultdict(dict)
    for row in run.plays:
        step = number(row.get("step"))
        if row.get("arm") != "plain" or not row["n"] or step is None:
            continue
        family = short(environments.get(str(row["env_id"]), {}).get("family") or "none", 40)
        rate, n = heat[family].get(step, (0.0, 0))
        wins, more = row["wins"] or 0, row["n"]
        heat[family][step] = ((rate * n + wins) / (n + more), n + more)
    return Figure(
        "Families",
        "Win rate without the hint by family; the stronger the colour, the higher.",
        charts.heat_rows(sorted(heat.items()), label="Win rate by family", x_range=span),
    )


def _learnable_by_design_step(run: RunRecord) -> list[tuple[float, Estimate]]:
    wins = mean_returns(run)
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


_GATE_ORDER = {str(reason): place for place, reason in enumerate(Reason)}


def given(run: RunRecord) -> int:
    """How many environments the run was given; no gate has seen them, and nobody drafted them."""
    return sum(row.get("method") == GIVEN for row in run.environments)


def gate_counts(run: RunRecord) -> Counter[str]:
    """Drafts by reason: from the archive, else from the metrics."""
    if given(run):
        return Counter()
    counts = Counter(short(r["gate_reason"], 40) for r in run.environments if r.get("gate_reason"))
    if not counts:
        for row in run.metrics:
            for key, value in row.items():
                if key.startswith("gates/") and (n := number(value)):
                    counts[short(key.removeprefix("gates/"), 40)] += int(n)
    return counts


def _gate_figure(run: RunRecord) -> Figure:
    """A funnel: what is left after each gate that removed any, in the gates' order."""
    counts = gate_counts(run)
    total = sum(counts.values())
    rows = [("all drafts", float(total), "unknown", f"{total:,}")]
    left = total
    refused = [reason for reason in counts if reason != "OK"]
    for reason in sorted(refused, key=lambda reason: (_GATE_ORDER.get(reason, 99), reason)):
        left -= counts[reason]
        removed = counts[reason]
        rows.append(
            (
                reason,
                float(left),
                "lost",
                f"{left:,}: {removed:,} less, {percent(removed / total)}",
            )
        )
    passed = f"{left:,} · {percent(left / total)}" if total else ""
    rows.append(("OK", float(left), "frontier", passed))
    return Figure(
        "Gates",
        f"{total:,} drafts, and how many each gate that refused any has left; OK passed all.",
        charts.horizontal_bars(rows, label="Drafts left after each gate"),
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
    text = f"{len(regrets):,} environments, at their last measurement; "
    text += f"{percent(negative / len(regrets))} are below zero." if regrets else ""
    return Figure(
        "Regret, signed",
        text,
        charts.stacked_bars(
            [b * width for b in bins],
            [("environments", "regret", [float(counts[b]) for b in bins])],
            label="Distribution of the signed regret",
            x_label="regret",
        ),
    )


def _gate_color(reason: str) -> str:
    return "frontier" if reason == "OK" else "lost"


def comparisons(run: RunRecord) -> list[dict[str, Any]]:
    """Early against late: the first third of the design steps against the last third.

    What the run's own summary says of it is taken from there, so that both say the same.
    """
    steps = sorted(
        {s for r in run.environments if (s := number(r.get("created_step"))) is not None}
    )
    if len(steps) < 2:
        return []
    third = max(1, len(steps) // 3)
    returns = mean_returns(run)
    parts: list[dict[str, Estimate | None]] = []
    for name, cohort in (("early", set(steps[:third])), ("late", set(steps[-third:]))):
        drafts = [r for r in run.environments if number(r.get("created_step")) in cohort]
        kept = [r for r in drafts if r.get("gate_reason") == "OK"]
        rewards = [v for r in kept if (v := number(r.get("designer_reward"))) is not None]
        played = [returns[e] for r in kept if (e := str(r.get("env_id"))) in returns]
        learnable = sum(LEARNABLE[0] <= w <= LEARNABLE[1] for w in played)
        parts.append(
            {
                "Designer's mean reward": _summarized(run, name, "mean_reward", "reward_ci95")
                or intervals.of_mean(rewards),
                "Learnable share": _summarized(run, name, "learnable_share", "learnable_ci95")
                or intervals.of_share(learnable, len(played)),
                "Share of drafts that pass the gates": intervals.of_share(len(kept), len(drafts)),
            }
        )
    early, late = parts
    return [
        {"name": name, "early": a, "late": late[name], "verdict": _moved(a, late[name])}
        for name, a in early.items()
    ]


def _summarized(run: RunRecord, part: str, value: str, interval: str) -> Estimate | None:
    curriculum = run.summary.get("curriculum")
    record = curriculum.get(part) if isinstance(curriculum, dict) else None
    return estimate(record, value, interval, "environments")


def _moved(early: Estimate | None, late: Estimate | None) -> str:
    overlap = early.overlaps(late) if early and late else None
    if early is None or late is None or overlap is None:
        return "no interval"
    if overlap:
        return "intervals overlap"
    return "rose" if late.value > early.value else "fell"
