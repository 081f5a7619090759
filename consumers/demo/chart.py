"""Draws line charts as SVG: panels below each other, with the same time axis. Needs no plotting library."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 760, 150, 56, 150, 46, 34  # pixels
INK, GRID, BAND = "#444", "#ddd", "#f3ead7"
FONT = "font-family='sans-serif' font-size='11'"
TICKS = 4  # approximate number of ticks on the vertical axis


@dataclass(frozen=True, slots=True)
class Line:
    """One series; `xs` are ascending."""

    name: str
    color: str
    xs: Sequence[float]
    ys: Sequence[float]
    steps: bool = False  # True: the line stays at a value until the next point
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over the same axes; the vertical axis starts at 0."""

    title: str
    lines: Sequence[Line]
    most: float | None = None  # top of the vertical axis; higher values are cut off. None: show all values


def chart(title: str, panels: Sequence[Panel], *, unit: str = "s", band: tuple[float, float] | None = None) -> str:
    """The chart as SVG text. `band` is a period to highlight, `unit` the unit of time."""
    last = max(max(line.xs) for panel in panels for line in panel.lines)
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>",
        "<rect width='100%' height='100%' fill='white'/>",
        f"<text x='{LEFT}' y='20' {FONT} font-weight='bold' fill='{INK}'>{escape(title)}</text>",
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL + GAP), last, unit, band)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, top: float, last: float, unit: str, band: tuple[float, float] | None) -> list[str]:
    highest = panel.most or max(max(line.ys, default=0.0) for line in panel.lines) or 1.0
    step = _round_step(highest / TICKS)
    highest = step * ceil(highest / step - 1e-9)
    right = WIDTH - RIGHT

    def x(value: float) -> float:
        return LEFT + value / last * (right - LEFT)

    def y(value: float) -> float:
        return top + PANEL * (1 - min(value, highest) / highest)

    parts = [f"<text x='{LEFT}' y='{top - 6}' {FONT} fill='{INK}'>{escape(panel.title)}</text>"]
    if band is not None:
        width = x(band[1]) - x(band[0])
        parts.append(f"<rect x='{x(band[0]):.1f}' y='{top}' width='{width:.1f}' height='{PANEL}' fill='{BAND}'/>")
    for tick in range(round(highest / step) + 1):
        at = y(tick * step)
        parts.append(f"<path d='M{LEFT} {at:.1f}H{right}' stroke='{GRID}'/>")
        parts.append(
            f"<text x='{LEFT - 5}' y='{at + 4:.1f}' {FONT} fill='{INK}' text-anchor='end'>{tick * step:g}</text>"
        )
    every = _round_step(last / 6)
    for tick in range(floor(last / every) + 1):
        label = f"{tick * every:g}{f' {unit}' if not tick else ''}"
        at = x(tick * every)
        parts.append(
            f"<text x='{at:.1f}' y='{top + PANEL + 13}' {FONT} fill='{INK}' text-anchor='middle'>{label}</text>"
        )
    for number, line in enumerate(panel.lines):
        dash = " stroke-dasharray='4 3'" if line.dashed else ""
        points = [(x(a), y(b)) for a, b in zip(line.xs, line.ys, strict=True)]
        parts.append(
            f"<path d='{_path(points, line.steps)}' fill='none' stroke='{line.color}' stroke-width='1.6'{dash}/>"
        )
        key = top + 12 + 16 * number
        parts.append(f"<path d='M{right + 8} {key - 4}h18' stroke='{line.color}' stroke-width='2'{dash}/>")
        parts.append(f"<text x='{right + 30}' y='{key}' {FONT} fill='{INK}'>{escape(line.name)}</text>")
    return parts


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    """The line's SVG path, without points that have the same value as both neighbours."""
    kept = [
        point
        for place, point in enumerate(points)
        if not 0 < place < len(points) - 1 or not points[place - 1][1] == point[1] == points[place + 1][1]
    ]
    path = f"M{kept[0][0]:.1f} {kept[0][1]:.1f}"
    for at, level in kept[1:]:
        path += f"H{at:.1f}V{level:.1f}" if steps else f"L{at:.1f} {level:.1f}"
    return path


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, ... (or 0.5, 0.2, ...) that is at least `least`."""
    power = 10 ** floor(log10(least))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= least - 1e-12))
