"""What the evaluation of a step needs to know of the pipeline file and of the rollout's record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.consumers.evaluation.errors import EvaluationError
from millstream.consumers.rollout.changes import Memory
from millstream.consumers.rollout.declared import maturity_ms, metric_rules
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.slots import SlotRange
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from millstream.consumers.rollout.bandit import Arms
    from millstream.consumers.rollout.judging import MetricRule
    from millstream.inference.class_answers import Classes
    from millstream.inference.evaluation import Task
    from millstream.pipeline.comparison_sections import Shadow
    from millstream.pipeline.pipeline import Pipeline
    from millstream.pipeline.rollout_section import Rollout

RATIO_TOLERANCE: Final = 0.1
"""Relative deviation of the sample ratio that does no harm, see `sample_ratio.share_is_confirmed`."""
BEFORE_MS: Final = 3_600_000
"""At 100 %, nothing answers beside the candidate. So it is compared with the baseline's events of the hour before, or of a longer
time if they are few (before.py)."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a prediction's score is."""

    task: Task
    output: str | None  # None: chosen by the first prediction
    item: int | None
    threshold: float
    classes: Classes | None  # with the task `multiclass`


@dataclass(frozen=True, slots=True)
class StepSettings:
    """One step of a rollout. Times are in ms, and points in time in ms since the epoch."""

    pipeline: str
    rollout: str
    revision: int
    epoch: int
    attempt: int
    since: int  # the step is judged by the events since then
    bake: int  # the least time of a step
    before: int  # how long before `since` the baseline's events count as well
    resumed: int  # no event of before counts: somebody has resumed then; 0: nobody has
    rewards_since: int | None  # from when on events count for the rewards of a bandit; None: it is no bandit
    variants: tuple[RolloutVariant, ...]
    shares: tuple[float, ...]  # of each variant, 0 to 1
    by_share: (
        bool  # whether only events that were routed with these shares count; a bandit's shares change all the time
    )
    paired: bool  # whether both versions answered each event: comparisons are read, not predictions
    scoring: Scoring
    maturity: int
    early: int
    window: int
    quality: tuple[MetricRule, ...]
    service: tuple[MetricRule, ...]
    latency_quantile: float
    latency_at_most: float
    score_drift: float | None  # largest population stability index
    input_drift: float | None
    segments: tuple[str, ...]  # fields that predictions include
    fields: tuple[str, ...]  # those whose drift is watched
    reference: int  # how long before the step inputs are compared with
    level: float
    max_events: int
    has_labels: bool
    reward: str | None  # the label's field
    ratio_tolerance: float | None = RATIO_TOLERANCE  # None: a ratio that isn't shown to be off is good enough
    last_shared: int | None = (
        None  # at 100 %: when the last step began in which the baseline had a share; None: not known
    )

    @property
    def begin(self) -> int:
        """From when on predictions are read."""
        begin = self.since - self.before
        return max(0, begin if self.rewards_since is None else min(begin, self.rewards_since))

    @property
    def candidates(self) -> range:
        """The indices of the variants beside the baseline."""
        return range(1, len(self.variants))


def step_settings(pipeline: Pipeline, record: RolloutRecord) -> StepSettings:
    """The settings of the record's current step.

    Raises:
        EvaluationError: the pipeline has no rollout, or the record has no candidate or no progress.
        PlanError: the classes of a model of several classes are not known.
    """
    rollout, memory = _rollout(pipeline, record), _memory(record)
    progress, maturity = memory.progress, maturity_ms(pipeline)
    rules, metrics = metric_rules(pipeline), rollout.metrics
    drift, labels, is_paired = metrics.input_drift, pipeline.labels, _is_paired(pipeline, record)
    # The primary alone acts on an event, so the event's reward says nothing about a shadow.
    reward = None if is_paired else metrics.reward
    shares = tuple(share / SLOTS for share in record.shares)
    return StepSettings(
        pipeline=pipeline.name,
        rollout=record.rollout,
        revision=record.revision,
        epoch=progress.epoch,
        attempt=progress.attempt,
        since=progress.since,
        bake=round(rollout.bake * 1000),
        before=_before(progress) if shares[0] == 0 and record.strategy != "bandit" else 0,
        resumed=progress.resumed,
        rewards_since=None if memory.arms is None else _rewards_since(progress, memory.arms, maturity),
        variants=record.variants,
        shares=shares,
        by_share=record.strategy != "bandit",
        paired=is_paired,
        scoring=_scoring(pipeline),
        maturity=maturity,
        early=0 if labels is None else round(labels.early * 1000),
        window=max(round(pipeline.comparison.window * 1000), 1),
        quality=tuple(rule for rule in rules if not rule.service and (reward is not None or rule.name != "reward")),
        service=tuple(rule for rule in rules if rule.service),
        latency_quantile=metrics.latency.quantile,
        latency_at_most=metrics.latency.at_most,
        score_drift=None if metrics.score_drift is None else metrics.score_drift.at_most,
        input_drift=None if drift is None else drift.at_most,
        segments=rollout.segments,
        fields=() if drift is None else drift.fields,
        reference=0 if drift is None else round(drift.reference * 1000),
        level=rollout.level,
        max_events=rollout.max_events,
        has_labels=labels is not None,
        reward=None if reward is None else reward.field,
    )


def shadow_record(pipeline: Pipeline, shadow: Shadow, *, baseline: int, since: int) -> RolloutRecord:
    """A record by which a shadow is evaluated although no rollout runs. It must not be written to the control topic.

    Args:
        pipeline: with the shadow.
        shadow: one of its shadows.
        baseline: version of the primary.
        since: from when on comparisons count, ms since the epoch.
    """
    model, version = pipeline.shadow_model(shadow)
    variants = (RolloutVariant("primary", pipeline.model.name, baseline), RolloutVariant(shadow.name, model, version))
    progress = Progress(f"{model}:{version}", since=since)
    return RolloutRecord(
        pipeline.name, 1, 0, "", since, "", "start", "", f"{pipeline.name}-{shadow.name}", "blue-green", "running", variants,
        (SlotRange(SLOTS, 0),), strategy_state=progress.to_json(),
    )  # fmt: skip


def _rollout(pipeline: Pipeline, record: RolloutRecord) -> Rollout:
    """The section, if the record is one of its rollouts."""
    if pipeline.rollout is None:
        raise EvaluationError(
            f"{pipeline.named}: expected the section `rollout`, found none: write it (`millstream docs rollouts`)"
        )
    if record.pipeline != pipeline.name or len(record.variants) < 2:
        raise EvaluationError(
            f"rollout of {record.pipeline}, revision {record.revision}: expected one of {pipeline.name} with a baseline and a "
            f"candidate, found {len(record.variants)} variants: start a rollout"
        )
    return pipeline.rollout


def _memory(record: RolloutRecord) -> Memory:
    """What the strategy remembers. If that is nothing, the step began with the record."""
    if "since" not in json.loads(record.strategy_state):
        return Memory(Progress("", since=record.at))
    try:
        return Memory.of(record)
    except ValueError as error:
        raise EvaluationError(f"rollout of {record.pipeline}, revision {record.revision}: {error}") from error


def _before(progress: Progress) -> int:
    """How long before a step at 100 % the baseline's events count: not from before somebody resumed."""
    return min(BEFORE_MS, max(progress.since - progress.resumed, 1))


def _rewards_since(progress: Progress, arms: Arms, maturity: int) -> int:
    """Rewards that had not matured at the last update are of events since then, also if the step began later."""
    return min(progress.since, arms.until or progress.since) - maturity


def _is_paired(pipeline: Pipeline, record: RolloutRecord) -> bool:
    """Whether a candidate without a share runs as a shadow."""
    shadows = {pipeline.shadow_model(shadow) for shadow in pipeline.shadows}
    candidate = record.variants[1]
    return record.shares[1] == 0 and (candidate.model, candidate.version) in shadows


def _scoring(pipeline: Pipeline) -> Scoring:
    section = pipeline.comparison
    return Scoring(section.task, section.output, section.item, section.threshold, compared_classes_of(pipeline))
