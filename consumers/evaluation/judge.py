"""Judges a candidate by all metrics of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.evaluation.compared import compared
from millstream.consumers.evaluation.distributions import input_drifts, score_verdict
from millstream.consumers.evaluation.figures import CandidateVerdicts
from millstream.consumers.evaluation.latency import latency_verdict
from millstream.consumers.evaluation.ratio import ratio_faults
from millstream.consumers.evaluation.segments import MOST_SEGMENTS
from millstream.consumers.evaluation.sides import labels_came
from millstream.consumers.rollout.judging import Levels, verdict
from millstream.consumers.rollout.sample_ratio import labels_are_off

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.consumers.evaluation.compared import Halves, Pairs
    from millstream.consumers.evaluation.distributions import Reference
    from millstream.consumers.evaluation.rows import Rows
    from millstream.consumers.evaluation.segments import Segment
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.consumers.rollout.clusters import Clusters
    from millstream.consumers.rollout.judging import MetricRule
    from millstream.consumers.rollout.verdicts import Verdict


def levels_of(settings: StepSettings) -> Levels:
    """The part of the rollout's levels that each metric of this step gets."""
    segments = len(settings.quality) * len(settings.segments) * MOST_SEGMENTS
    metrics = len(settings.quality) + len(settings.service) + 1 + (settings.score_drift is not None)
    guards = (metrics + segments) * len(settings.candidates)
    return Levels.of(settings.level, settings.level, guards=guards, attempt=settings.attempt, epoch=settings.epoch)


def quality_of(settings: StepSettings, baseline: Side, candidate: Side) -> dict[str, Halves | Pairs]:
    """What each metric of quality compares, by its name."""
    return {rule.name: compared(settings, rule, baseline, candidate) for rule in settings.quality}


def judged(
    settings: StepSettings,
    sides: tuple[Side, Side],
    *,
    name: str,
    quality: Mapping[str, Halves | Pairs],
    segments: Sequence[Segment],
    ratio: Clusters | None,
    reference: Reference | None,
    rows: Rows,
) -> CandidateVerdicts:
    """The verdicts on a candidate.

    Args:
        settings: of the step.
        sides: the baseline's and the candidate's events.
        name: of the candidate.
        quality: of `quality_of`.
        segments: those that are judged.
        ratio: the sample ratio over all steps.
        reference: the fields of events before the step.
        rows: all events of the step, for the drift of inputs.
    """
    levels = levels_of(settings)
    baseline, candidate = sides
    verdicts = [
        verdict(rule, compared(settings, rule, baseline, candidate).bounds(rule, levels)) for rule in settings.service
    ]
    verdicts.append(latency_verdict(settings, baseline, candidate, levels))
    if (scores := score_verdict(settings, baseline, candidate, levels)) is not None:
        verdicts.append(scores)
    if settings.has_labels:
        for rule in settings.quality:
            verdicts.append(verdict(rule, quality[rule.name].bounds(rule, levels)))
            verdicts += _in_segments(settings, rule, baseline, candidate, levels, segments)
    labels = min(int((side.labelled & side.answered).sum()) for side in sides)
    # A bandit has several candidates: its arms.
    whose = "the candidate" if len(settings.candidates) == 1 else name
    invalid = (*ratio_faults(settings, ratio, rows), *_faults(settings, baseline, candidate, whose, reference, rows))
    return CandidateVerdicts(name, labels, invalid, tuple(map(_known, verdicts)))


def _known(found: Verdict) -> Verdict:
    """Without an estimate where one side has no events."""
    return found if found.estimate is None or np.isfinite(found.estimate) else replace(found, estimate=None)


def _in_segments(
    settings: StepSettings,
    rule: MetricRule,
    baseline: Side,
    candidate: Side,
    levels: Levels,
    segments: Sequence[Segment],
) -> Iterator[Verdict]:
    inside = rule.in_segments()
    for segment in segments:
        first, second = (side.part(segment.of(side.rows)) for side in (baseline, candidate))
        yield verdict(inside, compared(settings, inside, first, second).bounds(inside, levels), segment.name)


def _faults(
    settings: StepSettings, baseline: Side, candidate: Side, whose: str, reference: Reference | None, rows: Rows
) -> Iterator[str]:
    """Why quality can't be compared, beside the sample ratio. `whose`: the candidate in messages."""
    if settings.has_labels and not settings.paired:
        first, second = labels_came(baseline), labels_came(candidate)
        if first.events > 0 and second.events > 0 and labels_are_off(first, second, settings.level):
            yield (
                f"labels come more often for one variant: for {float(first.mean):.1%} of the baseline's mature events and "
                f"{float(second.mean):.1%} of {whose}'s"
            )
    if settings.input_drift is not None:
        for field, found in input_drifts(settings, reference, rows):
            if found.psi_at_least > settings.input_drift:
                yield (
                    f"the field {field} has changed since before the step: its population stability index is at least "
                    f"{np.round(found.psi_at_least, 3)}, {settings.input_drift:g} is allowed"
                )
