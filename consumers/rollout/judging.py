"""Judges a candidate by each metric: is it shown to be good enough, shown to be too bad, or neither yet?

A *benefit* is how much better the candidate is, in the metric's unit: above 0 is better, whichever way the metric points.

- A metric passes if the lower bound of the benefit is above its threshold: minus the margin (not worse by more than that), or the
  minimum effect (better by more than that).
- A metric is breached if the upper bound of the benefit is below minus the margin.

Errors over all metrics, segments and looks stay within the stated levels. Bounds hold at all looks at once (boundaries.py). A
promotion needs every metric to pass, so each may have the whole level: if one is bad, only its own bound has to fail (an
intersection-union test: R. L. Berger, Technometrics 24, 1982). One breach is enough to roll back, so metrics and segments share
the level (union bound).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from millstream.consumers.rollout.boundaries import one_sided, widened
from millstream.consumers.rollout.clusters import Clusters, Difference, unpaired
from millstream.consumers.rollout.proportions import difference_interval, proportion_interval
from millstream.consumers.rollout.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.schemas.arrays import Floats, Ints

Better = Literal["higher", "lower"]
_MOST_KEYS: Final = 1e12  # of a forecast
OUTCOMES: Final[dict[int, Outcome]] = {1: "pass", -1: "breach", 0: "undecided"}


@dataclass(frozen=True, slots=True)
class MetricRule:
    """What a metric demands of a candidate.

    Raises:
        ValueError: a margin or effect below 0, or no difference that the test is made for.
    """

    name: str
    better: Better
    margin: float = 0.0  # how much worse the candidate may be, in the metric's unit
    minimum_effect: float | None = None  # how much better it must be; None: it is enough that it is not worse
    scale: float | None = None  # the difference that the test is made for; None: the larger of the two
    segment_margin: float | None = (
        None  # how much worse it may be in a segment; None: segments only guard, with `margin`
    )
    exact: bool = False  # for proportions of rare events: never a normal approximation
    bounded: bool = False  # values are from 0 to 1
    bound: float | None = None  # of other values, which are from 0 to this; None: not known
    service: bool = False  # errors or latency rather than quality; it counts even if the sample ratio is off
    least_clusters: float = 50.0  # of each side, before a normal approximation is trusted

    def __post_init__(self) -> None:
        if self.margin < 0 or (self.minimum_effect or 0) < 0:
            raise ValueError(f"metric {self.name}: expected a margin and a minimum effect of at least 0")
        if not self.exact and self.resolution <= 0:
            raise ValueError(
                f"metric {self.name}: expected a margin, a minimum effect or a scale above 0, found none: the test must know "
                "which difference it is to find"
            )

    @property
    def resolution(self) -> float:
        """The scale of the boundaries."""
        return max(self.margin, self.minimum_effect or 0.0) if self.scale is None else self.scale

    @property
    def largest(self) -> float | None:
        """The largest value of an event; None: not known."""
        return 1.0 if self.bounded else self.bound

    def in_segments(self) -> MetricRule:
        """The rule for segments: a candidate must not be much worse in any, but need not be better in each."""
        margin = self.margin if self.segment_margin is None else self.segment_margin
        return replace(self, margin=margin, minimum_effect=None, scale=self.resolution if margin == 0 else margin)

    @property
    def threshold(self) -> float:
        """The benefit above which the metric passes."""
        return -self.margin if self.minimum_effect is None else self.minimum_effect


@dataclass(frozen=True, slots=True)
class Levels:
    """Probabilities of errors for one metric in one step."""

    promotion: float  # of a pass although the benefit is below the threshold
    rollback: float  # of a breach although the benefit is above minus the margin

    @classmethod
    def of(cls, promotion: float, rollback: float, *, guards: int, attempt: int = 1, epoch: int = 1) -> Levels:
        """The parts that a metric gets of a whole rollout's levels.

        Any number of attempts and steps stays within the level: an attempt at the same step gets nine tenths of what earlier ones
        left, and a begun step 1 / (n (n + 1)), which adds up to 1 over all n.

        Args:
            promotion: level of the whole rollout, 0 to 0.5.
            rollback: level of the whole rollout, 0 to 0.5.
            guards: how many metrics and segments may breach.
            attempt: how often this step was tried, from 1 on.
            epoch: how many steps were begun in all, from 1 on.
        """
        return cls(promotion * 0.9 * 0.1 ** (attempt - 1), rollback / guards / (epoch * (epoch + 1)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the benefit; any shape."""

    estimate: Floats
    lower: Floats  # at the level of a promotion
    upper: Floats  # at the level of a rollback


def bounds_of_difference(rule: MetricRule, difference: Difference, levels: Levels) -> Bounds:
    """Of a difference of means. Infinite until there are enough clusters."""
    benefit = difference.estimate if rule.better == "higher" else -difference.estimate
    enough = difference.effective >= rule.least_clusters
    below, above = (
        np.where(
            enough,
            widened(one_sided(difference.variance, rule.resolution, level), difference.variance, difference.degrees),
            np.inf,
        )
        for level in (levels.promotion, levels.rollback)
    )
    known = np.nan_to_num(benefit)
    return Bounds(benefit, known - below, known + above)


def bounds_without_difference(rule: MetricRule, keys: Clusters, levels: Levels) -> Bounds:
    """Of versions that answered the same events, and no value differed. A difference is at most the largest value.

    They have no variance that could be estimated. But if many values differed, one of these would have. A key counts once,
    however many events it has: answers may differ for all events of some keys, and for none of the others.

    Args:
        rule: with a largest value.
        keys: the events by key, not by bucket: buckets would be too few to show that few values differ.
        levels: of the bounds.
    """
    assert rule.largest is not None
    below, above = (
        np.where(
            keys.effective >= rule.least_clusters,
            rule.largest * proportion_interval(0, keys.effective, level).upper,
            np.inf,
        )
        for level in (levels.promotion, levels.rollback)
    )
    return Bounds(np.zeros_like(below), -below, above)


def keys_without_difference(rule: MetricRule, level: float) -> float:
    """How many keys let a metric pass by `bounds_without_difference`; infinite if no number does. `level`: of the promotion."""
    assert rule.largest is not None
    if rule.threshold >= 0:
        return math.inf
    few, many = 0.0, rule.least_clusters
    while many < _MOST_KEYS and not _is_shown(rule, many, level):
        few, many = many, 2 * many
    while many - few > 1 and few > 0:
        middle = (few + many) / 2
        few, many = (few, middle) if _is_shown(rule, middle, level) else (middle, many)
    return many


def _is_shown(rule: MetricRule, keys: float, level: float) -> bool:
    assert rule.largest is not None
    return bool(-rule.largest * proportion_interval(0, keys, level).upper > rule.threshold)


def bounds(rule: MetricRule, baseline: Clusters, candidate: Clusters, levels: Levels) -> Bounds:
    """Of two variants that answered different events.

    If all values of a side are 0, or all are 1, they don't show the variance. Then bounded values are judged as rare ones.
    """
    if rule.exact:
        return _exact_bounds(rule, baseline, candidate, levels)
    found = bounds_of_difference(rule, unpaired(baseline, candidate), levels)
    equal = [(side.total == 0) | (side.total == side.events) for side in (baseline, candidate)]
    enough = np.minimum(baseline.effective, candidate.effective) >= rule.least_clusters
    is_exact = rule.bounded & enough & (equal[0] | equal[1])
    if not is_exact.any():
        return found
    exact = _exact_bounds(rule, baseline, candidate, levels)
    return Bounds(
        found.estimate, np.where(is_exact, exact.lower, found.lower), np.where(is_exact, exact.upper, found.upper)
    )


def _exact_bounds(rule: MetricRule, baseline: Clusters, candidate: Clusters, levels: Levels) -> Bounds:
    wide = [difference_interval(baseline, candidate, level) for level in (levels.promotion, levels.rollback)]
    estimate = candidate.mean - baseline.mean
    if rule.better == "higher":
        return Bounds(estimate, wide[0].lower, wide[1].upper)
    return Bounds(-estimate, -wide[0].upper, -wide[1].lower)


def signs(rule: MetricRule, found: Bounds) -> Ints:
    """1: the metric passes; -1: it is breached; 0: undecided. Keys of `OUTCOMES`; the shape of the bounds."""
    decided: Ints = np.where(found.upper < -rule.margin, -1, np.where(found.lower > rule.threshold, 1, 0))
    return decided


def breaches(verdicts: Iterable[Verdict], invalid: Collection[str]) -> list[Verdict]:
    """The breaches that count.

    Args:
        verdicts: of one candidate.
        invalid: why quality can't be compared. If it can't, only errors and latency count.
    """
    return [own for own in verdicts if own.outcome == "breach" and (own.service or not invalid)]


def verdict(rule: MetricRule, found: Bounds, segment: str | None = None) -> Verdict:
    """The verdict of bounds that are single numbers.

    Args:
        rule: of the metric; `in_segments` of it for a segment.
        found: at its levels.
        segment: such as `country=DE`. Without a margin of its own it only guards, so it passes unless it is breached.
    """
    outcome = OUTCOMES[int(signs(rule, found))]
    if segment is not None and rule.segment_margin is None and outcome == "undecided":
        outcome = "pass"
    limit = -rule.margin if outcome == "breach" else rule.threshold
    return Verdict(
        rule.name, outcome, float(found.estimate), float(found.lower), float(found.upper), segment, rule.service, limit
    )
