"""What the section `rollout` of a pipeline file declares, as the settings that strategies and judging take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.consumers.rollout.bandit import BanditSettings
from millstream.consumers.rollout.judging import MetricRule
from millstream.consumers.rollout.steps import Steps
from millstream.pipeline.rollout_metrics import RARE, Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.pipeline.pipeline import Pipeline
    from millstream.pipeline.rollout_metrics import Quality
    from millstream.pipeline.rollout_section import Rollout

_BOUNDED: Final = ("accuracy", "brier")
_LOWER_IS_BETTER: Final = ("brier", "absolute_error", "squared_error")


def steps_of(rollout: Rollout, strategy: str | None = None) -> Steps:
    """How the rollout goes on; without steps for `manual` and `bandit`.

    Args:
        rollout: the section.
        strategy: in place of the section's own.
    """
    chosen = strategy or rollout.strategy
    shares = rollout.step_shares(chosen)
    if not shares:
        return Steps((), mode="advise" if chosen == "manual" else rollout.mode, on_breach=rollout.on_breach)
    named = {share: number for number, share in enumerate(shares)}
    return Steps(
        shares,
        bake_ms=_ms(rollout.bake),
        least_labels=rollout.least_labels,
        longest_ms=_ms(rollout.longest),
        watch_ms=0 if chosen == "ab" else _ms(rollout.watch),
        finish="report" if chosen == "ab" else "promote",
        on_breach=rollout.on_breach,
        mode=rollout.mode,
        approvals=frozenset(named.get(share, len(shares)) for share in rollout.approve),
    )


def metric_rules(pipeline: Pipeline) -> tuple[MetricRule, ...]:
    """The metrics that are means or shares. Latency and drift have rules of their own in `rollout.metrics`.

    Returns:
        those of quality first; empty without a rollout.
    """
    rollout = pipeline.rollout
    if rollout is None:
        return ()
    quality = rollout.quality(pipeline.comparison.task, labels=pipeline.labels is not None)
    return (*(_of_quality(name, metric, rollout) for name, metric in quality.items()), *_of_service(pipeline, rollout))


def maturity_ms(pipeline: Pipeline) -> int:
    """How old an event must be until its label must have come, in ms; 0 without labels."""
    if pipeline.labels is None:
        return 0
    stated = None if pipeline.rollout is None else pipeline.rollout.maturity
    return _ms(pipeline.labels.wait if stated is None else stated)


def bandit_settings(rollout: Rollout, arms: int | None = None) -> BanditSettings:
    """How a bandit's shares follow rewards.

    Args:
        rollout: the section.
        arms: how many there are with the baseline; None: those of the section.
    """
    reward = rollout.metrics.reward
    return BanditSettings(
        1 + len(rollout.arms or ()) if arms is None else arms,
        rollout.least_share,
        rollout.discount,
        1.0 if reward is None else reward.deviation,
    )


def _of_quality(name: str, metric: Quality, rollout: Rollout) -> MetricRule:
    reward = rollout.metrics.reward
    lower = name in _LOWER_IS_BETTER or (name == "reward" and reward is not None and reward.better == "lower")
    return MetricRule(
        name,
        "lower" if lower else "higher",
        metric.margin,
        metric.minimum_effect,
        segment_margin=metric.segment_margin,
        bounded=name in _BOUNDED,
        bound=metric.bound if isinstance(metric, Error) else None,
    )


def _of_service(pipeline: Pipeline, rollout: Rollout) -> Iterator[MetricRule]:
    for name in RARE:
        if name == "nan" and not pipeline.model.allow_nan_outputs:
            continue  # such an answer makes a dead letter
        yield MetricRule(name, "lower", getattr(rollout.metrics, name).margin, exact=True, service=True)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
