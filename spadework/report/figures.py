"""Figures of the two roles' learning and of the sandbox, computed from the metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from spadework.report import charts, intervals
from spadework.report.charts import Series, percent
from spadework.report.intervals import Estimate
from spadework.report.run_folder import RunRecord, number
from spadework.untrusted_text import short


@dataclass(frozen=True)
class Figure:
    """One chart with what to read from it; `legend` holds (name, color class) pairs."""

    title: str
    text: str
    svg: Markup
    legend: list[tuple[str, str]] = field(default_factory=list)


def step_range(run: RunRecord) -> tuple[float, float]:
    """First and last step, those included that were designed for but not finished."""
    created = (number(row.get("created_step")) for row in run.environments)
    steps = [float(row["step"]) for row in run.metrics]
    return charts.x_span([*steps, *(step for step in created if step is not None)])


def values(run: RunRecord, key: str) -> list[tuple[float, float]]:
    """(step, value) where the metric is there and finite."""
    pairs = ((row["step"], number(row.get(key))) for row in run.metrics)
    return [(step, value) for step, value in pairs if value is not None]


def estimates(
    run: RunRecord, mean: str, *, std: str = "", n: str = "", se: str = ""
) -> list[tuple[float, Estimate]]:
    """(step, estimate) of a metric, its interval from std and n or from a standard error."""
    points = []
    for row in run.metrics:
        value = number(row.get(mean))
        if value is None:
            continue
        error = number(row.get(se)) if se else None
        if error is not None:
            estimate = Estimate(0, value, value - 1.96 * error, value + 1.96 * error)
        else:
            estimate = intervals.from_moments(value, number(row.get(std)), number(row.get(n)))
        points.append((float(row["step"]), estimate))
    return points


def hundredths(value: float) -> str:
    """Two decimals, a true minus, and no minus on zero."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "\u2212")


def early_late(points: Sequence[float], show: Callable[[float], str] = hundredths) -> str:
    """ "0.12 over the first 5 points, 0.81 over the last 5", or why not."""
    if len(points) < 6:
        return "Too few points for a trend."
    k = min(5, len(points) // 3)
    first, last = math.fsum(points[:k]) / k, math.fsum(points[-k:]) / k
    return f"{show(first)} over the first {k} points, {show(last)} over the last {k}."


def marks(run: RunRecord) -> list[tuple[float, str]]:
    """Steps where the run's stage (its cap on turns) changed."""
    found, before = [], None
    for row in run.metrics:
        stage = row.get("stage")
        if before is not None and stage is not None and stage != before:
            found.append((float(row["step"]), f"stage {stage}"))
        before = stage if stage is not None else before
    return found


def learning(run: RunRecord) -> list[Figure]:
    """Learning curves of both roles, the regret, and the update's health."""
    span, stages = step_range(run), marks(run)
    plain = estimates(run, "agent/mean_return", std="agent/return_std", n="agent/return_n")
    hinted = estimates(run, "agent/mean_return_hinted")
    designer = estimates(
        run, "designer/mean_reward", std="designer/reward_std", n="designer/reward_n"
    )
    regret = estimates(run, "regret/mean", se="regret/se")
    entropy = estimates(run, "update/entropy")
    flat = estimates(run, "groups/no_variance_share")
    plain_values = [e.value for _, e in plain]
    return [
        Figure(
            "Agent: mean return",
            "Without the hint: " + early_late(plain_values) + " The hint measures, never trains.",
            charts.line_chart(
                [
                    Series("with hint", "hinted", hinted, dashed=True),
                    Series("without hint", "plain", plain),
                ],
                label="Mean return of the agent over training steps",
                x_range=span,
                marks=stages,
            ),
            [("without hint, 95% interval", "plain"), ("with hint", "hinted")],
        ),
        Figure(
            "Designer: mean reward",
            early_late([e.value for _, e in designer]) + " One point for each design step.",
            charts.line_chart(
                [Series("designer reward", "designer", designer)],
                label="Mean reward of the designer over training steps",
                x_range=span,
                marks=stages,
            ),
            [("mean reward, 95% interval", "designer")],
        ),
        Figure(
            "Hint regret",
            "Return with the hint minus return without it, same seeds in both arms. "
            + early_late([e.value for _, e in regret]),
            charts.line_chart(
                [Series("regret", "regret", regret)],
                label="Mean hint regret",
                x_range=span,
                marks=stages,
            ),
            [("mean over environments, 95% interval", "regret")],
        ),
        Figure(
            "The update",
            "Policy entropy in nats a token, and the share of groups whose plays all ended "
            "alike, which teach nothing.",
            charts.line_chart(
                [
                    Series("entropy", "entropy", entropy),
                    Series("groups without variance", "lost", flat, dashed=True),
                ],
                label="Entropy and share of groups without variance",
                x_range=span,
                marks=stages,
            ),
            [("entropy", "entropy"), ("share of groups without variance", "lost")],
        ),
    ]


def sandbox(run: RunRecord) -> list[Figure]:
    """Throughput, losses and where the time goes."""
    span = step_range(run)
    kills = totals(run, "sandbox/kills/")
    lost = math.fsum(v for _, v in values(run, "sandbox/lost_plays"))
    rows = [("plays lost", lost, "unknown", f"{lost:,.0f}")]
    for cause, n in sorted(kills.items(), key=lambda item: -item[1]):
        rows.append((cause.lower().replace("_", " "), n, "lost", f"{n:,.0f} killed"))
    timed = [
        (name, color, dict(values(run, key)))
        for name, color, key in (
            ("play", "plain", "time/play_s"),
            ("design", "designer", "time/design_s"),
            ("update", "regret", "time/update_s"),
        )
    ]
    xs = sorted({x for _, _, cells in timed for x in cells})
    layers = [(name, color, [cells.get(x, 0.0) for x in xs]) for name, color, cells in timed]
    return [
        Figure(
            "Environment steps a second",
            _median_text(run, "sandbox/steps_per_s", "steps/s"),
            charts.line_chart(
                [Series("steps/s", "plain", estimates(run, "sandbox/steps_per_s"))],
                label="Environment steps a second",
                x_range=span,
                value_format=lambda v: f"{v:,.0f}",
            ),
        ),
        Figure(
            "Generated tokens a second",
            _median_text(run, "generation/tokens_per_s", "tokens/s"),
            charts.line_chart(
                [Series("tokens/s", "hinted", estimates(run, "generation/tokens_per_s"))],
                label="Generated tokens a second",
                x_range=span,
                value_format=lambda v: f"{v:,.0f}",
            ),
        ),
        Figure(
            "Where the time goes",
            _time_text(layers),
            charts.stacked_bars(xs, layers, label="Seconds a step", x_range=span, unit=" s"),
            [(name + ", s a step", color) for name, color, _ in layers],
        ),
        Figure(
            "Lost plays and kills",
            "A lost play is missing in both arms; it scores nobody. Kills by cause, all steps.",
            charts.horizontal_bars(rows, label="Kills by cause"),
        )
        if lost or kills
        else Figure(
            "Lost plays and kills",
            "",
            charts.nothing(
                "No play was lost and no process was killed."
                if values(run, "sandbox/lost_plays")
                else "Not recorded in this run."
            ),
        ),
    ]


def totals(run: RunRecord, prefix: str) -> dict[str, float]:
    """Sums over all steps of the metrics that begin with `prefix`."""
    sums: dict[str, float] = defaultdict(float)
    for row in run.metrics:
        for key, value in row.items():
            if key.startswith(prefix) and (n := number(value)):
                sums[short(key.removeprefix(prefix), 40)] += n
    return dict(sums)


def _median_text(run: RunRecord, key: str, unit: str) -> str:
    seen = sorted(v for _, v in values(run, key))
    if not seen:
        return ""
    low, median, high = seen[0], seen[len(seen) // 2], seen[-1]
    return f"Median {median:,.0f} {unit}, lowest {low:,.0f}, highest {high:,.0f}."


def _time_text(layers: Iterable[tuple[str, str, Sequence[float]]]) -> str:
    sums = {name: math.fsum(cells) for name, _, cells in layers}
    total = sum(sums.values())
    if not total:
        return ""
    return ", ".join(f"{name} {percent(s / total)}" for name, s in sums.items()) + " of the time."
