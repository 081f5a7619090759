"""Decides on a simulated rollout with the pure rules alone: from the drawn events, without records, joins and the evaluator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.rollout_events import COUNTRIES, MATURITY, NO_LABEL, Events
from millstream.consumers.evaluation.latency import Timed, judged_latency
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.judging import Levels, MetricRule, bounds, verdict
from millstream.consumers.rollout.progress import Evaluation, Progress
from millstream.consumers.rollout.sample_ratio import labels_are_off, share_is_confirmed, share_is_off, share_ratio
from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.schemas.arrays import Floats, Mask

HOUR: Final = 3_600_000
_TOLERANCE: Final = 0.1  # of the sample ratio
_MOST_CLUSTERED: Final = 10.0  # events that count as one, above which the ratio is not confirmed
_LEAST_CLUSTERS: Final = 50


@dataclass(frozen=True, slots=True)
class Rules:
    """What the candidate is judged by, as the pipeline file of the simulation says it."""

    accuracy: MetricRule
    rare: tuple[MetricRule, ...]  # errors, then dead letters
    quantile: float  # from which on latencies are compared
    slower: float  # how many times as long the candidate may take
    level: float
    guards: int


@dataclass(slots=True)
class Sums:
    """All events of a rollout so far, and the sample ratio of the steps before."""

    rules: Rules
    parts: list[Events] = field(default_factory=list)
    earlier: Clusters = field(default_factory=Clusters.empty)
    _ratio: Clusters = field(default_factory=Clusters.empty)  # with the current step's

    def evaluation(self, progress: Progress, now: int) -> Evaluation:
        """Of the current step."""
        events = Events.joined(self.parts)
        step = events.take(~events.lost & (events.times >= progress.since))
        baseline = step.take(step.variant == 0)
        candidate = step.take(step.variant == 1)
        if progress.share == SLOTS:
            before = (events.times < progress.since) & (events.times >= progress.since - HOUR) & (events.variant == 0)
            baseline = events.take(before)
            self._ratio = self.earlier
        else:
            first, second = (_counted(own, np.ones(len(own.ids))) for own in (baseline, candidate))
            self._ratio = self.earlier + share_ratio(first, second, progress.share / SLOTS)
        levels = Levels.of(
            self.rules.level,
            self.rules.level,
            guards=self.rules.guards,
            attempt=progress.attempt,
            epoch=progress.epoch,
        )
        labelled = [own.take(_labelled(own, now) & ~own.failed) for own in (baseline, candidate)]
        return Evaluation(
            progress.epoch,
            now,
            min(len(own.ids) for own in labelled),
            tuple(self._verdicts(baseline, candidate, labelled, levels)),
            tuple(self._faults(baseline, candidate, now)),
        )

    def begun(self) -> None:
        """A step begins."""
        self.earlier = self._ratio

    def _verdicts(
        self, baseline: Events, candidate: Events, labelled: list[Events], levels: Levels
    ) -> Iterator[Verdict]:
        sides = baseline, candidate
        for rule, flags in zip(self.rules.rare, ("failed", "dead"), strict=True):
            first, second = (_counted(own, getattr(own, flags)) for own in sides)
            yield verdict(rule, bounds(rule, first, second, levels))
        answered = [own.take(~own.failed & ~own.dead) for own in sides]
        timed = (Timed(own.times, own.ms) for own in answered)
        yield judged_latency(*timed, quantile=self.rules.quantile, at_most=self.rules.slower, levels=levels)
        rule = self.rules.accuracy
        first, second = map(_right, labelled)
        yield verdict(rule, bounds(rule, first, second, levels))
        inside = rule.in_segments()
        for number, country in enumerate(COUNTRIES):
            first, second = (_right(own.take(own.country == number)) for own in labelled)
            yield verdict(inside, bounds(inside, first, second, levels), f"country={country}")

    def _faults(self, baseline: Events, candidate: Events, now: int) -> Iterator[str]:
        ratio, level = self._ratio, self.rules.level
        if share_is_off(ratio, level):
            yield "the sample ratio is off"
        elif not share_is_confirmed(ratio, level, _TOLERANCE):
            clustered = ratio.effective >= _LEAST_CLUSTERS and ratio.variance * ratio.events > _MOST_CLUSTERED
            if not clustered:
                yield "the sample ratio is not confirmed yet"
        mature = [own.take(~own.dead & (own.times + MATURITY <= now)) for own in (baseline, candidate)]
        first, second = (_counted(own, _labelled(own, now)) for own in mature)
        if min(first.events, second.events) > 0 and labels_are_off(first, second, level):
            yield "labels come more often for one variant"


def _labelled(events: Events, now: int) -> Mask:
    """Mature, and the label came in time."""
    in_time = (events.labelled != NO_LABEL) & (events.labelled <= events.times + MATURITY)
    found: Mask = in_time & (events.times + MATURITY <= now) & ~events.dead
    return found


def _right(events: Events) -> Clusters:
    return _counted(events, (events.score >= 0.5) == events.outcome)


def _counted(events: Events, values: Mask | Floats) -> Clusters:
    return Clusters.of(events.bucket, np.asarray(values, np.float64))
