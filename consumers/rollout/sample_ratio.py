"""Whether the variants got the share of events that they should: if not, events are lost, and a comparison is invalid.

Events come in clusters: a key with many events shifts the counts although nothing is lost. So the variance comes from the spread
between buckets of keys. The tests may be looked at as often as you like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.rollout.boundaries import two_sided, widened
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.proportions import difference_interval

if TYPE_CHECKING:
    from millstream.schemas.arrays import Floats, Mask

_ROOM: Final = 0.8  # of the tolerance; chance takes the rest
_FOUND: Final = 0.05  # the relative loss that the test is made for
_TOGETHER: Final = 10.0  # events of one key, if the candidate has none that could show it


def share_ratio(baseline: Clusters, candidate: Clusters, share: float) -> Clusters:
    """The candidate's events divided by those that it should have: 1 if the sample ratio is right.

    Ratios of steps with different shares can be added. A rollout keeps one over all its steps, so that a small loss is found.

    Args:
        baseline: only its `counts` matter.
        candidate: likewise; with the same buckets.
        share: of the candidate, of both variants' events, 0 to 1.
    """
    return Clusters(share * (baseline.counts + candidate.counts), candidate.counts)


def share_is_off(ratio: Clusters, level: float) -> Mask:
    """Whether the candidate has too few or too many events, [...].

    Args:
        ratio: of `share_ratio`, or a sum of these.
        level: the probability of a false alarm at any time.
    """
    # Without any event, buckets don't differ, so they don't show the variance. If nothing is lost, the probability that none of
    # the expected events came is at most exp(-expected).
    is_lost = (ratio.total == 0) & (ratio.events > -_TOGETHER * np.log(level))
    off: Mask = is_lost | (np.abs(ratio.mean - 1) > _radius(ratio, level))
    return off


def share_is_confirmed(ratio: Clusters, level: float, tolerance: float) -> Mask:
    """Whether the candidate is shown to have its share, [...]. A loss that is too small to be found yet is not confirmed.

    It takes about `12 / tolerance ** 2` events of a candidate with a small share. If few keys have many events, it takes many
    more.

    Args:
        ratio: of `share_ratio`, or a sum of these.
        level: the probability that a larger deviation is confirmed at any time.
        tolerance: the relative deviation that does no harm, such as 0.1. Lost events can shift a proportion by as much.
    """
    confirmed: Mask = np.abs(ratio.mean - 1) + _radius(ratio, level) < tolerance
    return confirmed


def missing_events(ratio: Clusters, level: float, tolerance: float) -> float | None:
    """About how many more events of the candidate confirm its share, if no event is lost and keys have as many events as now.

    It is None if there are as many already, so that only the deviation is too large, or if too few keys have events to tell.

    Args:
        ratio: not confirmed yet.
        level: as of `share_is_confirmed`.
        tolerance: likewise.
    """
    radius = float(_radius(ratio, level))
    times = (radius / (_ROOM * tolerance)) ** 2  # a radius shrinks with the root of the events
    return float(ratio.events) * (times - 1) if 1 < times < np.inf else None


def labels_are_off(baseline: Clusters, candidate: Clusters, level: float) -> Mask:
    """Whether labels come for one variant more often than for the other, [...]: then quality can't be compared.

    Args:
        baseline: the mature events; the value of one is 1 if its label came in time, and 0 if not.
        candidate: likewise.
        level: the probability of a false alarm at any time.
    """
    found = difference_interval(baseline, candidate, level)
    off: Mask = (found.lower > 0) | (found.upper < 0)
    return off


def _radius(ratio: Clusters, level: float) -> Floats:
    variance = ratio.variance
    return widened(two_sided(variance, _FOUND, level), variance, ratio.effective - 1)
