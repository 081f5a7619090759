"""Whether the variants got the share of events that they should: if not, events are lost or added, and a comparison is invalid.

Both tests may be looked at as often as you like:

- `multinomial_evidence`, exact, for events that are independent: M. Lindon, A. Malek, "Anytime-Valid Inference For Multinomial
  Count Data", NeurIPS 2022.
- `share_is_off`, for events that come in clusters: a key with many events shifts the counts of events although nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import gammaln, xlogy

from millstream.consumers.rollout.boundaries import two_sided, widened
from millstream.consumers.rollout.clusters import Clusters

if TYPE_CHECKING:
    from millstream.schemas.arrays import Floats, Mask

_STRENGTH: Final = 100.0  # events that the mixture counts for, as the paper suggests for small deviations
_FOUND: Final = 0.1  # the relative change of a share that the test is made for


def multinomial_evidence(counts: Floats, shares: Floats) -> Floats:
    """The logarithm of the e-value against these shares; above `log(1 / level)`, the shares are wrong.

    Args:
        counts: events of each variant, [..., variants].
        shares: the intended ones, above 0, together 1, [variants].
    """
    prior = _STRENGTH * shares
    total = gammaln(prior.sum()) - gammaln(prior.sum() + counts.sum(-1))
    found: Floats = total + (gammaln(prior + counts) - gammaln(prior) - xlogy(counts, shares)).sum(-1)
    return found


def share_is_off(baseline: Clusters, candidate: Clusters, share: float, level: float) -> Mask:
    """Whether the candidate's share of both variants' events is not the intended one, [...].

    Args:
        baseline: only its `counts` matter.
        candidate: likewise; with the same buckets.
        share: the intended one, 0 to 1.
        level: the probability of a false alarm at any time.
    """
    both = Clusters(baseline.counts + candidate.counts, candidate.counts)
    scale = _FOUND * min(share, 1 - share)
    radius = widened(two_sided(both.variance, scale, level), both.variance, both.effective - 1)
    found: Mask = np.abs(both.mean - share) > radius
    return found
