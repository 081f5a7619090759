"""Exact intervals: known values, and how often they miss at any look."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.proportions import difference_interval, proportion_interval

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
