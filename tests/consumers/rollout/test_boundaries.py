"""Boundaries have the values of their papers, and hold at all looks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from millstream.consumers.rollout.boundaries import one_sided, quantile_of_normal, two_sided, widened

LEVEL = 0.05


@pytest.mark.parametrize(
    ("variance", "events", "rho", "half_width"),
    [  # of gbstats 0.8.0 (GrowthBook), SequentialTwoSidedTTest at 5 %
        (0.0002033033033033033, 2_000, 0.03984006677137368, 0.044540237791478754),
        (6.131695904114525e-05, 21_000, 0.06299267656536578, 0.02543569765266202),
    ],
)
def test_two_sided_boundary_is_that_of_growthbook(variance: float, events: int, rho: float, half_width: float) -> None:
    assert two_sided(variance, rho * np.sqrt(variance * events), LEVEL) == pytest.approx(half_width, rel=1e-9)


@pytest.mark.parametrize("variance", [1e-4, 0.01, 1.0, 10.0])
@pytest.mark.parametrize("level", [0.001, 0.05])
def test_closed_one_sided_form_is_just_above_the_exact_mixture(variance: float, level: float) -> None:
    """The mixture is over effects above 0, of a half-normal distribution with the scale 1."""
    ratio = 1 / variance

    def excess(estimate: float) -> float:
        x = estimate / np.sqrt(variance) * np.sqrt(ratio / (1 + ratio))
        return float(np.log(2) + norm.logcdf(x) + x**2 / 2 - np.log(1 + ratio) / 2 + np.log(level))

    exact = brentq(excess, 0, 10_000)
    assert exact <= one_sided(variance, 1.0, level) < 1.02 * exact


def crossings(*, sided: int, scale: float) -> float:
    """How often the mean of normal values without an effect is ever outside; 2,000 looks at times that grow by 1 %."""
    rng = np.random.default_rng(11)
    times = np.unique(np.ceil(1.01 ** np.arange(1100)).astype(np.int64))
    steps = rng.standard_normal((4000, len(times))) * np.sqrt(np.diff(times, prepend=0))
    means = steps.cumsum(1) / times
    if sided == 1:
        return float((means > one_sided(1 / times, scale, LEVEL)).any(1).mean())
    return float((np.abs(means) > two_sided(1 / times, scale, LEVEL)).any(1).mean())


@pytest.mark.parametrize("sided", [1, 2])
@pytest.mark.parametrize("scale", [0.3, 0.03])
def test_bounds_hold_at_all_looks_and_are_not_far_too_wide(sided: int, scale: float) -> None:
    found = crossings(sided=sided, scale=scale)
    assert 0.01 < found < LEVEL


def test_bound_for_a_single_look_would_not_hold() -> None:
    """The test above can fail: these are the usual intervals of 5 %, looked at as often."""
    rng = np.random.default_rng(11)
    means = rng.standard_normal((1000, 2000)).cumsum(1) / np.arange(1, 2001)
    outside = np.abs(means) > 1.96 / np.sqrt(np.arange(1, 2001))
    assert outside.any(1).mean() > 0.4


def test_variance_of_few_degrees_widens_the_interval() -> None:
    radius = two_sided(1.0, 1.0, LEVEL)
    assert widened(radius, 1.0, 1e9) == pytest.approx(radius, rel=1e-4)
    # Student's t with 10 degrees of freedom: a normal's 2.5 % and t's 2.5 % are at 1.96 and 2.228.
    assert widened(1.959964, 1.0, 10.0) == pytest.approx(2.228139, rel=1e-5)
    assert widened(radius, 1.0, 20.0) > widened(radius, 1.0, 50.0) > radius


@pytest.mark.parametrize("variance", [0.0, np.inf, np.nan])
def test_unknown_variance_has_no_bound(variance: float) -> None:
    assert one_sided(variance, 1.0, LEVEL) == two_sided(variance, 1.0, LEVEL) == np.inf
    assert widened(np.inf, variance, 5.0) == np.inf


def test_quantile_of_the_normal() -> None:
    assert quantile_of_normal(0.975) == pytest.approx(1.959964, rel=1e-6)
