"""A run as one picture: steps a second over episodes, and where the CPU time of a step goes.

An SVG that stands alone: its style is in it, and it needs neither script nor network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import escape

from spadework.benchmark import subjects
from spadework.benchmark.plan import TRIVIAL
from spadework.benchmark.report import Report, Row, in_rounds
from spadework.report.charts import ticks

_WIDTH, _PLOT_HEIGHT = 900, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 250, 44, 44
_ROW = 22
# Space between names that would lie on each other.
_APART = 16

COLORS = {
    subjects.FLOOR: "#555555",
    subjects.EXEC: "#a0a0a0",
    subjects.SYNC_VECTOR: "#7fb069",
    subjects.ASYNC_VECTOR: "#2e7d32",
    subjects.OPENENV: "#c2571a",
    subjects.FRESH_JAIL: "#8e44ad",
    subjects.SANDBOX: "#1565c0",
    subjects.GROUPED: "#d81b60",
    subjects.SHARDED: "#00838f",
    subjects.DIRECT: "#4e342e",
    subjects.UNPROTECTED: "#7fb2e5",
}
_SIDES = (
    ("client", "client_cpu_us", "#f2b134"),
    ("server", "server_cpu_us", "#1565c0"),
    ("environments", "environment_cpu_us", "#8bbf9f"),
)
# Bars of what costs more than this would leave none of the others to see.
_MOST_US = 1_000.0

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222 }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 12px; fill: #555 }
.end { text-anchor: end }
.mid { text-anchor: middle }
.grid { stroke: #e2e2e2 }
.line { fill: none; stroke-width: 2.2 }
.range { stroke-width: 1.2; opacity: .6 }
"""


def draw(report: Report) -> str:
    """The picture of a report, as the text of an SVG file."""
    rows = [
        row
        for row in report.rows
        if row.case.program.name == TRIVIAL
        and not row.case.hanging
        and row.median("steps_per_s") is not None
    ]
    bars = [row for row in rows if row.case.subject != subjects.EXEC]
    height = _PLOT_HEIGHT + 76 + _ROW * len(bars) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><style>{_STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    ]
    if rows:
        parts += _rates(rows)
        parts += _costs(bars, _PLOT_HEIGHT + 30)
    machine = report.machine
    said = (
        f"{machine.cpus} x {machine.cpu}; {in_rounds(report.rounds)}, medians; "
        f"other work used {report.other_cpus:.2f} CPUs"
    )
    parts.append(f'<text class="small" x="16" y="{height - 10}">{escape(said)}</text></svg>')
    return "".join(parts)


def _rates(rows: Sequence[Row]) -> list[str]:
    low_x, high_x = _decades([row.case.episodes for row in rows])
    low_y, high_y = _decades(
        [each.steps_per_s for row in rows for each in row.rounds if each.steps_per_s]
    )

    def x(value: float) -> float:
        share = (math.log10(value) - low_x) / (high_x - low_x)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = (math.log10(value) - low_y) / (high_y - low_y)
        return round(_PLOT_HEIGHT - _BOTTOM - share * (_PLOT_HEIGHT - _TOP - _BOTTOM), 1)

    parts = ['<text class="title" x="16" y="24">Steps a second, trivial program</text>']
    bottom, right = _PLOT_HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(low_y, high_y + 1):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 8}" y="{at + 4}">{10**power:,}</text>')
    for power in range(low_x, high_x + 1):
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="mid" x="{at}" y="{bottom + 18}">{10**power:,}</text>')
    parts.append(f'<text class="end" x="{right}" y="{bottom + 36}">episodes at once</text>')
    names = []
    for subject, color in COLORS.items():
        mine = sorted(
            (row for row in rows if row.case.subject == subject), key=lambda r: r.case.episodes
        )
        points = []
        for row in mine:
            at, median = x(row.case.episodes), row.median("steps_per_s") or 1.0
            rates = [each.steps_per_s for each in row.rounds if each.steps_per_s]
            points.append((at, y(median)))
            parts.append(
                f'<line class="range" stroke="{color}" x1="{at}" x2="{at}" '
                f'y1="{y(min(rates))}" y2="{y(max(rates))}"/>'
                f'<circle fill="{color}" cx="{at}" cy="{y(median)}" r="3.2">'
                f"<title>{subject}, {row.case.episodes:,}: {median:,.0f}</title></circle>"
            )
        if points:
            line = " ".join(f"{a},{b}" for a, b in points)
            parts.append(f'<polyline class="line" stroke="{color}" points="{line}"/>')
            names.append((points[-1][1], subject, color, points[-1][0]))
    return parts + _names(names, right)


def _names(names: list[tuple[float, str, str, float]], right: float) -> list[str]:
    """The lines' names beside the plot, each as near to its line's end as there is room."""
    parts, last = [], 0.0
    for at, subject, color, end in sorted(names):
        place = max(at, last + _APART)
        last = place
        parts.append(
            f'<line stroke="{color}" stroke-dasharray="2 3" x1="{end}" x2="{right + 14}" '
            f'y1="{at}" y2="{place}"/>'
            f'<text x="{right + 18}" y="{place + 4}" style="fill:{color}">{subject}</text>'
        )
    return parts


def _costs(rows: Sequence[Row], top: float) -> list[str]:
    most = min(_MOST_US, max((_cost(row) for row in rows), default=1.0))
    left, right = 200, _WIDTH - 110
    parts = [f'<text class="title" x="16" y="{top}">CPU time of a step, microseconds</text>']
    at = 330.0
    for name, _, color in _SIDES:
        parts.append(
            f'<rect x="{at}" y="{top - 11}" width="12" height="12" fill="{color}"/>'
            f'<text x="{at + 17}" y="{top}">{name}</text>'
        )
        at += 130
    bottom = top + 16 + _ROW * len(rows)
    for tick in ticks(0, most, 6):
        place = left + tick / most * (right - left)
        parts.append(
            f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{top + 10}" y2="{bottom}"/>'
            f'<text class="mid small" x="{place:.1f}" y="{bottom + 14}">{tick:g}</text>'
        )
    for number, row in enumerate(rows):
        y, begin = top + 16 + _ROW * number, float(left)
        label = f"{row.case.subject}, {row.case.episodes:,}"
        parts.append(f'<text class="end" x="{left - 8}" y="{y + 13}">{label}</text>')
        for _, figure, color in _SIDES:
            width = (row.median(figure) or 0.0) / max(most, _cost(row)) * (right - left)
            parts.append(
                f'<rect x="{begin:.1f}" y="{y + 2}" width="{width:.1f}" height="{_ROW - 6}" '
                f'fill="{color}"/>'
            )
            begin += width
        cost = _cost(row)
        said = f"{cost:,.0f}" if cost >= 10 else f"{cost:.2g}"
        cut = " (cut)" if cost > most else ""
        parts.append(f'<text x="{begin + 6:.1f}" y="{y + 13}">{said}{cut}</text>')
    return parts


def _cost(row: Row) -> float:
    """Of all sides: as long as the parts of its bar together."""
    return sum(row.median(figure) or 0.0 for _, figure, _ in _SIDES)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten around them, one apart at least."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
