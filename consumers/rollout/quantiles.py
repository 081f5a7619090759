"""Confidence sequences for quantiles of latencies, from histograms of a constant size.

At the true p-quantile, the number of values below it is a sum of independent events of probability p. So the ranks that a
beta-binomial mixture around p allows hold the quantile at all times: S. R. Howard, A. Ramdas, "Sequential estimation of quantiles
with applications to A/B testing and best-arm identification", Bernoulli 28(3), 2022, for a fixed p.

A bin is 2 % wide, so an end of an interval is at most 2 % too far out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import betaln

from millstream.consumers.rollout.proportions import Interval

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.schemas.arrays import Floats, Ints

_GROWTH: Final = np.log(1.02)
_LEAST_MS: Final = 1e-3
BINS: Final = 1048
"""From 0.001 ms to 1,000,000 ms. The first and the last bin also hold what lies beyond."""
_STRENGTH: Final = 100.0  # events that the mixture counts for; tight for some thousand events
_HALVINGS: Final = 40


def latency_bins(milliseconds: Floats) -> Ints:
    """The bin of each latency, any shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.floor(np.log(milliseconds / _LEAST_MS) / _GROWTH)
    bins: Ints = np.clip(np.nan_to_num(places, nan=BINS - 1), 0, BINS - 1).astype(np.int64)
    return bins


def histogram(milliseconds: Floats) -> Floats:
    """Events per bin: [bins]. Histograms can be added."""
    return np.bincount(latency_bins(milliseconds), minlength=BINS).astype(np.float64)


def batch_design_effect(events: float, squares: float) -> float:
    """The latencies of a micro-batch are one number, so they count as one event: the mean size of an event's batch (Kish).

    Args:
        events: sum of the batches' sizes.
        squares: sum of their squares.
    """
    return max(1.0, squares / events) if events else 1.0


def quantile_interval(counts: Floats, p: float, level: float, design_effect: npt.ArrayLike = 1.0) -> Interval:
    """The p-quantile in milliseconds.

    Args:
        counts: histograms, [..., bins].
        p: 0.5 is the median.
        level: the probability that the interval misses at any time.
        design_effect: how many events count as one, [...].
    """
    effect = np.asarray(design_effect, np.float64)
    events = counts.sum(-1)
    low, high = (ranks * effect for ranks in _ranks(events / effect, p, level))
    below = counts.cumsum(-1)
    first = (below < np.maximum(np.ceil(low), 1)[..., None]).sum(-1)
    last = (below < (np.floor(high) + 1)[..., None]).sum(-1)
    lower = np.where((low > 0) & (first > 0), _edge(first), 0.0)
    return Interval(lower, np.where(last < BINS - 1, _edge(last + 1), np.inf))


def _edge(bins: Ints) -> Floats:
    """The lower end of a bin, ms."""
    found: Floats = _LEAST_MS * np.exp(_GROWTH * bins)
    return found


def _ranks(events: Floats, p: float, level: float) -> tuple[Floats, Floats]:
    """Between which numbers of values below the quantile there may be: the mixture's evidence is below 1 / level."""
    prior = _STRENGTH * p, _STRENGTH * (1 - p)

    def outside(k: Floats) -> npt.NDArray[np.bool_]:
        log_evidence = betaln(prior[0] + k, prior[1] + events - k) - betaln(*prior)
        return np.asarray(log_evidence - k * np.log(p) - (events - k) * np.log1p(-p) >= -np.log(level))

    ends = []
    for end in (np.zeros_like(events), events):
        out, inside = end, events * p
        for _ in range(_HALVINGS):
            middle = (out + inside) / 2
            is_out = outside(middle)
            out, inside = np.where(is_out, middle, out), np.where(is_out, inside, middle)
        ends.append(np.where(outside(end), out, end))
    return ends[0], ends[1]
