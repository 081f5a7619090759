"""Means of clustered events: the jackknife's variance is that of its definition, and right for events that are alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.clusters import BUCKETS, Clusters, buckets_of, paired, unpaired
from millstream.consumers.rollout.hashes import hashed

ROWS = st.lists(st.tuples(st.integers(0, 7), st.floats(-5, 5, width=16)), min_size=1, max_size=30)


def of(rows: list[tuple[int, float]]) -> Clusters:
    buckets, values = zip(*rows, strict=True)
    return Clusters.of(np.array(buckets), np.array(values, np.float64), 8)


@given(ROWS)
def test_variance_is_the_delete_one_bucket_jackknife(rows: list[tuple[int, float]]) -> None:
    found = of(rows)
    mean = np.mean([value for _, value in rows])
    assert found.mean == pytest.approx(mean, abs=1e-9)
    filled = sorted({bucket for bucket, _ in rows})
    if len(filled) < 2:
        assert found.variance == np.inf
        return
    without = [np.mean([value for other, value in rows if other != bucket]) for bucket in filled]
    wanted = (len(filled) - 1) / len(filled) * sum((float(part) - float(mean)) ** 2 for part in without)
    assert found.variance == pytest.approx(wanted, abs=1e-9)


@given(ROWS, st.integers(0, 30))
def test_parts_add_up_to_the_whole(rows: list[tuple[int, float]], cut: int) -> None:
    parts = [of(part) if part else Clusters.empty(buckets=8) for part in (rows[:cut], rows[cut:])]
    found = parts[0] + parts[1]
    assert found.counts.tolist() == of(rows).counts.tolist()
    assert found.sums == pytest.approx(of(rows).sums, abs=1e-9)


def test_independent_events_have_the_usual_variance() -> None:
    values = np.random.default_rng(3).normal(2, 3, 100_000)
    found = Clusters.of(np.arange(100_000) % BUCKETS, values)
    assert found.variance == pytest.approx(9 / 100_000, rel=0.1)
    assert found.effective == pytest.approx(BUCKETS, rel=0.01)


def test_events_of_one_key_count_as_few() -> None:
    """300 keys with effects of their own and 30 events each: the variance is that of 300 values, not of 9,000."""
    rng = np.random.default_rng(4)
    of_key = rng.normal(0, 1, (500, 300))
    buckets = buckets_of([b"key-%d" % key for key in range(300)])
    means, variances = [], []
    for effects in of_key:
        found = Clusters.of(np.repeat(buckets, 30), np.repeat(effects, 30))
        means.append(float(found.mean))
        variances.append(float(found.variance))
    assert np.mean(variances) == pytest.approx(np.var(means), rel=0.15)


def test_design_effect_is_the_size_of_equal_clusters() -> None:
    hits = np.random.default_rng(5).random(900) < 0.3
    found = Clusters.of(np.repeat(np.arange(900), 10), np.repeat(hits, 10).astype(np.float64))
    assert found.design_effect() == pytest.approx(10, rel=0.05)
    alone = Clusters.of(np.arange(900), hits.astype(np.float64))
    assert alone.design_effect() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_proportion_without_spread_has_no_design_effect(value: float) -> None:
    assert Clusters.of(np.arange(9), np.full(9, value)).design_effect() == 1


def test_no_events_are_not_known() -> None:
    nothing = Clusters.empty(3)
    assert nothing.effective.tolist() == [0, 0, 0]
    assert nothing.variance.tolist() == [np.inf] * 3
    assert np.isnan(nothing.mean).all()
    found = unpaired(nothing, nothing)
    assert found.variance.tolist() == [np.inf] * 3
    assert found.degrees.tolist() == [1, 1, 1]


def test_one_bucket_that_has_all_events_is_not_known() -> None:
    assert Clusters.of(np.zeros(50, np.int64), np.arange(50.0)).variance == np.inf


def test_differences_are_candidates_minus_baselines() -> None:
    rng = np.random.default_rng(6)
    baseline = Clusters.of(np.arange(5000) % BUCKETS, rng.normal(1, 1, 5000))
    candidate = Clusters.of(np.arange(200) % BUCKETS, rng.normal(2, 2, 200))
    found = unpaired(baseline, candidate)
    assert found.estimate == pytest.approx(candidate.mean - baseline.mean)
    assert found.variance == pytest.approx(1 / 5000 + 4 / 200, rel=0.3)
    assert 199 <= found.degrees < 260  # nearly all of the variance is the small side's
    assert found.effective == 200
    pairs = paired(candidate)
    assert (pairs.estimate, pairs.variance) == (candidate.mean, candidate.variance)


def test_buckets_are_independent_of_variants() -> None:
    keys = [b"key-%d" % number for number in range(50_000)]
    first = hashed(keys, "rollout-1") < np.uint32(2**31)
    counts = [np.bincount(buckets_of(keys)[side], minlength=BUCKETS) for side in (first, ~first)]
    expected = (counts[0] + counts[1]) / 2
    assert (((counts[0] - expected) ** 2 + (counts[1] - expected) ** 2) / expected).sum() < BUCKETS + 5 * np.sqrt(
        2 * BUCKETS
    )
