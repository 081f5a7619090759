"""Draws plots as SVG, for a page that loads nothing: lines, bands, steps and points over linear axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, HEIGHT = 460, 300  # of a plot
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 30, 42  # margins around the axes
FIRST, SECOND, QUIET = "#0b5fa5", "#c2510c", "#6b7280"
"""Colours of the two models, and of what is beside them. They differ in grey, too."""
_INK, _GRID = "#24292f", "#d0d7de"
_TICKS: Final = 5  # about so many on an axis
_HOUR, _DAY = 3_600_000, 86_400_000  # ms


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; a gap where y is not finite."""

    name: str  # empty: it is not in the legend
    color: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False
    points: bool = False  # whether each point is marked


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two lines."""

    color: str
    xs: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@dataclass(frozen=True, slots=True)
class Steps:
    """A histogram as an outline."""

    name: str
    color: str
    edges: Sequence[float]  # one more than heights
    heights: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Points with an interval each, such as those of segments: horizontal, one below the other."""

    labels: Sequence[str]
    color: str
    middles: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


Layer = Line | Band | Steps


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot."""

    title: str
    x: str  # what the axes are
    y: str
    layers: Sequence[Layer]
    x_range: tuple[float, float] | None = None  # None: as wide as the data
    y_range: tuple[float, float] | None = None
    times: bool = False  # whether x is ms since the epoch
    logs: bool = False  # whether x is the logarithm to base 10 of what the axis shows
    notes: Sequence[str] = field(default_factory=tuple)  # sentences below it


def svg(plot: Plot) -> str:
    """The plot as SVG."""
    axes = _axes(plot)
    parts = [*axes.grid(plot), *(part for layer in plot.layers for part in _drawn(layer, axes))]
    parts += _legend([layer for layer in plot.layers if not isinstance(layer, Band) and layer.name])
    return _document(plot.title, HEIGHT, parts)


def bars_svg(title: str, x: str, bars: Bars, zero: float | None = None) -> str:
    """Intervals below each other as SVG. `zero`: where a vertical line marks no difference."""
    height = TOP + 22 * len(bars.labels) + BOTTOM
    ends = [value for value in (*bars.lows, *bars.highs, *bars.middles) if math.isfinite(value)]
    low, high = _padded([*ends, *([] if zero is None else [zero])])
    axes = _Axes((low, high), (0, 1), left=150, height=height)
    parts = [*axes.x_ticks(times=False), _text((150 + WIDTH - RIGHT) / 2, height - 8, x, "middle")]
    if zero is not None:
        parts.append(_path([(axes.x(zero), TOP), (axes.x(zero), height - BOTTOM)], _INK, dashed=True))
    for row, label in enumerate(bars.labels):
        y = TOP + 22 * row + 11
        parts.append(_text(142, y + 4, label if len(label) <= 22 else f"{label[:21]}…", "end"))
        if not math.isfinite(bars.middles[row]):
            parts.append(_text(156, y + 4, "not known", "start", QUIET))
            continue
        if not (math.isnan(bars.lows[row]) or math.isnan(bars.highs[row])):  # an end that is infinite is at the edge
            ends = [min(max(end, low), high) for end in (bars.lows[row], bars.highs[row])]
            parts.append(_path([(axes.x(end), y) for end in ends], bars.color))
        parts.append(f'<circle cx="{axes.x(bars.middles[row]):.1f}" cy="{y:.1f}" r="4" fill="{bars.color}"/>')
    return _document(title, height, parts)


class _Axes:
    """Places values in the plot."""

    def __init__(
        self, xs: tuple[float, float], ys: tuple[float, float], *, left: float = LEFT, height: float = HEIGHT
    ) -> None:
        self.xs, self.ys = xs, ys
        self._left, self._height = left, height

    def x(self, value: float) -> float:
        low, high = self.xs
        return self._left + (WIDTH - RIGHT - self._left) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.ys
        within = min(max(value, low), high)
        return self._height - BOTTOM - (self._height - BOTTOM - TOP) * (within - low) / (high - low)

    def grid(self, plot: Plot) -> Iterator[str]:
        for value in ticks(*self.ys):
            yield _path([(self._left, self.y(value)), (WIDTH - RIGHT, self.y(value))], _GRID, width=1)
            yield _text(self._left - 6, self.y(value) + 4, _number(value, self.ys), "end")
        yield from self._log_ticks() if plot.logs else self.x_ticks(times=plot.times)
        yield _text((self._left + WIDTH - RIGHT) / 2, self._height - 6, plot.x, "middle")
        middle = (TOP + self._height - BOTTOM) / 2
        yield _text(13, middle, plot.y, "middle", turned=True)

    def _log_ticks(self) -> Iterator[str]:
        few = self.xs[1] - self.xs[0] > 2
        for power in range(math.floor(self.xs[0]), math.ceil(self.xs[1]) + 1):
            for factor in (1,) if few else (1, 2, 5):
                at = power + math.log10(factor)
                if self.xs[0] <= at <= self.xs[1]:
                    yield from self._x_tick(at, f"{factor * 10.0**power:,g}")

    def _x_tick(self, value: float, label: str) -> Iterator[str]:
        bottom = self._height - BOTTOM
        yield _path([(self.x(value), TOP), (self.x(value), bottom)], _GRID, width=1)
        yield _text(self.x(value), bottom + 15, label, "middle")

    def x_ticks(self, *, times: bool) -> Iterator[str]:
        for value in time_ticks(*self.xs) if times else ticks(*self.xs):
            yield from self._x_tick(value, _moment(value, self.xs) if times else _number(value, self.xs))


def _axes(plot: Plot) -> _Axes:
    xs: list[float] = []
    ys: list[float] = []
    for layer in plot.layers:
        match layer:
            case Line():
                xs += layer.xs
                ys += layer.ys
            case Band():
                xs += layer.xs
                ys += [*layer.lows, *layer.highs]
            case Steps():
                xs += layer.edges
                ys += [0.0, *layer.heights]
    x_range = plot.x_range or _padded([x for x in xs if math.isfinite(x)], 0.0)
    return _Axes(x_range, plot.y_range or _padded([y for y in ys if math.isfinite(y)]))


def _padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """From the least to the largest value, with some room; never empty."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        room = abs(low) / 10 or 0.5
        return low - room, high + room
    return low - share * (high - low), high + share * (high - low)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers in a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= _TICKS + 1)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float) -> list[float]:
    """Round times (UTC) in a range of ms since the epoch."""
    steps = (60_000, 300_000, 900_000, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY)
    step = next((step for step in steps if (high - low) / step <= _TICKS), 365 * _DAY)
    step *= max(1, math.ceil((high - low) / (step * _TICKS)))
    return [float(number * step) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _moment(value: float, xs: tuple[float, float]) -> str:
    form = "%d %b" if xs[1] - xs[0] > 3 * _DAY else "%d %b %H:%M" if xs[1] - xs[0] > _DAY / 2 else "%H:%M"
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):  # an event's time may be anything, such as nanoseconds
        return f"{value:.6g} ms"


def _number(value: float, span: tuple[float, float]) -> str:
    width = span[1] - span[0]
    digits = min(max(0, 1 - math.floor(math.log10(width))), 6)
    return f"{value:,.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"


def _drawn(layer: Layer, axes: _Axes) -> Iterator[str]:
    match layer:
        case Line():
            for run in _runs(layer.xs, layer.ys):
                placed = [(axes.x(x), axes.y(y)) for x, y in run]
                if len(placed) > 1:
                    yield _path(placed, layer.color, dashed=layer.dashed)
                if layer.points or len(placed) == 1:
                    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{layer.color}"/>' for x, y in placed)
        case Band():
            known = [
                (x, low, high)
                for x, low, high in zip(layer.xs, layer.lows, layer.highs, strict=True)
                if math.isfinite(low) and math.isfinite(high)
            ]
            around = [(axes.x(x), axes.y(high)) for x, _, high in known]
            around += [(axes.x(x), axes.y(low)) for x, low, _ in reversed(known)]
            yield f'<polygon points="{_points(around)}" fill="{layer.color}" fill-opacity="0.18"/>'
        case Steps():
            corners = [(layer.edges[0], 0.0)]
            for start, end, height in zip(layer.edges, layer.edges[1:], layer.heights, strict=False):
                corners += [(start, height), (end, height)]
            corners.append((layer.edges[-1], 0.0))
            yield _path([(axes.x(x), axes.y(y)) for x, y in corners], layer.color, dashed=layer.dashed)


def _runs(xs: Sequence[float], ys: Sequence[float]) -> Iterator[list[tuple[float, float]]]:
    """The parts of a line between its gaps."""
    run: list[tuple[float, float]] = []
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(y):
            run.append((x, y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _legend(layers: Sequence[Line | Steps]) -> Iterator[str]:
    x = float(LEFT)
    for layer in layers:
        yield _path([(x, TOP - 10), (x + 18, TOP - 10)], layer.color, dashed=layer.dashed)
        yield _text(x + 22, TOP - 6, layer.name, "start")
        x += 36 + 6.2 * len(layer.name)


def _document(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" font-family="sans-serif" '
        f'font-size="11"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )


def _path(points: Sequence[tuple[float, float]], color: str, *, dashed: bool = False, width: float = 1.8) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{_points(points)}" fill="none" stroke="{color}" stroke-width="{width:g}"{dashes}/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text(x: float, y: float, text: str, anchor: str, color: str = _INK, *, turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"{turn}>{escape(text)}</text>'
