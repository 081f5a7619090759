"""Whether each variant got the share of events that it should, over all steps of the rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.rows import Rows, buckets, is_sampled
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.rounded import about
from millstream.consumers.rollout.sample_ratio import missing_events, share_is_confirmed, share_is_off, share_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.evaluation.settings import StepSettings

_LEAST_CLUSTERS: Final = 50  # before the design effect is known
_MOST_CLUSTERED: Final = 10.0  # events that count as one
_OR_EVENTS: Final = (
    f", or more events of these: once more than {_MOST_CLUSTERED:g} of them count as one, this check is left out"
)
_SEVERAL: Final = 2.0  # events that count as one, from which on the number of keys matters
_FEW_NEW: Final = 0.05  # of the keys
_LEAST_MS: Final = 60_000  # of events, before hardly any new key among them means something
_PART_OF_BAKE: Final = 0.1  # likewise, of the least time of a step


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


def ratio_faults(settings: StepSettings, ratio: Clusters | None, rows: Rows) -> Iterator[str]:
    """Why the sample ratio makes a comparison invalid, as sentences.

    Args:
        settings: of the step.
        ratio: over all steps; None: there is none.
        rows: the events of the step.
    """
    if ratio is None:
        return
    found = f"{float(ratio.total):,.0f} events of the candidate, {float(ratio.events):,.0f} expected"
    if share_is_off(ratio, settings.level):
        yield f"the sample ratio is off: {found}: events of one version are lost"
    elif settings.ratio_tolerance is not None and not _is_confirmed(settings, ratio, settings.ratio_tolerance):
        yield f"the sample ratio is not confirmed yet: {found}; {_missing(ratio, settings, rows)}"


def _missing(ratio: Clusters, settings: StepSettings, rows: Rows) -> str:
    """What confirms it: more events, or more keys if each has several."""
    assert settings.ratio_tolerance is not None
    # Events that count as one, because they are of one key; without events, it is not a number.
    together = float(ratio.variance) * float(ratio.events)
    events = missing_events(ratio, settings.level, settings.ratio_tolerance)
    if together < _SEVERAL and events is not None:
        return f"about {about(events)} more events of the candidate are needed"
    randomised = rows[rows["randomised"]]
    keys = _keys(randomised)
    nothing = float(ratio.total) == 0  # then `together` is 0, however many events a key has
    if not keys.count or (len(randomised) < _SEVERAL * keys.count if nothing else together < _SEVERAL):
        return "more events of more keys show whether the difference is chance"
    # The ratio is over all steps, but only this step's keys are known.
    is_first = settings.epoch == 1
    told = "events of one key prove little more than one event"
    told = f"{told}, and only {keys.count:,} keys have any" if is_first else told
    if keys.new <= _FEW_NEW * keys.count and keys.ms >= max(_LEAST_MS, _PART_OF_BAKE * settings.bake):
        return (
            f"{told}. Hardly any new key comes, so this may take long, or never end: `millstream rollout step` goes on without "
            "it, or choose a record key with more different values"
        )
    if nothing:
        return f"{told}. None of them is the candidate's: more keys or a larger share are needed"
    if not is_first:
        return f"{told}: more keys are needed{_OR_EVENTS}"
    return f"{told}: about {about(keys.count * _times_more(ratio, together, events))} more keys are needed{_OR_EVENTS}"


def _times_more(ratio: Clusters, together: float, events: float | None) -> float:
    """How many times as many keys as now are still missing, if they have as many events."""
    by_number = _LEAST_CLUSTERS / max(float(ratio.effective), 1.0) - 1
    by_ratio = np.inf if events is None else events / float(ratio.events)
    # From so many keys on, the ratio of keys with many events need not be confirmed.
    return max(by_number if together > _MOST_CLUSTERED or by_ratio == np.inf else by_ratio, by_number, 0.1)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The routing keys of events."""

    count: int
    new: int  # those whose first event is in the later half of the events
    ms: int  # from the first event to the last one


def _keys(rows: Rows) -> _Keys:
    ordered = rows["hash"][np.argsort(rows["time"], kind="stable")]
    count = len(np.unique(ordered))
    ms = int(np.ptp(rows["time"])) if len(rows) else 0
    return _Keys(count, count - len(np.unique(ordered[: len(ordered) // 2])), ms)


def _is_confirmed(settings: StepSettings, ratio: Clusters, tolerance: float) -> bool:
    """Whether a larger deviation is ruled out. If few keys have many events, that takes too long, and isn't asked for."""
    # Without clusters, the variance of a ratio to the expected number is at most that of a Poisson variable.
    if ratio.effective >= _LEAST_CLUSTERS and ratio.variance * ratio.events > _MOST_CLUSTERED:
        return True
    return bool(share_is_confirmed(ratio, settings.level, tolerance))
