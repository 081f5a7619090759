"""The figures of both models over all windows together, if they choose one of several classes. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FIGURES: Final = ("accuracy", "log_loss")
"""They are means over paired events, so the mean of the windows, weighted by these, is exact."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Each figure of both models: name -> value. None: not known."""

    labelled: int  # events with a label
    labels: int  # of the paired ones, which also have a class of both models: the figures are computed from these
    primary: dict[str, float | None]
    shadow: dict[str, float | None]


def totals(rows: Sequence[dict[str, Any]]) -> Totals:
    """The figures over all windows of one shadow; `rows`: their results (schema evaluation-v2)."""
    counted = [row for row in rows if row["paired"] and row["primary"]["accuracy"] is not None]
    sides = [{name: _mean(counted, side, name) for name in FIGURES} for side in ("primary", "shadow")]
    return Totals(sum(row["labelled"] for row in rows), sum(row["paired"] for row in counted), *sides)


def _mean(rows: Sequence[dict[str, Any]], side: str, figure: str) -> float | None:
    """None: a window lacks the figure, so it is not known for all of them."""
    values = [row[side][figure] for row in rows]
    if not values or not all(value is not None and math.isfinite(value) for value in values):
        return None
    weights = [row["paired"] for row in rows]
    return float(sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights))
