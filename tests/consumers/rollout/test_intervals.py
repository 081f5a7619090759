"""Exact intervals: known values, and how often they miss at any look."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln

from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.proportions import difference_interval, proportion_interval
from millstream.consumers.rollout.quantiles import (
    BINS,
    batch_design_effect,
    histogram,
    latency_bins,
    quantile_interval,
)

LEVEL = 0.05
TRIALS = 2000


@pytest.mark.parametrize(
    ("hits", "events", "level", "lower", "upper"),
    [  # of ville 0.1.0, BernoulliCS with the prior (0.5, 0.5)
        (7, 100, 0.05, 0.014756110511524891, 0.18576811362882145),
        (0, 500, 0.01, 0.0, 0.016433648101172815),
        (30, 30, 0.01, 0.7950025078648617, 1.0),
    ],
)
def test_proportion_has_the_values_of_ville(hits: int, events: int, level: float, lower: float, upper: float) -> None:
    found = proportion_interval(hits, events, level)
    assert found.lower == pytest.approx(lower, abs=1e-9)
    assert found.upper == pytest.approx(upper, abs=1e-9)


def test_no_events_allow_every_proportion() -> None:
    assert list(map(float, proportion_interval(0, 0, LEVEL))) == [0, 1]


@pytest.mark.parametrize("p", [0.002, 0.1, 0.6])
def test_proportion_is_missed_at_any_look_as_seldom_as_stated(p: float) -> None:
    hits = (np.random.default_rng(7).random((TRIALS, 3000)) < p).cumsum(1)[:, 19::20]
    events = np.arange(20, 3001, 20)
    found = proportion_interval(hits, events, LEVEL)
    missed = ((found.lower > p) | (found.upper < p)).any(1).mean()
    assert missed <= LEVEL


def test_no_errors_so_far_do_not_prove_that_there_are_none() -> None:
    """The usual variance of 500 events without an error is 0."""
    nothing = Clusters.of(np.arange(500), np.zeros(500))
    found = difference_interval(nothing, nothing, 0.01)
    assert found.upper > 0.015
    assert found.lower < -0.015


def test_clustered_errors_count_as_few() -> None:
    """All events of ten keys failed: ten failures, not a hundred."""
    failed = np.repeat(np.arange(300) < 10, 10).astype(np.float64)
    keys = np.repeat(np.arange(300), 10)
    baseline = Clusters.of(keys, np.zeros(3000))
    clustered = difference_interval(baseline, Clusters.of(keys, failed), LEVEL)
    independent = difference_interval(
        baseline, Clusters.of(np.arange(3000) % 1024, np.random.default_rng(0).permutation(failed)), LEVEL
    )
    assert clustered.upper - clustered.lower > 2 * (independent.upper - independent.lower)


def test_side_without_a_failure_is_as_clustered_as_the_other() -> None:
    failed = np.repeat(np.arange(300) < 10, 10).astype(np.float64)
    keys = np.repeat(np.arange(300), 10)
    baseline = Clusters.of(keys, failed)
    clean = difference_interval(baseline, Clusters.of(keys, np.zeros(3000)), LEVEL)
    few = proportion_interval(0, 3000 / 10, LEVEL / 2)
    assert clean.upper + proportion_interval(10, 300, LEVEL / 2).lower == pytest.approx(float(few.upper), rel=0.1)


@pytest.mark.parametrize("p", [0.5, 0.99])
def test_quantile_is_missed_at_any_look_as_seldom_as_stated(p: float) -> None:
    rng = np.random.default_rng(10)
    counts = np.zeros((400, BINS))
    missed = np.zeros(400, np.bool_)
    true = float(-20 * np.log(1 - p))  # of exponential latencies with the mean 20 ms
    for _ in range(30):
        latencies = rng.exponential(20, (400, 100))
        np.add.at(counts, (np.arange(400)[:, None], latency_bins(latencies)), 1)
        found = quantile_interval(counts, p, LEVEL)
        missed |= (found.lower > true) | (found.upper < true)
    assert missed.mean() <= LEVEL
    assert np.median(found.upper / found.lower) < (1.3 if p == 0.5 else 2.5)


def test_ranks_of_the_quantile_are_those_of_the_mixture() -> None:
    """1,000 values, one per bin: the ends are the ranks at which the evidence against p reaches 1 / level."""
    counts = np.zeros(BINS)
    counts[:1000] = 1
    found = quantile_interval(counts, 0.5, LEVEL)
    inside = [
        k for k in range(1001) if betaln(50 + k, 50 + 1000 - k) - betaln(50, 50) - 1000 * np.log(0.5) < -np.log(LEVEL)
    ]
    step = 1.02
    assert found.lower == pytest.approx(1e-3 * step ** (inside[0] - 1))  # the value of that rank is in the bin before
    assert found.upper == pytest.approx(1e-3 * step ** (inside[-1] + 1))


def test_design_effect_widens_the_quantiles() -> None:
    counts = histogram(np.random.default_rng(2).exponential(20, 4000))
    alone, together = (quantile_interval(counts, 0.9, LEVEL, effect) for effect in (1.0, 40.0))
    assert together.lower < alone.lower < alone.upper < together.upper
    assert batch_design_effect(0, 0) == 1
    assert batch_design_effect(300, 3 * 100**2) == 100


def test_latencies_outside_of_the_bins_are_in_the_last_ones() -> None:
    assert latency_bins(np.array([0.0, -1.0, np.inf, 1e9, np.nan])).tolist() == [
        0,
        BINS - 1,
        BINS - 1,
        BINS - 1,
        BINS - 1,
    ]
    nothing = quantile_interval(np.zeros(BINS), 0.5, LEVEL)
    assert list(map(float, nothing)) == [0, np.inf]
