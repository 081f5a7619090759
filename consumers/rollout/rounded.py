"""Rounds what is only a forecast, or only told: numbers of events and spans of time."""

from __future__ import annotations

import math
from typing import Final

A_SECOND: Final = 1000  # ms; shorter spans are "just now"
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (A_SECOND, "s"))


def about(number: float) -> str:
    """A number of things with two digits that count, such as `4,300`; at least 1."""
    whole = max(number, 1.0)
    return f"{round(whole, 1 - int(math.log10(max(whole, 10.0)))):,.0f}"


def span(ms: float) -> str:
    """A span of time, such as `12 min`."""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return "just now"


def ago(ms: float) -> str:
    """How long ago something was: `12 min ago`, or `just now`."""
    return f"{span(ms)} ago" if ms >= A_SECOND else span(ms)
