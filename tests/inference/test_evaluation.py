"""The estimates against exact computation over all events, by definition or by polars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, roc_auc_score

from millstream.inference.estimates import PSI_BINS, Estimate, estimate
from millstream.inference.evaluation import Columns, Histogram, Summary, bins_of, summarise, value_of

Floats = npt.NDArray[np.float64]
RNG_SEEDS = st.integers(0, 2**32 - 1)


def columns(seed: int, events: int, *, unlabelled: float = 0.3, failed: float = 0.0, spread: float = 2.0) -> Columns:
    """Scores of two models that see the same truth, one less well than the other."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=events)
    primary = 1 / (1 + np.exp(-spread * (truth + rng.normal(size=events))))
    shadow = 1 / (1 + np.exp(-spread * (truth + 0.5 * rng.normal(size=events))))
    labels = (truth + rng.normal(size=events) > 0.5).astype(float)
    labels[rng.random(events) < unlabelled] = np.nan
    broken = rng.random(events) < failed
    return Columns(
        primary=primary,
        shadow=np.where(broken, np.nan, shadow),
        agreed=np.where(broken, -1, (primary >= 0.5) == (shadow >= 0.5)).astype(np.int8),
        failed=broken,
        primary_ms=rng.gamma(2, 3, events),
        shadow_ms=rng.gamma(2, 4, events),
        labels=labels,
    )


def part(whole: Columns, rows: npt.NDArray[np.bool_]) -> Columns:
    return Columns(*(getattr(whole, name)[rows] for name in whole.__slots__))


def exact_auc(scores: Floats, labels: Floats) -> float:
    """By definition: all pairs of a positive and a negative event."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = (positive[:, None] > negative).mean() + 0.5 * (positive[:, None] == negative).mean()
    return float(wins)


def exact_calibration_error(scores: Floats, labels: Floats, bins: int) -> float:
    error = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = (scores >= low) & ((scores < high) | (number == bins - 1))
        if inside.any():
            error += inside.mean() * abs(scores[inside].mean() - labels[inside].mean())
    return float(error)


def exact_psi(expected: Floats, actual: Floats) -> float:
    edges = np.quantile(expected, np.arange(1, PSI_BINS) / PSI_BINS, method="inverted_cdf")
    shares = [
        np.maximum(np.bincount(np.searchsorted(edges, sample), minlength=PSI_BINS) / len(sample), 1e-4)
        for sample in (expected, actual)
    ]
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())


def close(value: float | None, expected: float, tolerance: float = 1e-9) -> None:
    assert value is not None
    assert value == pytest.approx(expected, abs=tolerance)


def check(found: Estimate, events: Columns) -> None:
    """All figures of a classification."""
    both = ~events.failed
    primary, shadow = events.primary[both], events.shadow[both]
    close(found.agreement, float(((primary >= 0.5) == (shadow >= 0.5)).mean()))
    close(found.mean_difference, float((shadow - primary).mean()))
    close(found.error_rate, float(events.failed.mean()))
    close(found.difference_p50, float(np.quantile(np.abs(shadow - primary), 0.5, method="inverted_cdf")), 0.002)
    close(found.psi, exact_psi(primary, shadow), 0.02)
    ranks = pl.select(pl.corr(pl.Series(primary), pl.Series(shadow), method="spearman")).item()
    close(found.rank_correlation, ranks, 0.005)
    for side, scores, latency in (
        (found.primary, primary, events.primary_ms),
        (found.shadow, shadow, events.shadow_ms),
    ):
        labels = events.labels[both]
        known = ~np.isnan(labels)
        score, label = scores[known], labels[known]
        close(side.auc, exact_auc(score, label), 5e-4)
        close(side.log_loss, float(-np.where(label == 1, np.log(score), np.log(1 - score)).mean()), 1e-7)
        close(side.brier, float(((score - label) ** 2).mean()))
        close(side.calibration_error, exact_calibration_error(score, label, 15))
        positive = score >= 0.5
        close(side.accuracy, float((positive == (label == 1)).mean()))
        close(side.precision, float(label[positive].mean()))
        close(side.recall, float(positive[label == 1].mean()))
        close(side.mean_score, float(scores.mean()))
        for share, value in ((0.5, side.score_p50), (0.9, side.score_p90), (0.99, side.score_p99)):
            exact = float(np.quantile(scores, share, method="inverted_cdf"))
            close(value, exact, 0.002 * exact)
        exact = float(np.quantile(latency, 0.95, method="inverted_cdf"))
        close(side.latency_p95_ms, exact, 0.002 * exact)


@pytest.mark.parametrize(("failed", "spread"), [(0.0, 2.0), (0.2, 2.0), (0.0, 0.3), (0.05, 5.0)])
def test_estimates_are_what_exact_computation_says(failed: float, spread: float) -> None:
    events = columns(7, 4000, failed=failed, spread=spread)
    check(estimate(summarise(events, 0.5), task="classification"), events)


@given(RNG_SEEDS, st.integers(1, 5))
def test_summaries_of_parts_add_up_to_the_summary_of_the_whole(seed: int, parts: int) -> None:
    events = columns(seed, 300, failed=0.1)
    owner = np.random.default_rng(seed).integers(0, parts, 300)
    total = Summary()
    for number in range(parts):
        total += summarise(part(events, owner == number), 0.5)
    for found, expected in zip(
        flat(estimate(total, task="classification")),
        flat(estimate(summarise(events, 0.5), task="classification")),
        strict=True,
    ):
        assert (found is None) == (expected is None)
        assert found is None or found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def flat(found: Estimate) -> list[float | None]:
    values: list[float | None] = []
    for name in found.__slots__:
        value: Any = getattr(found, name)
        values += [getattr(value, inner) for inner in value.__slots__] if name in {"primary", "shadow"} else [value]
    return values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=50))
def test_bins_keep_the_order_and_the_size_of_values(values: list[float]) -> None:
    array = np.sort(np.array(values))
    bins = bins_of(array)
    assert (np.diff(bins) >= 0).all()
    normal = (np.abs(array) > 1e-200) & (np.abs(array) < 1e300)
    middles = value_of(bins)[normal]
    assert (np.abs(middles - array[normal]) <= 0.002 * np.abs(array[normal])).all()


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.1001, 0.5, 0.9]), st.booleans()), min_size=2, max_size=60))
def test_auc_is_off_by_no_more_than_half_of_the_pairs_within_a_bin(rows: list[tuple[float, bool]]) -> None:
    scores, labels = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    if len(set(labels.tolist())) < 2:
        return
    nothing = np.zeros(len(rows))
    events = Columns(scores, scores, nothing.astype(np.int8), nothing > 0, nothing, nothing, labels)
    found = estimate(summarise(events, 0.5), task="classification").primary.auc
    positive, negative = bins_of(scores[labels == 1]), bins_of(scores[labels == 0])
    assert found is not None
    slack = (positive[:, None] == negative).mean() / 2
    assert abs(found - exact_auc(scores, labels)) <= slack + 1e-12


def test_regression_has_errors_in_place_of_probabilities() -> None:
    rng = np.random.default_rng(3)
    labels = rng.normal(100, 20, 1000)
    primary, shadow = labels + rng.normal(0, 5, 1000), labels + rng.normal(1, 3, 1000)
    zeros = np.zeros(1000)
    found = estimate(
        summarise(Columns(primary, shadow, zeros.astype(np.int8), zeros > 0, zeros, zeros, labels), 0.5),
        task="regression",
    )
    close(found.shadow.rmse, float(np.sqrt(((shadow - labels) ** 2).mean())))
    close(found.primary.mae, float(np.abs(primary - labels).mean()))
    assert found.primary.auc is None


def test_nothing_is_known_of_no_events() -> None:
    assert set(flat(estimate(Summary(), task="classification"))) == {None, 0}


def test_shadow_that_always_failed_has_an_error_rate_and_latency() -> None:
    events = columns(1, 50, failed=1.1)
    found = estimate(summarise(events, 0.5), task="classification")
    assert (found.error_rate, found.agreement, found.primary.auc) == (1.0, None, None)
    assert found.shadow.latency_p50_ms is not None


def test_histogram_of_negative_numbers_has_its_quantiles() -> None:
    assert Histogram.of(np.array([-3.0, -1.0, 2.0])).quantile(0.3) == pytest.approx(-3.0, rel=0.002)


def labelled(seed: int, events: int, *, scores: Floats | None = None) -> tuple[Columns, Floats, Floats, Floats]:
    """Events that all have a label and both scores, with these columns apart. `scores`: the only ones that occur."""
    found = columns(seed, events, unlabelled=0)
    if scores is not None:
        rng = np.random.default_rng(seed)
        found = replace(found, primary=rng.choice(scores, events), shadow=rng.choice(scores, events))
    return found, found.primary, found.shadow, found.labels


def exact_delong_error(primary: Floats, shadow: Floats, labels: Floats) -> float:
    """By the definition in the paper: the structural components of each event, from all pairs."""
    ones = labels == 1

    def components(scores: Floats) -> tuple[Floats, Floats]:
        wins = np.heaviside(scores[ones][:, None] - scores[~ones][None, :], 0.5)
        return wins.mean(axis=1), wins.mean(axis=0)

    (ones_p, zeros_p), (ones_s, zeros_s) = components(primary), components(shadow)
    covariance = np.cov([ones_p, ones_s]) / ones.sum() + np.cov([zeros_p, zeros_s]) / (~ones).sum()
    contrast = np.array([-1.0, 1.0])
    return float(np.sqrt(contrast @ covariance @ contrast))


@given(RNG_SEEDS, st.integers(200, 400))
def test_error_of_the_difference_of_two_aucs_is_delongs(seed: int, events: int) -> None:
    whole, primary, shadow, labels = labelled(seed, events)
    found = estimate(summarise(whole, 0.5), task="classification")
    exact = exact_delong_error(primary, shadow, labels)
    close(found.auc_difference_error, exact, 0.05 * exact)  # the bins are coarse
    close(found.auc_difference, roc_auc_score(labels, shadow) - roc_auc_score(labels, primary), 1e-3)


@given(RNG_SEEDS)
def test_error_with_few_different_scores_is_exactly_delongs(seed: int) -> None:
    whole, primary, shadow, labels = labelled(seed, 60, scores=np.array([0.1, 0.3, 0.5, 0.7]))
    found = estimate(summarise(whole, 0.5), task="classification")
    if min(labels.sum(), (1 - labels).sum()) < 2:
        assert found.auc_difference_error is None
    else:
        close(found.auc_difference_error, exact_delong_error(primary, shadow, labels))


def test_delongs_error_is_how_much_the_difference_varies_from_sample_to_sample() -> None:
    samples = [estimate(summarise(columns(seed, 500, unlabelled=0), 0.5), task="classification") for seed in range(200)]
    varies = float(np.std([each.auc_difference or 0 for each in samples]))
    assert np.mean([each.auc_difference_error or 0 for each in samples]) == pytest.approx(varies, rel=0.15)


@given(RNG_SEEDS, st.integers(2, 300))
def test_differences_of_means_and_their_errors_are_those_of_the_pairs(seed: int, events: int) -> None:
    whole, primary, shadow, labels = labelled(seed, events)
    found = estimate(summarise(whole, 0.5), task="classification")
    expected = [log_loss(labels, scores, labels=[0, 1]) for scores in (primary, shadow)]
    close(found.log_loss_difference, expected[1] - expected[0], 1e-9)
    losses = [-np.where(labels == 1, np.log(scores), np.log(1 - scores)) for scores in (primary, shadow)]
    close(found.log_loss_difference_error, float(sem(losses[1] - losses[0])), 1e-7)
    right = [(scores >= 0.5) == labels for scores in (primary, shadow)]
    accuracy = [accuracy_score(labels, scores >= 0.5) for scores in (primary, shadow)]
    close(found.accuracy_difference, float(accuracy[1] - accuracy[0]))
    close(found.accuracy_difference_error, float(sem(right[1].astype(float) - right[0])), 1e-7)
    found = estimate(summarise(whole, 0.5), task="regression")
    absolute = [mean_absolute_error(labels, scores) for scores in (primary, shadow)]
    close(found.mae_difference, float(absolute[1] - absolute[0]))
    close(found.mae_difference_error, float(sem(np.abs(shadow - labels) - np.abs(primary - labels))), 1e-7)
    assert (found.auc_difference, found.paired, found.positives) == (None, events, 0)


def test_difference_counts_only_labelled_events_that_both_models_scored() -> None:
    whole = columns(5, 500, failed=0.2)
    both = ~whole.failed & ~np.isnan(whole.labels)
    found = estimate(summarise(whole, 0.5), task="classification")
    expected = estimate(summarise(part(whole, both), 0.5), task="classification")
    assert (found.paired, found.positives) == (int(both.sum()), float(whole.labels[both].sum()))
    close(found.auc_difference_error, expected.auc_difference_error or 0)
    close(found.log_loss_difference, expected.log_loss_difference or 0)
