"""Small charts with logarithmic axes side by side, as one SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import escape

WIDTH, HEIGHT = 450, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 118, 40, 46
# Space between names that would lie on each other.
_APART = 15
_PER_ROW = 2

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 }
.title { font-size: 14px; font-weight: 600 }
.small { font-size: 11px; fill: #555 }
.end { text-anchor: end }
.mid { text-anchor: middle }
.grid { stroke: #e2e2e2 }
.line { fill: none; stroke-width: 1.8 }
"""


@dataclass(frozen=True)
class Series:
    """Dots, and a line through others: what was seen, and a law or a model of it."""

    name: str
    color: str
    dots: Sequence[tuple[float, float]] = ()
    line: Sequence[tuple[float, float]] = ()
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart; both axes are logarithmic."""

    title: str
    x_label: str
    series: Sequence[Series]
    marks: Sequence[float] = field(default=())


def draw(panels: Sequence[Panel], caption: str) -> str:
    """All panels, two in a row, over a caption; the text of an SVG file."""
    rows = -(-len(panels) // _PER_ROW)
    width, height = WIDTH * _PER_ROW, HEIGHT * rows + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for number, panel in enumerate(panels):
        x, y = number % _PER_ROW * WIDTH, number // _PER_ROW * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(panel)
        parts.append("</g>")
    parts.append(f'<text class="small" x="16" y="{height - 9}">{escape(caption)}</text></svg>')
    return "".join(parts)


def _panel(panel: Panel) -> list[str]:
    places = [place for each in panel.series for place in (*each.dots, *each.line)]
    parts = [f'<text class="title" x="16" y="24">{escape(panel.title)}</text>']
    if not places:
        return parts
    low_x, high_x = _range([x for x, _ in places])
    low_y, high_y = _range([y for _, y in places])
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def at_x(value: float) -> float:
        share = (math.log10(value) - low_x) / (high_x - low_x)
        return round(_LEFT + share * (right - _LEFT), 1)

    def at_y(value: float) -> float:
        share = (math.log10(value) - low_y) / (high_y - low_y)
        return round(bottom - share * (bottom - _TOP), 1)

    for tick in _ticks(low_y, high_y):
        y = at_y(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="end small" x="{_LEFT - 7}" y="{y + 4}">{_said(tick)}</text>')
    for tick in _ticks(low_x, high_x):
        x = at_x(tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="mid small" x="{x}" y="{bottom + 16}">{_said(tick)}</text>')
    for mark in panel.marks:
        x = at_x(mark)
        parts.append(
            f'<line stroke="#999" stroke-dasharray="3 3" x1="{x}" x2="{x}" y1="{_TOP}" '
            f'y2="{bottom}"><title>bend at {mark:,.0f}</title></line>'
        )
    parts.append(
        f'<text class="end small" x="{right}" y="{bottom + 33}">{escape(panel.x_label)}</text>'
    )
    names = []
    for each in panel.series:
        for x, y in each.dots:
            parts.append(
                f'<circle fill="{each.color}" cx="{at_x(x)}" cy="{at_y(y)}" r="3">'
                f"<title>{escape(each.name)}, {x:,g}: {y:,.3g}</title></circle>"
            )
        if each.line:
            dash = ' stroke-dasharray="6 4"' if each.dashed else ""
            path = " ".join(f"{at_x(x)},{at_y(y)}" for x, y in each.line)
            parts.append(f'<polyline class="line" stroke="{each.color}"{dash} points="{path}"/>')
        last = max([*each.dots, *each.line], default=None)
        if last is not None:
            names.append((at_y(last[1]), each.name, each.color))
    return parts + _names(names, right)


def _names(names: list[tuple[float, str, str]], right: float) -> list[str]:
    """Beside the lines' ends, each as near as there is room."""
    parts, last = [], 0.0
    for at, name, color in sorted(names):
        last = max(at, last + _APART)
        parts.append(
            f'<text x="{right + 8}" y="{last + 4}" style="fill:{color}">{escape(name)}</text>'
        )
    return parts


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms around them, with room at both ends and half a decade at least."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.05, (high - low) * 0.06)
    low, high = low - room, high + room
    missing = max(0.0, 0.6 - (high - low)) / 2
    return low - missing, high + missing


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten in it; with their doubles and halves where those are fewer than three."""
    for parts in ((1,), (1, 3), (1, 2, 5)):
        found = [
            part * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for part in parts
            if low <= math.log10(part * 10.0**power) <= high
        ]
        if len(found) >= 3:
            break
    return found


def _said(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
