"""Plots for people, as SVG, with logarithmic scales: bars (one group per workload) and curves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, BAR, GAP, LEFT, RIGHT = 900, 15, 3, 240, 90
OURS, OTHERS = "#1f6feb", "#8b949e"
FIELD = (70, 46, 560, 330)  # left, top, width and height of the area with the curves
GRID = "#d0d7de"


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points (x, y). Both are above zero, and x is ascending."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def bars(title: str, groups: Sequence[tuple[str, Mapping[str, float]]], highlighted: Sequence[str]) -> str:
    """An SVG document.

    Args:
        title: what is shown, with its unit.
        groups: name -> bar's name -> value above zero.
        highlighted: names of bars in another colour.
    """
    values = [value for _, group in groups for value in group.values()]
    low, high = 10 ** math.floor(math.log10(min(values))), max(values)
    parts, y = [_text(LEFT, 22, title, "start", bold=True)], 40.0
    for name, group in groups:
        parts.append(_text(LEFT, y + 11, name, "start", bold=True))
        y += BAR + GAP
        for peer, value in group.items():
            length = max(1.0, (WIDTH - LEFT - RIGHT) * math.log(value / low) / math.log(max(high / low, 10)))
            colour = OURS if peer in highlighted else OTHERS
            parts += [
                _text(LEFT - 8, y + 11, peer, "end"),
                f'<rect x="{LEFT}" y="{y:.0f}" width="{length:.1f}" height="{BAR - 1}" rx="2" fill="{colour}"/>',
                _text(LEFT + length + 6, y + 11, _number(value), "start"),
            ]
            y += BAR + GAP
        y += 2 * GAP
    return _document(y + 10, parts)


def curves(title: str, axis: str, found: Sequence[Curve]) -> str:
    """An SVG document.

    Args:
        title: what is shown, with its unit.
        axis: what x is.
        found: at least one; the horizontal axis names each x that one of them has.
    """
    left, top, width, height = FIELD
    field = _Field([point for curve in found for point in curve.points])
    parts = [_text(left, 22, title, "start", bold=True), _text(left + width / 2, top + height + 36, axis, "middle")]
    parts += field.grid()
    for number, curve in enumerate(found):
        points = [field.place(*point) for point in curve.points]
        key = top + 12 + 18 * number
        sample = [(left + width + 16, key - 4), (left + width + 46, key - 4)]
        parts += [
            *(_line(line, curve.colour, dashed=curve.dashed, wide=True) for line in (points, sample)),
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{curve.colour}"/>' for x, y in points),
            _text(left + width + 54, key, curve.name, "start"),
        ]
    return _document(top + height + 50, parts)


class _Field:
    """Translates values into pixels."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        ys = [y for _, y in points]
        self._xs = sorted({x for x, _ in points})
        self._decades = range(math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))) + 1)

    def place(self, x: float, y: float) -> tuple[float, float]:
        left, top, width, height = FIELD
        first, last = self._xs[0], self._xs[-1]
        right = math.log(x / first) / math.log(last / first) if last > first else 0.5
        up = (math.log10(y) - self._decades[0]) / max(len(self._decades) - 1, 1)
        return left + width * right, top + height * (1 - up)

    def grid(self) -> list[str]:
        """A line and a label for each power of ten, and for each x."""
        left, top, width, height = FIELD
        parts = []
        for decade in self._decades:
            _, y = self.place(self._xs[0], 10.0**decade)
            parts += [_line([(left, y), (left + width, y)], GRID), _text(left - 8, y + 4, f"{10**decade:,}", "end")]
        for x in self._xs:
            at, _ = self.place(x, 1)
            parts += [_line([(at, top), (at, top + height)], GRID), _text(at, top + height + 16, f"{x:g}", "middle")]
        return parts


def _document(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _line(points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False, wide: bool = False) -> str:
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="{2 if wide else 1}"{dashes}/>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#24292f"{weight}>{escape(text)}</text>'
