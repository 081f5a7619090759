"""Sample ratio, drift, maturity, and the size of a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.boundaries import one_sided
from millstream.consumers.rollout.clusters import Clusters, buckets_of
from millstream.consumers.rollout.drift import binned, drift, edges_of
from millstream.consumers.rollout.maturity import matured
from millstream.consumers.rollout.power import required_events
from millstream.consumers.rollout.sample_ratio import (
    labels_are_off,
    missing_events,
    share_is_confirmed,
    share_is_off,
    share_ratio,
)
from millstream.inference.estimates import stability_index
from millstream.inference.evaluation import Histogram
from millstream.schemas.arrays import Ints

LEVEL = 0.01


def events_of(keys: int, events: int, rng: np.random.Generator) -> Ints:
    """Keys of events; few keys have many."""
    weights = np.arange(1, keys + 1) ** -0.7
    return rng.choice(keys, events, p=weights / weights.sum())


def test_keys_with_many_events_are_no_skew_but_lost_events_are() -> None:
    rng = np.random.default_rng(4)
    buckets = buckets_of([b"%d" % key for key in range(20_000)])
    alarms = {False: 0, True: 0}
    for _ in range(100):
        variant = rng.random(20_000) < 0.2
        of_event = events_of(20_000, 30_000, rng)
        for lossy in (False, True):
            kept = of_event[~variant[of_event] | (rng.random(len(of_event)) < (0.5 if lossy else 1))]
            sides = [
                Clusters.of(buckets[kept[chosen]], np.zeros(chosen.sum())) for chosen in (~variant[kept], variant[kept])
            ]
            alarms[lossy] += bool(share_is_off(share_ratio(sides[0], sides[1], 0.2), LEVEL))
    assert alarms[False] <= 2
    assert alarms[True] >= 95


def test_share_is_confirmed_only_when_it_is_close_enough() -> None:
    rng = np.random.default_rng(9)
    for events, lost, confirmed in ((500, 0.0, False), (20_000, 0.0, True), (20_000, 0.12, False)):
        variant = rng.random(10 * events) < 0.1
        variant_kept = variant & (rng.random(10 * events) >= lost)
        buckets = rng.integers(0, 1024, 10 * events)
        sides = [Clusters.of(buckets[own], np.zeros(own.sum())) for own in (~variant, variant_kept)]
        assert bool(share_is_confirmed(share_ratio(sides[0], sides[1], 0.1), LEVEL, 0.1)) == confirmed
    assert not share_is_confirmed(share_ratio(Clusters.empty(), Clusters.empty(), 0.1), LEVEL, 0.1)


@pytest.mark.parametrize("of_key", [1, 5])
def test_share_is_confirmed_after_about_as_many_events_as_are_said_to_be_missing(of_key: int) -> None:
    rng = np.random.default_rng(11)

    def ratio(keys: int) -> Clusters:
        variant, buckets = rng.random(10 * keys) < 0.1, rng.integers(0, 1024, 10 * keys)
        sides = [
            Clusters.of(np.repeat(buckets[own], of_key), np.zeros(own.sum() * of_key)) for own in (~variant, variant)
        ]
        return share_ratio(sides[0], sides[1], 0.1)

    few = ratio(800)
    missing = missing_events(few, LEVEL, 0.1)
    assert missing is not None
    assert not share_is_confirmed(few, LEVEL, 0.1)
    assert share_is_confirmed(few + ratio(round(2 * missing / of_key)), LEVEL, 0.1)
    assert missing_events(Clusters.empty(), LEVEL, 0.1) is None


def test_loss_that_one_step_does_not_show_is_found_over_all() -> None:
    """The candidate loses 10 % of its events in each of three steps."""
    rng = np.random.default_rng(10)
    alone = together = 0
    for _ in range(50):
        whole, found = Clusters.empty(), []
        for share in (0.1, 0.25, 0.5):
            events = int(400 / share)
            variant = rng.random(events) < share
            kept = variant & (rng.random(events) >= 0.1)
            buckets = rng.integers(0, 1024, events)
            sides = [Clusters.of(buckets[own], np.zeros(own.sum())) for own in (~variant, kept)]
            whole += share_ratio(sides[0], sides[1], share)
            found.append(bool(share_is_off(share_ratio(sides[0], sides[1], share), LEVEL)))
        alone, together = alone + any(found), together + bool(share_is_off(whole, LEVEL))
    assert together > alone


def test_labels_of_one_variant_only_are_found() -> None:
    rng = np.random.default_rng(11)
    keys = np.arange(3000) % 1024
    both, half = ((rng.random(3000) < share).astype(np.float64) for share in (0.9, 0.45))
    full = Clusters.of(keys, both)
    assert not labels_are_off(full, Clusters.of(keys, rng.permutation(both)), LEVEL)
    assert labels_are_off(full, Clusters.of(keys, half), LEVEL)
    assert labels_are_off(full, Clusters.of(keys, np.zeros(3000)), LEVEL)
    assert not labels_are_off(Clusters.empty(), Clusters.empty(), LEVEL)


def test_psi_is_that_of_the_comparison_job() -> None:
    rng = np.random.default_rng(5)
    before, after = rng.normal(0, 1, 3000), rng.normal(0.4, 1, 2000)
    bins = [np.unique((values * 100).round().astype(np.int64), return_counts=True) for values in (before, after)]
    edges = edges_of(before)
    found = drift(binned(before, edges), binned(after, edges), LEVEL)
    expected = stability_index(*(Histogram(values, counts) for values, counts in bins))
    assert found.psi == pytest.approx(expected, rel=0.05)


def test_lower_bounds_are_below_the_truth_and_find_a_shift() -> None:
    """Two normal distributions one deviation apart: the Kolmogorov-Smirnov distance is 2 Phi(1/2) - 1 = 0.383."""
    rng = np.random.default_rng(6)
    edges = edges_of(rng.normal(0, 1, 50_000))
    expected, actual = (binned(rng.normal(mean, 1, 20_000), edges) for mean in (0, 1))
    found = drift(expected, actual, LEVEL)
    assert 0.25 < found.ks_at_least < found.ks < 0.39
    assert 0.5 < found.psi_at_least < found.psi < 1.1


def test_equal_distributions_have_lower_bounds_of_0() -> None:
    rng = np.random.default_rng(7)
    edges = edges_of(rng.normal(0, 1, 5000))
    counts = np.stack([binned(rng.normal(0, 1, 500), edges) for _ in range(2000)])
    found = drift(counts[::2], counts[1::2], LEVEL)
    assert (found.psi_at_least > 0).mean() <= LEVEL
    assert (found.ks_at_least > 0).mean() <= LEVEL
    assert (found.psi > 0).all()  # which is why a limit is not compared with the estimate


def test_nan_has_a_bin_of_its_own_and_equal_values_few_bins() -> None:
    edges = edges_of(np.array([0.0] * 95 + [1.0] * 5))
    assert edges.tolist() == [0.0]
    assert binned(np.array([0.0, 0.5, np.nan, -1.0]), edges).tolist() == [2, 1, 1]


TIMES = st.lists(st.tuples(st.integers(0, 100), st.integers(-1, 200)), max_size=20)


@given(TIMES, st.integers(0, 200), st.integers(0, 50))
def test_event_counts_only_when_its_label_had_all_its_time(rows: list[tuple[int, int]], now: int, wait: int) -> None:
    events, labels = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)
    found = matured(events, labels, now, wait)
    for row, (event, label) in enumerate(rows):
        assert found.mature[row] == (now - event >= wait)
        assert found.labelled[row] == (now - event >= wait and 0 <= label <= event + wait)


def test_label_that_comes_early_waits_too() -> None:
    """Otherwise the outcome with the faster labels would be too frequent."""
    found = matured(np.array([0, 0]), np.array([1, 90]), now=50, maturity=100)
    assert not found.labelled.any()
    late = matured(np.array([0, 0, 0]), np.array([1, 90, 101]), now=200, maturity=100)
    assert late.labelled.tolist() == [True, True, False]
    assert late.mature.all()


def test_size_of_a_test_with_one_look_is_the_textbooks() -> None:
    """Proportions of 10 % and 12 %: 2 (1.645 + 0.842)^2 p (1 - p) / effect^2 of each side."""
    found = required_events(math.sqrt(0.11 * 0.89), 0.02, 0.5, level=0.05, power=0.8)
    assert found.one_look == pytest.approx(2 * 2 * (1.644854 + 0.841621) ** 2 * 0.11 * 0.89 / 0.02**2, abs=1)
    assert 1.3 < found.any_time / found.one_look < 2.5


def test_test_of_that_size_has_the_power() -> None:
    size = required_events(1.0, 0.2, 0.5, level=0.01, power=0.8).any_time // 2
    rng = np.random.default_rng(8)
    estimate = rng.normal(0.2, math.sqrt(2 / size), 20_000)
    assert (estimate > one_sided(2 / size, 0.2, 0.01)).mean() == pytest.approx(0.8, abs=0.01)


def test_small_shares_clusters_and_power_cost_events() -> None:
    base = required_events(1.0, 0.1, 0.5, level=0.01).any_time
    assert required_events(1.0, 0.1, 0.05, level=0.01).any_time > 5 * base
    assert required_events(1.0, 0.1, 0.5, level=0.01, design_effect=3).any_time == pytest.approx(3 * base, rel=1e-3)
    assert required_events(1.0, 0.1, 0.5, level=0.01, power=0.95).any_time > base


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"effect": 0.0}, {"design_effect": 0.5}])
def test_arguments_outside_of_their_range_are_refused(wrong: dict[str, float]) -> None:
    arguments = {"deviation": 1.0, "effect": 0.1, "share": 0.5, "design_effect": 1.0} | wrong
    with pytest.raises(ValueError, match="power: expected"):
        required_events(**arguments, level=0.01)
