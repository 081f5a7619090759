"""A metric of two versions, summed up once for both the verdict and the forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.evaluation.sides import clusters_of, values_of
from millstream.consumers.rollout.clusters import Clusters, Difference, paired, unpaired
from millstream.consumers.rollout.judging import (
    Bounds,
    Levels,
    MetricRule,
    bounds,
    bounds_of_difference,
    bounds_without_difference,
)

if TYPE_CHECKING:
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side


@dataclass(frozen=True, slots=True)
class Halves:
    """Each event has the answer of one version."""

    baseline: Clusters
    candidate: Clusters

    @property
    def difference(self) -> Difference:
        """The candidate's minus the baseline's mean."""
        return unpaired(self.baseline, self.candidate)

    def bounds(self, rule: MetricRule, levels: Levels) -> Bounds:
        """Of the benefit."""
        return bounds(rule, self.baseline, self.candidate, levels)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Each event has the answers of both versions: a primary and its shadow."""

    differences: Clusters  # the candidate's minus the baseline's values, by bucket of keys
    equal: Clusters | None  # if there are events and no value differs: the events by key, [keys]; else None
    largest: float  # value of the candidate; 0 without events

    @property
    def difference(self) -> Difference:
        """The candidate's minus the baseline's mean."""
        return paired(self.differences)

    def is_within_bound(self, rule: MetricRule) -> bool:
        """Whether values have a bound, and all that came keep it."""
        return rule.largest is not None and self.largest <= rule.largest

    def bounds(self, rule: MetricRule, levels: Levels) -> Bounds:
        """Of the benefit."""
        if self.equal is not None and self.is_within_bound(rule):
            return bounds_without_difference(rule, self.equal, levels)
        return bounds_of_difference(rule, self.difference, levels)


def compared(settings: StepSettings, rule: MetricRule, baseline: Side, candidate: Side) -> Halves | Pairs:
    """Sum up a metric. Rare events of a shadow are no pairs: their proportions have intervals of their own."""
    if settings.paired and not rule.exact:
        return _pairs(settings, rule.name, baseline, candidate)
    return Halves(*(clusters_of(settings.scoring, rule.name, side) for side in (baseline, candidate)))


def _pairs(settings: StepSettings, metric: str, baseline: Side, candidate: Side) -> Pairs:
    """Of the events for which both versions have a value."""
    masks, values = zip(*(values_of(settings.scoring, metric, side) for side in (baseline, candidate)), strict=True)
    both = masks[0] & masks[1]
    first, second = (own[both[mask]] for own, mask in zip(values, masks, strict=True))
    differences = second - first
    is_equal = len(differences) > 0 and not differences.any()
    return Pairs(
        Clusters.of(baseline.bucket[both], differences),
        Clusters.of(np.unique(baseline.rows["hash"][both], return_inverse=True)[1], differences) if is_equal else None,
        float(second.max(initial=0.0)),
    )
