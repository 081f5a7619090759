"""Means of events that are not independent, because events of one key are alike: sums per bucket of keys.

A bucket holds all events of the keys whose hash falls into it. So buckets are independent of each other even if events are not.
The number of buckets is fixed: the state has a constant size, and states of partitions and windows can be added.

The mean is a ratio of two sums over buckets, and its variance is that of the delete-one-bucket jackknife, which is a little too
large rather than too small with few or unequal clusters.

- N. Chamandy, O. Muralidharan, A. Najmi, S. Naidu, "Estimating Uncertainty for Massive Data Streams", Google, 2012: buckets.
- B. Efron, C. Stein, "The Jackknife Estimate of Variance", Annals of Statistics 9(3), 1981: it is conservative.
- A. Deng, U. Knoblich, J. Lu, "Applying the Delta Method in Metric Analytics", KDD 2018: ratio metrics with clustered events.

Why the boundaries for independent increments hold with clusters: if the events' order carries no information (they are
exchangeable), the mean at a look is the expected value of all earlier means given what comes later. So the covariance of two
looks is the variance of the later one, as in a Brownian motion that runs in units of 1 / variance, whatever the clusters are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.rollout.hashes import hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schemas.arrays import Floats, Ints

BUCKETS: Final = 1024
SALT: Final = "clusters of keys"  # no rollout's ID, so that buckets are independent of variants


def buckets_of(keys: Sequence[bytes]) -> Ints:
    """The bucket of each key: [keys], 0 to 1023."""
    found: Ints = (hashed(keys, SALT) % np.uint32(BUCKETS)).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class Clusters:
    """The events and the sum of their values in each bucket. Leading axes, if there are any, are of independent metrics."""

    counts: Floats  # [..., buckets]: events, or their weights
    sums: Floats  # [..., buckets]

    @classmethod
    def empty(cls, *leading: int, buckets: int = BUCKETS) -> Clusters:
        """No events; `leading`: the shape before the axis of the buckets, such as [segments]."""
        return cls(np.zeros((*leading, buckets)), np.zeros((*leading, buckets)))

    @classmethod
    def of(cls, buckets: Ints, values: Floats, count: int = BUCKETS) -> Clusters:
        """Sum up events.

        Args:
            buckets: of each event, [events].
            values: [events]; finite.
            count: how many buckets there are.
        """
        sums: Floats = np.bincount(buckets, values, minlength=count).astype(np.float64)
        return cls(np.bincount(buckets, minlength=count).astype(np.float64), sums)

    def __add__(self, other: Clusters) -> Clusters:
        """The events of both."""
        return Clusters(self.counts + other.counts, self.sums + other.sums)

    @property
    def events(self) -> Floats:
        """[...]."""
        found: Floats = self.counts.sum(-1)
        return found

    @property
    def total(self) -> Floats:
        """The sum of all values, [...]."""
        found: Floats = self.sums.sum(-1)
        return found

    @property
    def mean(self) -> Floats:
        """[...]; NaN without events."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = self.total / self.events
        return found

    @property
    def variance(self) -> Floats:
        """Of the mean, [...]; infinite if it is not known: with fewer than two buckets that have events."""
        return _jackknife(self.moves, (self.counts > 0).sum(-1))

    @property
    def moves(self) -> Floats:
        """The mean without a bucket, minus the mean: [..., buckets]. A bucket without events changes nothing."""
        rest = self.events[..., None] - self.counts
        with np.errstate(divide="ignore", invalid="ignore"):
            moves = np.where(rest > 0, (self.counts * self.mean[..., None] - self.sums) / rest, np.inf)
        found: Floats = np.where(self.counts > 0, moves, 0.0)
        return found

    @property
    def effective(self) -> Floats:
        """The number of clusters of equal size that would be as informative: Kish's, [...]; 0 without events."""
        squares = np.square(self.counts).sum(-1)
        found: Floats = np.divide(np.square(self.events), squares, out=np.zeros_like(squares), where=squares > 0)
        return found

    def design_effect(self) -> Floats:
        """How much larger the variance of a proportion is than with independent events, at least 1: [...].

        J. N. K. Rao, A. J. Scott, "A Simple Method for the Analysis of Clustered Binary Data", Biometrics 48, 1992.
        """
        mean = self.mean
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.variance * self.events / (mean * (1 - mean))
        # Without a spread there is nothing to compare; with one bucket, nothing is known.
        found = np.where((mean > 0) & (mean < 1), found, 1.0)
        effect: Floats = np.maximum(found, 1.0)
        return effect


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate's minus baseline's mean. All fields have the same shape."""

    estimate: Floats
    variance: Floats
    degrees: Floats  # degrees of freedom of the variance
    effective: Floats  # clusters of the smaller side


def unpaired(baseline: Clusters, candidate: Clusters) -> Difference:
    """Of events that only one of them answered. Degrees of freedom as B. L. Welch's, Biometrika 34, 1947."""
    first, second = baseline.variance, candidate.variance
    degrees = [np.maximum(side.effective - 1, 1.0) for side in (baseline, candidate)]
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = np.square(first + second) / (np.square(first) / degrees[0] + np.square(second) / degrees[1])
    return Difference(
        candidate.mean - baseline.mean,
        first + second,
        np.where(np.isfinite(joint), joint, 1.0),
        np.minimum(baseline.effective, candidate.effective),
    )


def in_same_clusters(baseline: Clusters, candidate: Clusters) -> Difference:
    """Of events that only one of them answered, in clusters that are the same for both, such as blocks of time.

    The jackknife leaves out a cluster of both at once. So the variance doesn't have what a cluster does to both.
    """
    filled = ((baseline.counts > 0) | (candidate.counts > 0)).sum(-1)
    with np.errstate(invalid="ignore"):
        variance = _jackknife(candidate.moves - baseline.moves, filled)
    effective = np.minimum(baseline.effective, candidate.effective)
    known: Floats = np.where(np.isnan(variance), np.inf, variance)  # a bucket may have all events of a side
    return Difference(candidate.mean - baseline.mean, known, np.maximum(effective - 1, 1.0), effective)


def _jackknife(moves: Floats, filled: Ints) -> Floats:
    """The variance by how the estimate moves without each of the clusters; infinite with fewer than two."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(filled > 1, (filled - 1) / filled * np.square(moves).sum(-1), np.inf)
    return found


def paired(differences: Clusters) -> Difference:
    """Of events that both answered; `differences`: candidate's minus baseline's value of each event."""
    effective = differences.effective
    return Difference(differences.mean, differences.variance, np.maximum(effective - 1, 1.0), effective)
