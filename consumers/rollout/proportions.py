"""Confidence sequences for proportions that also hold for rare events, such as errors: exact, however few there are.

The interval is where a beta-binomial mixture is not above 1 / level times the null:
`B(a + k, b + n - k) / B(a, b) < p^k (1 - p)^(n - k) / level`. The ratio of the two is a martingale under p. So by Ville's
inequality, the interval misses p at any time with a probability of at most `level`.

- H. Robbins, "Statistical Methods Related to the Law of the Iterated Logarithm", Annals of Mathematical Statistics 41, 1970.
- Howard, Ramdas, McAuliffe, Sekhon 2021 (see boundaries.py): the beta-binomial mixture.

If events of one key are alike, the counts are divided by the design effect first (Rao and Scott 1992, see clusters.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.special import betaln, xlog1py, xlogy

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from millstream.consumers.rollout.clusters import Clusters
    from millstream.schemas.arrays import Floats, Mask

_PRIOR: Final = 0.5  # of both parameters of the mixture's beta distribution: Jeffreys'
_HALVINGS: Final = 40


class Interval(NamedTuple):
    """The ends of intervals, any shape."""

    lower: Floats
    upper: Floats


def proportion_interval(hits: npt.ArrayLike, events: npt.ArrayLike, level: float) -> Interval:
    """The proportions that the counts allow.

    Args:
        hits: events that had it; need not be whole numbers, any shape.
        events: all events.
        level: the probability that the interval misses at any time.
    """
    k, n = np.broadcast_arrays(np.asarray(hits, np.float64), np.asarray(events, np.float64))
    most = np.log(1 / level) - betaln(_PRIOR + k, _PRIOR + n - k) + betaln(_PRIOR, _PRIOR)

    def outside(p: Floats) -> Mask:
        return np.asarray(-xlogy(k, p) - xlog1py(n - k, -p) >= most)

    middle = np.divide(k, n, out=np.full_like(k, 0.5), where=n > 0)
    return Interval(_edge(outside, np.zeros_like(middle), middle), _edge(outside, np.ones_like(middle), middle))


def difference_interval(baseline: Clusters, candidate: Clusters, level: float) -> Interval:
    """Candidate's minus baseline's proportion, of values that are 0 or 1. Each side's interval gets half of the level.

    A side without a single hit doesn't show how alike the events of a key are, so it takes the other side's design effect.
    """
    effects = [side.design_effect() for side in (baseline, candidate)]
    varies = [(side.total > 0) & (side.total < side.events) for side in (baseline, candidate)]
    first, second = (
        proportion_interval(side.total / effect, side.events / effect, level / 2)
        for side, effect in (
            (baseline, np.where(varies[0], effects[0], effects[1])),
            (candidate, np.where(varies[1], effects[1], effects[0])),
        )
    )
    return Interval(second.lower - first.upper, second.upper - first.lower)


def _edge(outside: Callable[[Floats], Mask], out: Floats, inside: Floats) -> Floats:
    """Where an interval ends between a point that may be outside and one that is inside."""
    for _ in range(_HALVINGS):
        middle = (out + inside) / 2
        is_out = outside(middle)
        out, inside = np.where(is_out, middle, out), np.where(is_out, inside, middle)
    return out
