"""Computes the figures of an evaluation from a summary. None: there are too few events for the figure.

The libraries' estimators get histograms: a bin is a value, and its count is the value's weight. Expected calibration
error as in Guo et al. 2017 (equal width); population stability index over the deciles of the first sample; Spearman's
correlation as Pearson's of mid-ranks, because no library has it with weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import rel_entr
from sklearn.metrics import roc_auc_score

from millstream.inference.evaluation import split_bins

if TYPE_CHECKING:
    from millstream.inference.evaluation import Floats, Histogram, Ints, Scores, Summary

PSI_BINS: Final = 10
_EMPTY_SHARE: Final = 1e-4  # share of an empty bin in the PSI, so that its logarithm exists


@dataclass(frozen=True, slots=True)
class SideEstimate:
    """One model's figures; the names are those of the schema evaluation-v1."""

    mean_score: float | None
    score_p50: float | None
    score_p90: float | None
    score_p99: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    latency_p99_ms: float | None
    auc: float | None = None
    log_loss: float | None = None
    brier: float | None = None
    calibration_error: float | None = None
    accuracy: float | None = None
    precision: float | None = None
    recall: float | None = None
    rmse: float | None = None
    mae: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A pair's figures; the names are those of the schema evaluation-v1."""

    agreement: float | None
    mean_difference: float | None
    difference_p50: float | None
    difference_p95: float | None
    rank_correlation: float | None
    psi: float | None
    error_rate: float | None
    primary: SideEstimate
    shadow: SideEstimate


def estimate(summary: Summary, *, regression: bool) -> Estimate:
    """All figures of a summary."""
    primary, shadow = summary.primary, summary.shadow
    return Estimate(
        agreement=_ratio(summary.agreed, summary.answered),
        mean_difference=_ratio(shadow.total - primary.total, summary.scored),
        difference_p50=summary.difference.quantile(0.5),
        difference_p95=summary.difference.quantile(0.95),
        rank_correlation=rank_correlation(summary.joint),
        psi=stability_index(primary.histogram, shadow.histogram),
        error_rate=_ratio(summary.errors, summary.events),
        primary=_side(primary, regression=regression),
        shadow=_side(shadow, regression=regression),
    )


def _side(scores: Scores, *, regression: bool) -> SideEstimate:
    histogram = scores.histogram
    about: dict[str, float | None] = {
        "mean_score": _ratio(scores.total, histogram.total),
        **{f"score_p{at}": histogram.quantile(at / 100) for at in (50, 90, 99)},
        **{f"latency_p{at}_ms": scores.latency.quantile(at / 100) for at in (50, 95, 99)},
    }
    labelled = scores.positive.total + scores.negative.total
    if regression:
        squared = _ratio(scores.squared, labelled)
        errors = {"rmse": None if squared is None else math.sqrt(squared), "mae": _ratio(scores.absolute, labelled)}
        return SideEstimate(**about, **errors)
    true_negative, false_positive, false_negative, true_positive = scores.confusion.tolist()
    events, score_sums, label_sums = scores.calibration
    return SideEstimate(
        **about,
        auc=auc(scores.positive, scores.negative),
        log_loss=_ratio(scores.log_loss, labelled),
        brier=_ratio(scores.squared, labelled),
        calibration_error=_ratio(float(np.abs(score_sums - label_sums).sum()), float(events.sum())),
        accuracy=_ratio(true_negative + true_positive, labelled),
        precision=_ratio(true_positive, true_positive + false_positive),
        recall=_ratio(true_positive, true_positive + false_negative),
    )


def auc(positive: Histogram, negative: Histogram) -> float | None:
    """The probability that a positive event scores higher than a negative one. Pairs in the same bin count half."""
    if not positive.total or not negative.total:
        return None
    return float(
        roc_auc_score(
            np.repeat([True, False], [len(positive.bins), len(negative.bins)]),
            np.concatenate((positive.bins, negative.bins)),
            sample_weight=np.concatenate((positive.counts, negative.counts)),
        )
    )


def stability_index(expected: Histogram, actual: Histogram) -> float | None:
    """Population stability index of `actual` against `expected`, by its deciles."""
    if not expected.total or not actual.total:
        return None
    # The last bin of each decile. With many equal scores, several deciles have the same one.
    targets = np.arange(1, PSI_BINS) / PSI_BINS * expected.total
    ends = np.unique(expected.bins[np.searchsorted(expected.counts.cumsum(), targets)])
    before, after = _quotas(expected, ends), _quotas(actual, ends)
    return float((rel_entr(before, after) + rel_entr(after, before)).sum())


def _quotas(histogram: Histogram, ends: Ints) -> Floats:
    places = np.searchsorted(ends, histogram.bins, side="left")
    counts = np.bincount(places, histogram.counts, len(ends) + 1)
    return np.maximum(counts / histogram.total, _EMPTY_SHARE)


def rank_correlation(joint: Histogram) -> float | None:
    """Spearman's correlation of the scores in a joint histogram; None if all scores of one side are equal."""
    ranks = [_mid_ranks(bins, joint.counts) for bins in split_bins(joint.bins)]
    if not joint.total or any(np.ptp(of_side) == 0 for of_side in ranks):
        return None
    (first, both), (_, second) = np.cov(ranks, fweights=joint.counts)
    return float(both) / math.sqrt(first * second)


def _mid_ranks(bins: Ints, counts: Ints) -> Floats:
    """The mean rank of the values in each cell's bin."""
    _, places = np.unique(bins, return_inverse=True)
    of_bin = np.bincount(places, counts)
    middles = of_bin.cumsum() - (of_bin - 1) / 2
    ranks: Floats = middles[places].astype(np.float64)
    return ranks


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
