"""Says about how many more labels decide a metric of quality, or why no number of labels does. Forecasts decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.compared import Halves, Pairs
from millstream.consumers.evaluation.judge import levels_of
from millstream.consumers.rollout.judging import keys_without_difference
from millstream.consumers.rollout.power import needed_variance
from millstream.consumers.rollout.rounded import about, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.consumers.evaluation.figures import CandidateVerdicts
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.consumers.rollout.clusters import Clusters
    from millstream.consumers.rollout.judging import MetricRule

_LEAST_MS: Final = 60_000  # the first events tell nothing about the rate
_LONGEST_MS: Final = 365 * 86_400_000
_LEAST: Final = 1.05  # times as many labels: a forecast that is just reached is too low by chance


@dataclass(frozen=True, slots=True)
class _Pace:
    """How labels came so far."""

    labels: int  # of the version that has fewer
    events: int  # mature ones that these labels took
    ms: int  # in which these events came
    is_thinned: bool  # whether only a part of the events is kept, so that there may never be more

    def told(self, factor: float, why: str) -> str:
        """What is still to come until there are so many times as many labels as now. `why`: what they show, and if what holds."""
        if self.is_thinned:
            return ""
        more = factor - 1
        left = more * self.ms
        rate = f", {span(left) if left <= _LONGEST_MS else 'more than a year'} at the present rate"
        rate = rate if self.ms >= _LEAST_MS else ""
        return f"about {about(more * self.labels)} more labels {why} (about {about(more * self.events)} events{rate})"


def outlooks(
    settings: StepSettings,
    sides: tuple[Side, Side],
    quality: Mapping[str, Halves | Pairs],
    found: CandidateVerdicts,
    sampled: float,
    now: int,
) -> Iterator[str]:
    """A sentence for each metric of quality that is not decided, as far as there is something to say.

    Args:
        settings: of the step.
        sides: the baseline's and the candidate's events.
        quality: of `quality_of`.
        found: what they show.
        sampled: share of the keys whose events are kept, of the version that keeps less.
        now: ms since the epoch.
    """
    if settings.before:  # at 100 %, quality is not needed
        return
    undecided = {own.metric for own in found.verdicts if own.segment is None and own.outcome == "undecided"}
    events = sum(int(side.mature.sum()) for side in (sides[:1] if settings.paired else sides))
    pace = _Pace(found.labels, events, max(now - settings.maturity - settings.since, 0), sampled < 1)
    whose = f" of {found.candidate}" if len(settings.candidates) > 1 else ""
    for rule in settings.quality if found.labels else ():
        if rule.name not in undecided:
            continue
        if said := _outlook(settings, rule, quality[rule.name], pace):
            yield f"{rule.name}{whose}: {said}"


def _outlook(settings: StepSettings, rule: MetricRule, compared: Halves | Pairs, pace: _Pace) -> str:
    if isinstance(compared, Pairs) and compared.equal is not None:
        level = levels_of(settings).promotion
        return _of_equal_answers(rule, compared.equal, level, is_within=compared.is_within_bound(rule))
    found = compared.difference
    if not np.isfinite(found.variance) or found.variance <= 0:
        return ""
    promotion, effect = levels_of(settings).promotion, rule.resolution
    clusters = rule.least_clusters / max(float(found.effective), 1.0)
    factor = max(float(found.variance) / needed_variance(effect, effect, promotion), clusters)
    benefit = rule.threshold + effect
    case = "if both versions are equally good" if abs(benefit) < 1e-9 else f"if its benefit is {benefit:+.4g}"
    if factor <= 1:  # they should have been enough, so the difference is what it needs more for
        benefit = float(found.estimate) if rule.better == "higher" else -float(found.estimate)
        if benefit <= rule.threshold:
            return f"it does not pass while its benefit is {benefit:+.4g}; it needs more than {rule.threshold:g}"
        factor = float(found.variance) / needed_variance(benefit - rule.threshold, effect, promotion)
        case = f"if its benefit stays at {benefit:+.4g}"
    return pace.told(max(factor, _LEAST), f"show that it is good enough, {case}")


def _of_equal_answers(rule: MetricRule, keys: Clusters, level: float, *, is_within: bool) -> str:
    """A shadow has given the primary's answers so far. `is_within`: whether values have a bound, and keep it."""
    equal = "all answers are equal so far"
    if rule.threshold >= 0:
        return (
            f"{equal}, and it does not pass while they are: equal answers can't show a benefit above {rule.threshold:g}. "
            "`millstream rollout step` goes on"
        )
    if is_within:
        needed = keys_without_difference(rule, level)
        return (
            f"{equal}. About {about(needed)} keys with labels show that few answers can differ; those so far count as "
            f"{float(keys.effective):,.0f}"
        )
    if rule.bounded:
        return f"{equal}, and some values are above 1: it needs scores from 0 to 1, such as probabilities"
    if rule.largest is not None:
        return f"{equal}, and some values are above the bound of {rule.largest:g}: raise it"
    return (
        f"{equal}, and it stays undecided while they are, because nothing bounds an error. Write `bound` into "
        f"rollout.metrics.{rule.name}, or go on with `millstream rollout step`"
    )
