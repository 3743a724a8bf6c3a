"""Charts as inline SVG: no script, no font, no network; colours come from the page's CSS.

A chart is drawn for `WIDTH` units and scales with its column. Hovering a column shows the
numbers through the SVG's own `<title>`.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from spadework.report.intervals import Estimate
from spadework.untrusted_text import short

WIDTH = 560
HEIGHT = 250
STEP = "training step"
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 34


@dataclass(frozen=True)
class Series:
    """One line: points of (x, estimate); `color` names a CSS class `c-<color>`."""

    name: str
    color: str
    points: list[tuple[float, Estimate]]
    dashed: bool = False


@dataclass(frozen=True)
class Track:
    """The short life of one environment: points of (x, y)."""

    key: str
    label: str
    color: str
    points: list[tuple[float, float]]


@dataclass
class Axes:
    """Maps data to the drawing, and draws grid, ticks and marks."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    y_format: Callable[[float], str] = field(default=lambda v: f"{v:,g}")
    x_label: str = STEP
    height: int = HEIGHT

    def x(self, value: float) -> float:
        low, high = self.x_range
        return round(_LEFT + (value - low) / ((high - low) or 1) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (min(max(value, low), high) - low) / ((high - low) or 1)
        return round(self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM), 1)

    def frame(self, marks: Iterable[tuple[float, str]] = ()) -> str:
        parts = []
        right, bottom = WIDTH - _RIGHT, self.height - _BOTTOM
        for tick in ticks(*self.y_range, 5):
            y = self.y(tick)
            zero = " zero" if tick == 0 else ""
            parts.append(f'<line class="grid{zero}" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
            said = escape(self.y_format(tick))
            parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4}">{said}</text>')
        for tick in ticks(*self.x_range, 7):
            # There is no half a training step.
            if self.x_label != STEP or tick == int(tick):
                x = self.x(tick)
                parts.append(f'<text class="tick mid" x="{x}" y="{bottom + 16}">{tick:g}</text>')
        parts.append(
            f'<text class="axis" x="{right}" y="{self.height - 4}">{escape(self.x_label)}</text>'
        )
        for value, label in marks:
            x = self.x(value)
            parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="note" x="{x + 4}" y="{_TOP + 8}">{escape(label)}</text>')
        return "".join(parts)


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) from low to high."""
    span = high - low
    if span <= 0:
        return [low]
    magnitude = 10 ** math.floor(math.log10(span / count))
    step = next(m * magnitude for m in (1, 2, 5, 10) if span / (m * magnitude) <= count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def percent(value: float) -> str:
    return f"{value * 100:.0f}%"


def _svg(body: str, label: str, height: int = HEIGHT, extra_class: str = "") -> Markup:
    return Markup(
        f'<svg class="chart {extra_class}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )


def _points(axes: Axes, pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in pairs)


def _describe(series: Series, estimate: Estimate, show: Callable[[float], str]) -> str:
    text = f"{series.name}: {show(estimate.value)}"
    if estimate.low is not None and estimate.high is not None:
        text += f"  [{show(estimate.low)}, {show(estimate.high)}]"
    return text + (f"  n={estimate.n}" if estimate.n else "")


def _hit_columns(axes: Axes, titles: Mapping[float, Sequence[str]]) -> str:
    xs = sorted(titles)
    parts = []
    for i, x in enumerate(xs):
        left = _LEFT if i == 0 else (axes.x(xs[i - 1]) + axes.x(x)) / 2
        right = WIDTH - _RIGHT if i == len(xs) - 1 else (axes.x(x) + axes.x(xs[i + 1])) / 2
        title = escape("\n".join([f"{axes.x_label} {x:g}", *titles[x]]))
        parts.append(
            f'<rect class="hit" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 0.5):.1f}" '
            f'height="{axes.height - _TOP - _BOTTOM}"><title>{title}</title></rect>'
        )
    return "".join(parts)


def x_span(xs: Iterable[float]) -> tuple[float, float]:
    values = list(xs)
    return (min(values), max(max(values), min(values) + 1)) if values else (0.0, 1.0)


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    y_range: tuple[float, float] | None = None,
    y_format: Callable[[float], str] = lambda v: f"{v:,g}",
    value_format: Callable[[float], str] = lambda v: f"{v:.3g}",
    x_range: tuple[float, float] | None = None,
    marks: Iterable[tuple[float, str]] = (),
) -> Markup:
    """Lines over steps, each with its 95% band where there is one."""
    drawn = [s for s in series if s.points]
    if not drawn:
        return nothing("Not recorded in this run.")
    if y_range is None:
        bounds = [b for s in drawn for _, e in s.points for b in (e.value, e.low, e.high)]
        values = [b for b in bounds if b is not None]
        low, high = min(0.0, *values), max(0.0, *values)
        y_range = (low, high + (high - low or 1.0) * 0.06)
    axes = Axes(x_range or x_span(x for s in drawn for x, _ in s.points), y_range, y_format)
    parts = [axes.frame(marks)]
    titles: dict[float, list[str]] = {}
    for s in drawn:
        band = [(x, e.low, e.high) for x, e in s.points if e.low is not None]
        if len(band) > 1:
            outline = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in band[::-1]]
            shape = _points(axes, [(x, y) for x, y in outline if y is not None])
            parts.append(f'<polygon class="band c-{s.color}" points="{shape}"/>')
    for s in drawn:
        dashed = " dashed" if s.dashed else ""
        shape = _points(axes, ((x, e.value) for x, e in s.points))
        parts.append(f'<polyline class="line c-{s.color}{dashed}" points="{shape}"/>')
        if len(s.points) <= 40:
            parts += [
                f'<circle class="dot c-{s.color}" cx="{axes.x(x)}" cy="{axes.y(e.value)}" r="2"/>'
                for x, e in s.points
            ]
        for x, e in s.points:
            titles.setdefault(x, []).append(_describe(s, e, value_format))
    parts.append(_hit_columns(axes, titles))
    return _svg("".join(parts), label)


def stacked_bars(
    xs: Sequence[float],
    layers: Sequence[tuple[str, str, Sequence[float]]],
    *,
    label: str,
    x_range: tuple[float, float] | None = None,
    x_label: str = STEP,
    unit: str = "",
) -> Markup:
    """Bars over steps, split into layers of (name, color, a value an x)."""
    totals = [sum(values[i] for _, _, values in layers) for i in range(len(xs))]
    if not xs or not any(totals):
        return nothing("Not recorded in this run.")
    gap = min((b - a for a, b in itertools.pairwise(xs)), default=1.0)
    low, high = x_range or (min(xs), max(xs))
    axes = Axes((low - gap / 2, high + gap / 2), (0.0, max(totals) * 1.04), x_label=x_label)
    width = max(1.0, min(40.0, (axes.x(gap) - axes.x(0)) * 0.82))
    parts = [axes.frame()]
    titles: dict[float, list[str]] = {}
    for i, x in enumerate(xs):
        base = 0.0
        for name, color, values in layers:
            if values[i] <= 0:
                continue
            top, bottom = axes.y(base + values[i]), axes.y(base)
            parts.append(
                f'<rect class="bar c-{color}" x="{axes.x(x) - width / 2:.1f}" y="{top}" '
                f'width="{width:.1f}" height="{bottom - top:.1f}"/>'
            )
            base += values[i]
            titles.setdefault(x, []).append(f"{name}: {values[i]:.3g}{unit}")
    parts.append(_hit_columns(axes, titles))
    return _svg("".join(parts), label)


def tracks(
    lives: Sequence[Track],
    *,
    label: str,
    y_range: tuple[float, float],
    y_format: Callable[[float], str],
    x_range: tuple[float, float],
    guides: tuple[float, float] | None = None,
) -> Markup:
    """One short line an environment; a click on it opens the environment in the list.

    Equal lines would hide each other, so each is moved up or down by up to 3 units.
    """
    if not lives:
        return nothing("No environment was measured.")
    axes = Axes(x_range, y_range, y_format, height=300)
    parts = []
    if guides:
        top, bottom = axes.y(guides[1]), axes.y(guides[0])
        parts.append(
            f'<rect class="guide" x="{_LEFT}" y="{top}" width="{WIDTH - _LEFT - _RIGHT}" '
            f'height="{bottom - top:.1f}"/>'
        )
    parts.append(axes.frame())
    for life in lives:
        shape = _points(axes, life.points)
        x, y = life.points[-1]
        apart = zlib.crc32(life.key.encode()) % 7 - 3
        parts.append(
            f'<g class="track c-{life.color}" data-env="{escape(life.key)}" '
            f'transform="translate(0 {apart})">'
            f"<title>{escape(life.label)}</title>"
            f'<polyline class="reach" points="{shape}"/><polyline class="thin" points="{shape}"/>'
            f'<circle cx="{axes.x(x)}" cy="{axes.y(y)}" r="2.6"/></g>'
        )
    return _svg("".join(parts), label, 300)


def interval_rows(
    rows: Sequence[tuple[str, str, Estimate]],
    *,
    label: str,
    x_range: tuple[float, float],
    show: Callable[[float], str] = lambda v: f"{v:.2f}",
) -> Markup:
    """A dot and its 95% interval a row, on one common axis; rows of (name, color, estimate)."""
    if not rows:
        return nothing("Not recorded in this run.")
    left, pitch = 128, 36
    height = 14 + pitch * len(rows) + 28
    low, high = x_range

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / ((high - low) or 1)
        return round(left + share * (WIDTH - left - 64), 1)

    parts = []
    for tick in ticks(low, high, 6):
        zero = " zero" if tick == 0 else ""
        parts.append(
            f'<line class="grid{zero}" x1="{x(tick)}" x2="{x(tick)}" y1="8" y2="{height - 26}"/>'
            f'<text class="tick mid" x="{x(tick)}" y="{height - 8}">{tick:g}</text>'
        )
    for i, (name, color, e) in enumerate(rows):
        y = 14 + pitch * i + pitch / 2
        parts.append(f'<text class="row" x="0" y="{y + 4.5}">{escape(short(name, 17))}</text>')
        if e.low is not None and e.high is not None:
            parts.append(
                f'<line class="whisker c-{color}" x1="{x(e.low)}" x2="{x(e.high)}" '
                f'y1="{y}" y2="{y}"/>'
            )
        parts.append(f'<circle class="dot c-{color}" cx="{x(e.value)}" cy="{y}" r="5.5"/>')
        parts.append(
            f'<text class="value" x="{WIDTH}" y="{y + 4.5}">{escape(show(e.value))}</text>'
        )
    return _svg("".join(parts), label, height, "flush")


def horizontal_bars(rows: Sequence[tuple[str, float, str, str]], *, label: str) -> Markup:
    """Bars of (name, value, color, what is written behind the bar), longest name left."""
    if not rows or not any(value for _, value, _, _ in rows):
        return nothing("Not recorded in this run.")
    left, pitch = 168, 27
    height = 8 + pitch * len(rows)
    scale = (WIDTH - left - 120) / max(value for _, value, _, _ in rows)
    parts = []
    for i, (name, value, color, note) in enumerate(rows):
        y = 4 + pitch * i
        width = max(1.0, value * scale)
        parts.append(
            f'<text class="row" x="0" y="{y + 17}">{escape(short(name, 20))}</text>'
            f'<rect class="bar c-{color}" x="{left}" y="{y + 4}" width="{width:.1f}" '
            f'height="{pitch - 9}" rx="2"/>'
            f'<text class="after" x="{left + width + 8:.1f}" y="{y + 17}">{escape(note)}</text>'
        )
    return _svg("".join(parts), label, height, "flush")


def heat_rows(
    rows: Sequence[tuple[str, Mapping[float, tuple[float, int]]]],
    *,
    label: str,
    x_range: tuple[float, float],
    bins: int = 24,
) -> Markup:
    """A row a family: x -> (mean in [0, 1], n), pooled into at most `bins` columns."""
    if not rows:
        return nothing("No environment was measured.")
    left, pitch = 128, 28
    height = 6 + pitch * len(rows) + 30
    first, last = x_range
    count = int(min(bins, last - first + 1))
    width = (WIDTH - left - 4) / count
    parts = []
    for i, (name, cells) in enumerate(rows):
        y = 4 + pitch * i
        parts.append(f'<text class="row" x="0" y="{y + 18}">{escape(short(name, 17))}</text>')
        pooled: dict[int, tuple[float, int, float, float]] = {}
        for step, (mean, n) in cells.items():
            b = min(count - 1, int((step - first) / (last - first + 1) * count))
            total, seen, low, high = pooled.get(b, (0.0, 0, step, step))
            pooled[b] = (total + mean * n, seen + n, min(low, step), max(high, step))
        for b, (total, n, low, high) in pooled.items():
            mean = total / n
            when = f"step {low:g}" if low == high else f"steps {low:g} to {high:g}"
            parts.append(
                f'<rect class="heat" x="{left + b * width + 1:.1f}" y="{y + 1}" '
                f'width="{width - 2:.1f}" height="{pitch - 4}" rx="2" '
                f'fill-opacity="{0.06 + 0.94 * min(max(mean, 0.0), 1.0):.2f}">'
                f"<title>{escape(f'{name}, {when}: {mean:.2f} (n={n})')}</title></rect>"
            )
    for tick in ticks(first, last, 7):
        if tick == int(tick):
            x = left + (tick - first + 0.5) / (last - first + 1) * (WIDTH - left - 4)
            parts.append(f'<text class="tick mid" x="{x:.1f}" y="{height - 10}">{tick:g}</text>')
    return _svg("".join(parts), label, height, "flush")


def nothing(text: str) -> Markup:
    """What stands in a chart's place when there is nothing to draw."""
    return Markup('<p class="nothing">{}</p>').format(text)
