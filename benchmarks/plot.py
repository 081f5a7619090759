"""A plot for people, as SVG: bars on a logarithmic scale, one group a workload."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, BAR, GAP, LEFT, RIGHT = 900, 15, 3, 240, 90
OURS, OTHERS = "#1f6feb", "#8b949e"


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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10:.0f}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#24292f"{weight}>{escape(text)}</text>'
