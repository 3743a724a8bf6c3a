"""The page about scale, and its second picture: from figures alone."""

from __future__ import annotations

from pathlib import Path

import jinja2

from spadework.scale import findings, fleet
from spadework.scale.findings import number
from spadework.scale.forecast import Forecast
from spadework.scale.growth import Growth
from spadework.scale.panels import Panel, Series
from spadework.scale.panels import draw as draw_panels

_TEMPLATES = Path(__file__).parent / "templates"
_COLORS = ("#1565c0", "#c2571a", "#2e8b57", "#8e44ad")


def render(growth: Growth, forecast: Forecast) -> str:
    """The page, as Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        # It is Markdown, of figures.
        autoescape=False,
    )
    *sizes, last = dict.fromkeys(plan.episodes for plan in forecast.plans)
    return environment.get_template("scale.md.j2").render(
        growth=growth,
        forecast=forecast,
        assumed=forecast.assumed,
        costs=forecast.costs,
        answers=list(zip(forecast.plans, forecast.outcomes, strict=True)),
        tables=findings.to_markdown(growth),
        sizes=f"{', '.join(f'{size:,}' for size in sizes)} and {last:,}",
        starts_at_once=fleet.STARTS_AT_ONCE,
        number=number,
        percent=lambda share: f"{100 * share:.3g}%",
    )


def draw(forecast: Forecast) -> str:
    """The picture of a forecast, as the text of an SVG file."""
    answers = list(zip(forecast.plans, forecast.outcomes, strict=True))
    waits = list(dict.fromkeys(plan.think_s for plan in forecast.plans))

    def of_plans(read: str, title: str) -> Panel:
        series = []
        for think_s, color in zip(waits, _COLORS, strict=False):
            line = [
                (float(plan.episodes), float(getattr(plan, read)))
                for plan in forecast.plans
                if plan.think_s == think_s
            ]
            series.append(Series(f"{think_s:g} s", color, line, line))
        return Panel(f"{title}, by seconds of generation", "episodes at once", series)

    times = []
    for think_s, color in zip(waits, _COLORS, strict=False):
        mine = [(plan, outcome) for plan, outcome in answers if plan.think_s == think_s]
        line = [(float(plan.episodes), outcome.p99_ms) for plan, outcome in mine]
        times.append(Series(f"{think_s:g} s", color, line, line))
        lost = [(float(p.episodes), o.loss_p99_ms) for p, o in mine if o.lost_episodes]
        times.append(Series(f"{think_s:g} s, a loss", color, lost, lost, dashed=True))
    seen = [(float(c.episodes), c.p50_ms[0]) for c in forecast.calibrations]
    model = [(float(c.episodes), c.p50_ms[1]) for c in forecast.calibrations]
    last = [(float(c.episodes), c.p99_ms[0]) for c in forecast.calibrations]
    last_model = [(float(c.episodes), c.p99_ms[1]) for c in forecast.calibrations]
    check = Panel(
        "An item's time in the benchmark's loop, ms",
        "episodes at once",
        [Series("p50", _COLORS[0], seen, model), Series("p99", _COLORS[1], last, last_model)],
    )
    return draw_panels(
        [
            check,
            of_plans("cores", "Busy cores"),
            of_plans("nodes", "Nodes, one spare"),
            Panel("p99 of an item, ms, by seconds of generation", "episodes at once", times),
        ],
        "First: dots measured, lines simulated. Others: simulated; dashed: while a lost node's "
        "episodes are rebuilt.",
    )
