"""Verdicts: what passes, what is breached, and what is left open."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.clusters import BUCKETS, Clusters, paired
from millstream.consumers.rollout.judging import (
    Bounds,
    Levels,
    MetricRule,
    bounds,
    bounds_of_difference,
    bounds_without_difference,
    signs,
    verdict,
)

LEVELS = Levels(0.01, 0.01)


def normal(mean: float, events: int, seed: int) -> Clusters:
    return Clusters.of(np.arange(events) % BUCKETS, np.random.default_rng(seed).normal(mean, 1, events))


@pytest.mark.parametrize(
    ("better", "mean", "margin", "minimum_effect", "outcome"),
    [
        ("higher", 0.5, 0.1, None, "pass"),
        ("higher", 0.0, 0.2, None, "pass"),
        ("higher", 0.0, 0.1, 0.05, "undecided"),
        ("higher", 0.5, 0.1, 0.05, "pass"),
        ("higher", 0.5, 0.1, 0.5, "undecided"),
        ("higher", -0.5, 0.1, None, "breach"),
        ("lower", 0.5, 0.1, None, "breach"),
        ("lower", -0.5, 0.1, 0.05, "pass"),
        ("higher", -0.1, 0.1, None, "undecided"),
    ],
)
def test_outcome_is_by_the_bounds(
    better: str, mean: float, margin: float, minimum_effect: float | None, outcome: str
) -> None:
    rule = MetricRule("loss", better, margin, minimum_effect)  # type: ignore[arg-type]
    found = verdict(rule, bounds(rule, normal(0, 8000, 1), normal(mean, 8000, 2), LEVELS))
    assert found.outcome == outcome


def test_pairs_decide_with_fewer_events_than_halves() -> None:
    """Both versions answer the same 2,000 events (shadow), or each answers 2,000 events of its own (canary)."""
    rng = np.random.default_rng(3)
    common, rule = rng.normal(0, 1, 2000), MetricRule("loss", "lower", 0.05)
    first, second = (common + rng.normal(0, 0.2, 2000) for _ in range(2))
    buckets = np.arange(2000) % BUCKETS
    pairs = bounds_of_difference(rule, paired(Clusters.of(buckets, second - first)), LEVELS)
    halves = bounds(rule, Clusters.of(buckets, first), normal(0, 2000, 4), LEVELS)
    assert verdict(rule, pairs).outcome == "pass"
    assert verdict(rule, halves).outcome == "undecided"


def test_few_clusters_are_undecided_however_different() -> None:
    rule = MetricRule("loss", "lower", 0.1)
    few = bounds(rule, normal(0, 40, 1), normal(9, 40, 2), LEVELS)
    assert verdict(rule, few).outcome == "undecided"
    assert verdict(rule, bounds(rule, Clusters.empty(), Clusters.empty(), LEVELS)).outcome == "undecided"


def answers(events: int, wrong: int, better: str = "higher") -> Clusters:
    is_wrong = np.arange(events) < wrong
    return Clusters.of(np.arange(events) % BUCKETS, (is_wrong if better == "lower" else ~is_wrong).astype(np.float64))


def test_values_that_do_not_vary_prove_nothing() -> None:
    """All answers so far were right. That is no proof of a variance of 0."""
    rule = MetricRule("loss", "higher", 0.01)
    assert verdict(rule, bounds(rule, answers(500, 0), answers(500, 0), LEVELS)).outcome == "undecided"


@pytest.mark.parametrize(
    ("baseline", "candidate", "outcome"),
    [
        ((5000, 0), (5000, 0), "pass"),
        ((500, 0), (500, 0), "undecided"),
        # A version that is right in 98.8 % of all events has 60 right answers in a row in half of the cases.
        ((10_000, 10), (60, 0), "undecided"),
        ((10_000, 10), (5000, 0), "pass"),
        ((5000, 0), (5000, 250), "breach"),
        ((5000, 0), (40, 40), "undecided"),  # too few keys
    ],
)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_right_answers_only_are_judged_as_rare_wrong_ones(
    better: str, baseline: tuple[int, int], candidate: tuple[int, int], outcome: str
) -> None:
    rule = MetricRule("accuracy", better, 0.01, bounded=True)  # type: ignore[arg-type]
    found = bounds(rule, answers(*baseline, better), answers(*candidate, better), LEVELS)
    assert verdict(rule, found).outcome == outcome
    assert found.lower <= found.estimate <= found.upper


def test_equal_answers_bound_the_share_of_keys_that_differ() -> None:
    """If answers differ for 5 % of the keys, no key of 60 shows it in 5 % of the cases, however many events they have."""
    rule = MetricRule("accuracy", "higher", 0.05, bounded=True)
    few, many = (Clusters(np.full(keys, 1000.0), np.zeros(keys)) for keys in (60, 2000))
    assert float(bounds_without_difference(rule, few, LEVELS).lower) < -0.05
    assert verdict(rule, bounds_without_difference(rule, many, LEVELS)).outcome == "pass"
    unequal = Clusters(np.append(few.counts, np.ones(2000)), np.zeros(2060))
    assert verdict(rule, bounds_without_difference(rule, unequal, LEVELS)).outcome == "undecided"


def test_rare_errors_are_judged_exactly() -> None:
    rule = MetricRule("errors", "lower", 0.01, exact=True, service=True)
    nothing, many = (Clusters.of(np.arange(900), (np.arange(900) < hits).astype(np.float64)) for hits in (0, 90))
    few = Clusters.of(np.arange(30), np.zeros(30))
    assert verdict(rule, bounds(rule, nothing, few, LEVELS)).outcome == "undecided"
    assert verdict(rule, bounds(rule, nothing, many, LEVELS)).outcome == "breach"
    large = Clusters.of(np.arange(20_000) % BUCKETS, np.zeros(20_000))
    same = verdict(rule, bounds(rule, large, large, LEVELS))
    assert same.outcome == "pass"
    assert "benefit +0 [" in same.words()
    share = MetricRule("answered", "higher", 0.01, exact=True)
    assert verdict(share, bounds(share, many, nothing, LEVELS)).outcome == "breach"


def test_segment_only_guards() -> None:
    rule = MetricRule("loss", "lower", 0.1)
    open_one = bounds(rule, normal(0, 60, 1), normal(0, 60, 2), LEVELS)
    assert verdict(rule, open_one, "country=DE").outcome == "pass"
    bad = verdict(rule, bounds(rule, normal(0, 900, 1), normal(1, 900, 2), LEVELS), "country=DE")
    assert bad.outcome == "breach"
    assert bad.words().startswith("loss in country=DE is too bad: benefit -")


def test_segment_with_a_margin_must_pass() -> None:
    rule = MetricRule("loss", "lower", 0.1, 0.05, segment_margin=0.3).in_segments()
    assert (rule.margin, rule.threshold, rule.resolution) == (0.3, -0.3, 0.3)
    small, large = (bounds(rule, normal(0, events, 1), normal(0, events, 2), LEVELS) for events in (60, 2000))
    assert verdict(rule, small, "country=DE").outcome == "undecided"
    assert verdict(rule, large, "country=DE").outcome == "pass"
    guard = MetricRule("loss", "lower", 0.0, 0.05).in_segments()
    assert (guard.margin, guard.threshold, guard.resolution) == (0, 0, 0.05)


def test_metrics_of_many_segments_are_judged_in_one_call() -> None:
    rule = MetricRule("loss", "lower", 0.1)
    sides = [
        Clusters(*(np.stack(parts) for parts in zip(*((own.counts, own.sums) for own in group), strict=True)))
        for group in ([normal(0, 2000, 1), normal(0, 2000, 3)], [normal(0, 2000, 2), normal(1, 2000, 4)])
    ]
    assert signs(rule, bounds(rule, sides[0], sides[1], LEVELS)).tolist() == [1, -1]


@given(st.integers(1, 30), st.integers(1, 50))
def test_levels_of_all_attempts_and_steps_stay_within_the_whole(guards: int, tries: int) -> None:
    parts = [Levels.of(0.01, 0.02, guards=guards, attempt=number, epoch=number) for number in range(1, tries + 1)]
    assert sum(part.promotion for part in parts) <= 0.01 + 1e-15
    assert sum(part.rollback for part in parts) * guards <= 0.02 + 1e-15


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5), st.none() | st.floats(0, 0.5))
def test_nothing_both_passes_and_is_breached(
    middle: float, below: float, above: float, margin: float, minimum: float | None
) -> None:
    rule = MetricRule("m", "higher", margin, minimum, scale=1)
    found = Bounds(*(np.array(value) for value in (middle, middle - below, middle + above)))
    sign = int(signs(rule, found))
    assert (sign == 1) == (middle - below > rule.threshold and not middle + above < -margin)
    assert (sign == -1) == (middle + above < -margin)


@pytest.mark.parametrize("wrong", [(-0.1, None), (0.0, -1.0), (0.0, None)])
def test_rule_without_a_difference_to_find_is_refused(wrong: tuple[float, float | None]) -> None:
    with pytest.raises(ValueError, match="metric loss: expected"):
        MetricRule("loss", "lower", *wrong)
