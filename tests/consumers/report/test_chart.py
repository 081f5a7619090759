"""The scales and the parts of a plot."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.consumers.report.chart import HEIGHT, WIDTH, Band, Line, Plot, Steps, svg, ticks, time_ticks


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(low: float, width: float) -> None:
    assume(width > 1e-5 * abs(low))  # else the ticks' own rounding shows
    found = ticks(low, low + width)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-6 * width <= tick <= low + width + 1e-6 * width for tick in found)


@given(st.integers(0, 4_000_000_000_000), st.integers(60_000, 400_000_000_000))
def test_time_ticks_are_few_and_inside(low: int, width: int) -> None:
    found = time_ticks(low, low + width)
    assert len(found) <= 6
    assert all(low <= tick <= low + width for tick in found)


@pytest.mark.parametrize("logs", [True, False])
def test_all_is_inside_of_the_plot_and_gaps_stay_gaps(logs: bool) -> None:
    nan, inf = math.nan, math.inf
    drawn = svg(
        Plot(
            "A <title>",
            "x",
            "y",
            [
                Band("#000", (0, 1, 2, 3), (-inf, 0.5, nan, 1), (inf, 2, 3, 4)),
                Line("line", "#000", (0, 1, 2, 3), (1, 2, nan, 4), points=True),
                Steps("steps", "#000", (0, 1, 3), (1, 2)),
            ],
            y_range=(0, 3),
            logs=logs,
        )
    )
    assert "A &lt;title&gt;" in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
    for points in re.findall(r'points="([^"]*)"', drawn):
        for x, y in (map(float, point.split(",")) for point in points.split()):
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    assert drawn.count("<circle") == 3


def test_one_point_and_no_point_are_drawn() -> None:
    assert "<circle" in svg(Plot("t", "x", "y", [Line("a", "#000", (5,), (5,))]))
    assert svg(Plot("t", "x", "y", [Line("a", "#000", (), ())])).startswith("<svg")


@pytest.mark.parametrize("xs", [(1.79e18, 1.79e18 + 1e9), (-(2.0**55), 0.0), (0.0, 4e14)])
def test_times_that_are_no_dates_are_shown_as_numbers(xs: tuple[float, float]) -> None:
    """Event times are the producer's: in nanoseconds, for example."""
    drawn = svg(Plot("t", "x", "y", [Line("a", "#000", xs, (1, 2))], times=True))
    assert " ms</text>" in drawn
