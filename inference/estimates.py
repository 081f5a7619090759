"""Computes the figures of an evaluation from a summary. None: there are too few events for the figure.

They are computed from histograms: a bin is a value, and its count is the value's weight. Expected calibration error as in Guo
et al. 2017 (equal width); population stability index over the deciles of the first sample; Spearman's correlation as Pearson's
of mid-ranks, because no library has it with weights.

Both models answer the same events, so their figures vary together, and the error of a difference is computed from pairs. For the
AUC it is DeLong's (E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, "Comparing the Areas under Two or More Correlated Receiver
Operating Characteristic Curves: A Nonparametric Approach", Biometrics 44(3), 1988, 837-845), from the joint histograms. For
means it is that of the mean of the events' differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import rel_entr

from millstream.inference.evaluation import LOSSES, split_bins

if TYPE_CHECKING:
    from millstream.inference.evaluation import Histogram, Scores, Summary, Task
    from millstream.schemas.arrays import Floats, Ints

PSI_BINS: Final = 10
_EMPTY_SHARE: Final = 1e-4  # share of an empty bin in the PSI, so that its logarithm exists


@dataclass(frozen=True, slots=True)
class SideEstimate:
    """One model's figures; the names are those of the schema evaluation-v2."""

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
    """A pair's figures; the names are those of the schema evaluation-v2. An `_error` is a standard error."""

    agreement: float | None
    mean_difference: float | None
    difference_p50: float | None
    difference_p95: float | None
    rank_correlation: float | None
    psi: float | None
    error_rate: float | None
    primary: SideEstimate
    shadow: SideEstimate
    paired: int  # events with a score of both and a label
    positives: int  # of them, those whose label is positive
    auc_difference: float | None = None
    auc_difference_error: float | None = None
    log_loss_difference: float | None = None
    log_loss_difference_error: float | None = None
    accuracy_difference: float | None = None
    accuracy_difference_error: float | None = None
    mae_difference: float | None = None
    mae_difference_error: float | None = None


def estimate(summary: Summary, *, task: Task) -> Estimate:
    """All figures of a summary. For the task `multiclass`, it is one of `summarise_classes`."""
    primary, shadow = summary.primary, summary.shadow
    return Estimate(
        agreement=_ratio(summary.agreed, summary.answered),
        mean_difference=_ratio(shadow.total - primary.total, summary.scored),
        difference_p50=summary.difference.quantile(0.5),
        difference_p95=summary.difference.quantile(0.95),
        rank_correlation=rank_correlation(summary.joint),
        psi=stability_index(primary.histogram, shadow.histogram),
        error_rate=_ratio(summary.errors, summary.events),
        primary=_side(primary, task),
        shadow=_side(shadow, task),
        paired=_paired(summary, task),
        positives=summary.joint_positive.total if task == "classification" else 0,
        **_differences(summary, task),
    )


def _paired(summary: Summary, task: Task) -> int:
    """The events with a score, or a class, of both models and a label."""
    if task == "multiclass":
        return int(summary.primary.confusion.sum())
    return summary.joint_negative.total + summary.joint_positive.total


def _differences(summary: Summary, task: Task) -> dict[str, float | None]:
    """Shadow's minus primary's figures, with their standard errors."""
    paired = _paired(summary, task)
    totals, squares = summary.losses.tolist()
    means = {
        name: mean_with_error(total, of_squares, paired)
        for name, total, of_squares in zip(LOSSES, totals, squares, strict=True)
    }
    if task == "regression":
        found = {"mae": means["absolute"]}
    else:
        mean, error = means["wrong"]
        log_losses = means["log_loss"] if math.isfinite(totals[LOSSES.index("log_loss")]) else (None, None)
        found = {"log_loss": log_losses, "accuracy": (None if mean is None else -mean, error)}
    if task == "classification":
        aucs = [auc(side.positive, side.negative) for side in (summary.primary, summary.shadow)]
        difference = None if aucs[0] is None or aucs[1] is None else aucs[1] - aucs[0]
        found["auc"] = (difference, auc_difference_error(summary.joint_positive, summary.joint_negative))
    return {
        f"{name}_difference{suffix}": value
        for name, pair in found.items()
        for suffix, value in zip(("", "_error"), pair, strict=True)
    }


def mean_with_error(total: float, squares: float, events: int) -> tuple[float | None, float | None]:
    """The mean of values with this sum and this sum of squares, and its standard error. None: there are too few values."""
    if not events:
        return None, None
    mean = total / events
    if events == 1:
        return mean, None
    return mean, math.sqrt(max(0.0, squares / events - mean**2) / (events - 1))


def auc_difference_error(positive: Histogram, negative: Histogram) -> float | None:
    """The standard error of the difference of two correlated AUCs (DeLong), from the joint histograms of the scores.

    None: there are fewer than two positive or two negative events.
    """
    if positive.total < 2 or negative.total < 2:
        return None
    wins: list[
        list[Floats]
    ] = []  # of each model: for each positive cell, the share of the negatives below; and vice versa
    for ours, theirs in zip(split_bins(positive.bins), split_bins(negative.bins), strict=True):
        wins.append([_share_below(ours, theirs, negative.counts), 1 - _share_below(theirs, ours, positive.counts)])
    variance = sum(
        float(np.cov(shadow - primary, fweights=joint.counts)) / joint.total
        for primary, shadow, joint in zip(*wins, (positive, negative), strict=True)
    )
    return math.sqrt(max(0.0, variance))


def auc_error(positive: Histogram, negative: Histogram) -> float | None:
    """The standard error of one AUC (DeLong); None: there are fewer than two positive or two negative events."""
    if positive.total < 2 or negative.total < 2:
        return None
    wins = (
        (_share_below(positive.bins, negative.bins, negative.counts), positive),
        (1 - _share_below(negative.bins, positive.bins, positive.counts), negative),
    )
    variance = sum(float(np.cov(shares, fweights=each.counts)) / each.total for shares, each in wins)
    return math.sqrt(max(0.0, variance))


def _share_below(bins: Ints, others: Ints, counts: Ints) -> Floats:
    """For each bin, the share of the others that are below it. Those in the same bin count half."""
    order = np.argsort(others, kind="stable")
    ordered, below = others[order], np.concatenate(([0], counts[order].cumsum()))
    left, right = (below[np.searchsorted(ordered, bins, side=side)] for side in ("left", "right"))
    shares: Floats = (left + right) / (2 * below[-1])
    return shares


def _side(scores: Scores, task: Task) -> SideEstimate:
    histogram = scores.histogram
    about: dict[str, float | None] = {
        "mean_score": _ratio(scores.total, histogram.total),
        **{f"score_p{at}": histogram.quantile(at / 100) for at in (50, 90, 99)},
        **{f"latency_p{at}_ms": scores.latency.quantile(at / 100) for at in (50, 95, 99)},
    }
    true_negative, false_positive, false_negative, true_positive = scores.confusion.tolist()
    if task == "multiclass":
        labelled = false_negative + true_positive
        log_loss = _ratio(scores.log_loss, labelled) if math.isfinite(scores.log_loss) else None
        return SideEstimate(**about, log_loss=log_loss, accuracy=_ratio(true_positive, labelled))
    labelled = scores.positive.total + scores.negative.total
    if task == "regression":
        squared = _ratio(scores.squared, labelled)
        errors = {"rmse": None if squared is None else math.sqrt(squared), "mae": _ratio(scores.absolute, labelled)}
        return SideEstimate(**about, **errors)
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
    return float(positive.counts @ _share_below(positive.bins, negative.bins, negative.counts) / positive.total)


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
