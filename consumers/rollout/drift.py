"""How far apart two distributions are at least: population stability index and Kolmogorov-Smirnov distance, with lower bounds.

Both are never negative, and estimates of them are above 0 even if nothing has changed. So a limit is compared with a lower bound
that holds at all times, not with the estimate. The bound takes confidence sequences of all bins at once (union bound), and the
two distributions inside of them that are closest to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import rel_entr

from millstream.consumers.rollout.proportions import proportion_interval

if TYPE_CHECKING:
    from millstream.schemas.arrays import Floats

BINS: Final = 10
_EMPTY_SHARE: Final = 1e-4  # of an empty bin in the estimated index, so that its logarithm exists


@dataclass(frozen=True, slots=True)
class Drift:
    """Two distributions compared. Each field has the shape of the counts without their last axis."""

    psi: Floats
    psi_at_least: Floats
    ks: Floats
    ks_at_least: Floats


def edges_of(reference: Floats, bins: int = BINS) -> Floats:
    """The ends of bins that hold equally many of the reference's values: [at most bins - 1], ascending.

    With many equal values, several ends are one. The reference must not be one of the samples that are compared, or must be the
    first part of one: the bins are fixed before the data are seen.
    """
    return np.unique(np.quantile(reference[np.isfinite(reference)], np.arange(1, bins) / bins))


def binned(values: Floats, edges: Floats) -> Floats:
    """How many values lie in each bin: [edges + 2]; the last bin is for NaN. Counts can be added."""
    places = np.searchsorted(edges, values, side="left")
    places[np.isnan(values)] = len(edges) + 1
    return np.bincount(places, minlength=len(edges) + 2).astype(np.float64)


def drift(expected: Floats, actual: Floats, level: float, design_effect: float = 1.0) -> Drift:
    """Compare `actual` with `expected`.

    Args:
        expected: counts per bin, [..., bins].
        actual: counts per bin, [..., bins].
        level: the probability that a lower bound is too high at any time.
        design_effect: how many events count as one.
    """
    psi, psi_least = _psi(expected, actual, level, design_effect)
    ks, ks_least = _ks(expected, actual, level, design_effect)
    return Drift(psi, psi_least, ks, ks_least)


def _psi(expected: Floats, actual: Floats, level: float, effect: float) -> tuple[Floats, Floats]:
    before, after = (
        np.maximum(counts / np.maximum(counts.sum(-1, keepdims=True), 1), _EMPTY_SHARE) for counts in (expected, actual)
    )
    index = (rel_entr(before, after) + rel_entr(after, before)).sum(-1)
    bins = expected.shape[-1]
    first, second = (
        proportion_interval(counts / effect, counts.sum(-1, keepdims=True) / effect, level / (2 * bins))
        for counts in (expected, actual)
    )
    # A bin's term grows with the distance of the two shares: it is least where both are closest.
    low = np.minimum(first.upper, second.upper)
    high = np.maximum(first.lower, second.lower)
    apart = high > low
    closest = rel_entr(high, low) + rel_entr(low, high)
    return index, np.where(apart, closest, 0.0).sum(-1)


def _ks(expected: Floats, actual: Floats, level: float, effect: float) -> tuple[Floats, Floats]:
    cuts = expected.shape[-1] - 1
    below = [counts.cumsum(-1)[..., :-1] for counts in (expected, actual)]
    totals = [counts.sum(-1, keepdims=True) for counts in (expected, actual)]
    shares = [part / np.maximum(total, 1) for part, total in zip(below, totals, strict=True)]
    first, second = (
        proportion_interval(part / effect, total / effect, level / (2 * cuts))
        for part, total in zip(below, totals, strict=True)
    )
    least = np.maximum(first.lower - second.upper, second.lower - first.upper).clip(0)
    return np.abs(shares[0] - shares[1]).max(-1), least.max(-1)
