"""Summaries of how two models do on the same events. They have a bounded size, and can be added.

A `Summary` covers the events of a window in one partition. The sum of the partitions' summaries, in any order, covers the window.
Counts, means, agreement, log loss, Brier score, calibration error, accuracy, precision, recall, RMSE and MAE are exact. Figures
that need the order of the scores come from histograms with bins of 0.2 % relative width (as in HDR histograms and DDSketch).
Quantiles have at most this error. The error of the AUC is at most half the share of positive-negative pairs in the same bin.
Spearman's correlation, and the error of the difference of two AUCs, come from joint histograms with bins 16 times as wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Floats, Ints

Bools = npt.NDArray[np.bool_]

Task = Literal["classification", "multiclass", "regression"]
"""What the score is: the probability of the positive class, the class, or a number."""

FINE_BITS: Final = 9  # bits of the mantissa that a bin keeps; 512 bins for a unit of log-odds
COARSE_BITS: Final = 5
CALIBRATION_BINS: Final = 15
LOSSES: Final = ("log_loss", "wrong", "absolute")
"""What one event costs a model: its log loss, 1 if the answer at the threshold is wrong, and the absolute error."""
_COARSE_BIN_BITS: Final = 12 + COARSE_BITS  # bits of a coarse bin: sign, exponent and what it keeps of the mantissa
_MIN_PROBABILITY: Final = 1e-15  # keeps the log loss of a certain and wrong answer finite
_SIGN_BIT: Final = np.uint64(1 << 63)


def bins_of(values: Floats, bits: int = FINE_BITS) -> Ints:
    """The bin of each value: a whole number that grows with the value.

    Between 0 and 1, bins have equal width in log-odds, so that probabilities near 1 are resolved as well as those near 0.
    Elsewhere, a bin is the upper bits of the number, so bins have nearly equal relative width.
    """
    raw = (values + 0.0).view(np.uint64)  # zeros of both signs become one
    ordered = np.where(raw & _SIGN_BIT, ~raw, raw | _SIGN_BIT)
    bins = (ordered >> np.uint64(52 - bits)).astype(np.int64)
    inside = (values > 0) & (values < 1)
    zero, middle, one = _landmarks(bits)
    odds = np.log(values[inside]) - np.log1p(-values[inside])
    bins[inside] = np.clip(middle + np.rint(odds * (1 << bits)), zero + 1, one - 1)
    return bins


def value_of(bins: Ints, bits: int = FINE_BITS) -> Floats:
    """The middle of each bin."""
    zero, middle, one = _landmarks(bits)
    inside = (bins > zero) & (bins < one)
    values = _edge(bins, bits) / 2 + _edge(bins + 1, bits) / 2
    values[inside] = 1 / (1 + np.exp((middle - bins[inside]) / (1 << bits)))
    values[bins == zero] = 0.0
    values[bins == one] = 1.0
    return values


def _landmarks(bits: int) -> tuple[int, int, int]:
    """The bins of 0, of even odds, and of 1."""
    zero = 1 << (11 + bits)
    one = zero + (1023 << bits)
    return zero, (zero + one) // 2, one


def _edge(bins: Ints, bits: int) -> Floats:
    ordered = bins.astype(np.uint64) << np.uint64(52 - bits)
    return np.where(ordered & _SIGN_BIT, ordered ^ _SIGN_BIT, ~ordered).view(np.float64)


def joint_bins(primary: Floats, shadow: Floats) -> Ints:
    """The coarse bins of primary and shadow in one number."""
    return (bins_of(primary, COARSE_BITS) << _COARSE_BIN_BITS) | bins_of(shadow, COARSE_BITS)


def split_bins(joint: Ints) -> tuple[Ints, Ints]:
    """Undo `joint_bins`."""
    return joint >> _COARSE_BIN_BITS, joint & ((1 << _COARSE_BIN_BITS) - 1)


@dataclass(slots=True)
class Histogram:
    """Counts of bins, sparse and ascending."""

    bins: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, values: Floats, bits: int = FINE_BITS) -> Histogram:
        """Count the values; NaN is left out."""
        return cls(*np.unique(bins_of(values[~np.isnan(values)], bits), return_counts=True))

    def __add__(self, other: Histogram) -> Histogram:
        bins, places = np.unique(np.concatenate((self.bins, other.bins)), return_inverse=True)
        counts = np.bincount(places, np.concatenate((self.counts, other.counts)), len(bins))
        return Histogram(bins, counts.astype(np.int64))

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float | None:
        """The value below which this share of the values lies; None if there are none."""
        if not self.total:
            return None
        # As numpy.quantile with weights and the method inverted_cdf, which takes ten times as long.
        place = np.searchsorted(self.counts.cumsum(), share * self.total)
        return float(value_of(self.bins[place : place + 1])[0])


@dataclass(slots=True)
class Scores:
    """One model's part of a summary, over the events with a score of both models."""

    total: float = 0.0  # sum of the scores
    unlabelled: Histogram = field(default_factory=Histogram)
    negative: Histogram = field(default_factory=Histogram)  # scores of events whose label is below 0.5
    positive: Histogram = field(default_factory=Histogram)  # ... of the others
    latency: Histogram = field(default_factory=Histogram)  # milliseconds, of all events
    log_loss: float = 0.0  # sums over the labelled events
    squared: float = 0.0
    absolute: float = 0.0
    calibration: Floats = field(default_factory=lambda: np.zeros((3, CALIBRATION_BINS)))  # events, scores, labels
    confusion: Ints = field(default_factory=lambda: np.zeros(4, np.int64))  # true -, false +, false -, true +

    @classmethod
    def of(cls, scores: Floats, labels: Floats, latency_ms: Floats, threshold: float) -> Scores:
        """Summarise one model's scores. A missing label is NaN."""
        known = ~np.isnan(labels)
        score, label = scores[known], labels[known]
        places = np.clip((score * CALIBRATION_BINS).astype(np.int64), 0, CALIBRATION_BINS - 1)
        ones = label >= 0.5
        return cls(
            total=float(scores.sum()),
            unlabelled=Histogram.of(scores[~known]),
            negative=Histogram.of(score[~ones]),
            positive=Histogram.of(score[ones]),
            latency=Histogram.of(latency_ms),
            log_loss=float(_log_losses(score, ones).sum()),
            squared=float(((score - label) ** 2).sum()),
            absolute=float(np.abs(score - label).sum()),
            calibration=np.array([np.bincount(places, by, CALIBRATION_BINS) for by in (None, score, label)], float),
            confusion=np.bincount(2 * ones + (score >= threshold), minlength=4).astype(np.int64),
        )

    def __add__(self, other: Scores) -> Scores:
        return Scores(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def histogram(self) -> Histogram:
        """The histogram of all scores."""
        return self.unlabelled + self.negative + self.positive


@dataclass(slots=True)
class Summary:
    """The results of a pair of models in a window, or in a part of it."""

    events: int = 0
    errors: int = 0  # events that the shadow failed on
    answered: int = 0  # events whose results of both models can be compared
    agreed: int = 0
    scored: int = 0  # events with a score of both
    labelled: int = 0  # events with a label that counts
    primary: Scores = field(default_factory=Scores)
    shadow: Scores = field(default_factory=Scores)
    difference: Histogram = field(default_factory=Histogram)  # absolute
    # Of `joint_bins`, apart by label as in `Scores`.
    joint_unlabelled: Histogram = field(default_factory=Histogram)
    joint_negative: Histogram = field(default_factory=Histogram)
    joint_positive: Histogram = field(default_factory=Histogram)
    # For each of LOSSES: the sum of shadow's minus primary's loss, and the sum of its squares.
    losses: Floats = field(default_factory=lambda: np.zeros((2, len(LOSSES))))

    @property
    def joint(self) -> Histogram:
        """The joint histogram of all scores."""
        return self.joint_unlabelled + self.joint_negative + self.joint_positive

    def __add__(self, other: Summary) -> Summary:
        return Summary(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Columns:
    """The events of a pair and window: one entry per event."""

    primary: Floats  # scores, NaN: none
    shadow: Floats
    agreed: npt.NDArray[np.int8]  # 1, 0, or -1 if the results can't be compared
    failed: Bools  # whether the shadow failed
    primary_ms: Floats
    shadow_ms: Floats
    labels: Floats  # NaN: no label that counts


def summarise(columns: Columns, threshold: float) -> Summary:
    """Summarise these events. Scores of at least `threshold` are positive."""
    both = ~(np.isnan(columns.primary) | np.isnan(columns.shadow) | columns.failed)
    primary, shadow, labels = columns.primary[both], columns.shadow[both], columns.labels[both]
    comparable = columns.agreed[~columns.failed]
    known = ~np.isnan(labels)
    joint, ones = joint_bins(primary, shadow), labels >= 0.5  # without a label, it is no one
    differences = _losses(shadow[known], labels[known], threshold) - _losses(primary[known], labels[known], threshold)
    return Summary(
        events=len(columns.failed),
        errors=int(columns.failed.sum()),
        answered=int((comparable >= 0).sum()),
        agreed=int((comparable == 1).sum()),
        scored=int(both.sum()),
        labelled=int((~np.isnan(columns.labels)).sum()),
        primary=Scores.of(primary, labels, columns.primary_ms, threshold),
        shadow=Scores.of(shadow, labels, columns.shadow_ms, threshold),
        difference=Histogram.of(np.abs(shadow - primary)),
        joint_unlabelled=Histogram(*np.unique(joint[~known], return_counts=True)),
        joint_negative=Histogram(*np.unique(joint[known & ~ones], return_counts=True)),
        joint_positive=Histogram(*np.unique(joint[ones], return_counts=True)),
        losses=np.array([differences.sum(axis=1), (differences**2).sum(axis=1)]),
    )


def _losses(scores: Floats, labels: Floats, threshold: float) -> Floats:
    """One row for each of LOSSES, one column for each event."""
    ones = labels >= 0.5
    return np.array([_log_losses(scores, ones), (scores >= threshold) != ones, np.abs(scores - labels)], np.float64)


def _log_losses(scores: Floats, ones: Bools) -> Floats:
    clipped = np.clip(scores, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return -np.where(ones, np.log(clipped), np.log1p(-clipped))
