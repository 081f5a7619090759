"""Whether each variant got the share of events that it should, over all steps of the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.rows import Rows, buckets, is_sampled
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.sample_ratio import missing_events, share_is_confirmed, share_is_off, share_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.evaluation.settings import StepSettings

_LEAST_CLUSTERS: Final = 50  # before the design effect is known
_MOST_CLUSTERED: Final = 10.0  # events that count as one


def step_ratio(
    settings: StepSettings, rows: Rows, sampled: Sequence[float], candidate: int, now: int
) -> Clusters | None:
    """The ratio of this step; None if there is none: both answer all events, one has no share, or shares change all the time.

    Args:
        settings: of the step.
        rows: all events.
        sampled: share of each variant's keys that is kept. Only keys count that are kept in both variants.
        candidate: index of the variant.
        now: ms since the epoch.
    """
    first, second = settings.shares[0], settings.shares[candidate]
    if settings.paired or not settings.by_share or not first or not second:
        return None
    level = round(-np.log2(min(sampled[0], sampled[candidate])))
    counted = rows[
        rows["randomised"] & (rows["time"] >= settings.since) & (rows["time"] <= now) & is_sampled(rows["hash"], level)
    ]
    return share_ratio(_counts(counted, 0), _counts(counted, candidate), second / (first + second))


def _counts(rows: Rows, variant: int) -> Clusters:
    own = buckets(rows[rows["variant"] == variant])
    return Clusters.of(own, np.ones(len(own)))


def ratio_faults(settings: StepSettings, ratio: Clusters | None) -> Iterator[str]:
    """Why the sample ratio makes a comparison invalid, as sentences."""
    if ratio is None:
        return
    found = f"{float(ratio.total):,.0f} events of the candidate, {float(ratio.events):,.0f} expected"
    if share_is_off(ratio, settings.level):
        yield f"the sample ratio is off: {found}: events of one version are lost"
    elif settings.ratio_tolerance is not None and not _is_confirmed(settings, ratio, settings.ratio_tolerance):
        yield f"the sample ratio is not confirmed yet: {found}; {_missing(ratio, settings)}"


def _missing(ratio: Clusters, settings: StepSettings) -> str:
    """What confirms it."""
    assert settings.ratio_tolerance is not None
    # Events that count as one, because they are of one key; without events, it is not a number.
    together = float(ratio.variance) * float(ratio.events)
    slow = f", because keys have many events ({together:.0f} count as one)" if 2 <= together < np.inf else ""
    events = missing_events(ratio, settings.level, settings.ratio_tolerance)
    if events is None:
        return f"more events of more keys show whether the difference is chance{slow}"
    rounded = round(events, 1 - int(np.log10(max(events, 10.0))))
    return f"about {max(rounded, 10):,.0f} more events of the candidate are needed{slow}"


def _is_confirmed(settings: StepSettings, ratio: Clusters, tolerance: float) -> bool:
    """Whether a larger deviation is ruled out. If few keys have many events, that takes too long, and isn't asked for."""
    # Without clusters, the variance of a ratio to the expected number is at most that of a Poisson variable.
    if ratio.effective >= _LEAST_CLUSTERS and ratio.variance * ratio.events > _MOST_CLUSTERED:
        return True
    return bool(share_is_confirmed(ratio, settings.level, tolerance))
