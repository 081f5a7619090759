"""Compares the latencies of two variants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from millstream.consumers.rollout.judging import Levels, MetricRule, bounds_of_difference, verdict
from millstream.consumers.rollout.latencies import LATENCY, LEAST_BLOCKS, blocks_of, compared, effective_blocks, slowest
from millstream.consumers.rollout.verdicts import Verdict

if TYPE_CHECKING:
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.schemas.arrays import Floats, Ints


class Timed(NamedTuple):
    """The events that a variant answered: [events]."""

    times: Ints  # of the predictions, ms since the epoch
    milliseconds: Floats  # of the model calls

    def since(self, time: int) -> Timed:
        """Those from this time on, ms since the epoch."""
        mask = self.times >= time
        return Timed(self.times[mask], self.milliseconds[mask])


def timed(side: Side) -> Timed:
    """Of the events that the variant answered."""
    known = side.answered & np.isfinite(side.ms)
    return Timed(side.rows["time"][known], side.ms[known])


def timed_sides(settings: StepSettings, baseline: Side, candidate: Side) -> tuple[Timed, Timed]:
    """The events of both variants whose latencies are compared.

    At 100 %, no more events of the baseline come, so a burst of slow calls would leave the latency without an interval for good.
    Then only its events since the last step began count, if these are enough. The choice depends on when the baseline's slow
    calls came, and not on the difference from the candidate, so it favours no verdict.
    """
    first, second = timed(baseline), timed(candidate)
    if not settings.before or settings.last_shared is None or _are_enough(settings, first, second):
        return first, second
    recent = first.since(settings.last_shared)
    return (recent if _are_enough(settings, recent, second) else first), second


def _are_enough(settings: StepSettings, baseline: Timed, candidate: Timed) -> bool:
    """Whether the baseline's slow calls lie in so many blocks of time that its interval is trusted."""
    blocks, _ = blocks_of(baseline.times, candidate.times)
    slow = slowest(blocks, baseline.milliseconds, settings.latency_quantile)
    return bool(effective_blocks(slow.blocks) >= LEAST_BLOCKS)


def metric_of(quantile: float) -> str:
    """The name of a latency quantile, such as latency_p95. Quantiles are only reported."""
    return f"{LATENCY}_p{100 * quantile:g}"


def latency_verdict(settings: StepSettings, baseline: Side, candidate: Side, levels: Levels) -> Verdict:
    """Whether the candidate is too slow."""
    sides = timed_sides(settings, baseline, candidate)
    return judged_latency(*sides, quantile=settings.latency_quantile, at_most=settings.latency_at_most, levels=levels)


def judged_latency(baseline: Timed, candidate: Timed, *, quantile: float, at_most: float, levels: Levels) -> Verdict:
    """Whether the candidate's slowest events take more than so many times as long.

    The benefit is minus the relative slowdown: -0.5 is half as long again.
    """
    rule = MetricRule(LATENCY, "lower", float(np.log(at_most)), service=True, least_clusters=LEAST_BLOCKS)
    sides = baseline, candidate
    blocks = blocks_of(*(own.times for own in sides))
    found = compared(*(slowest(own, side.milliseconds, quantile) for own, side in zip(blocks, sides, strict=True)))
    in_logs = verdict(rule, bounds_of_difference(rule, found, levels))
    assert in_logs.estimate is not None
    assert in_logs.lower is not None
    assert in_logs.upper is not None
    with np.errstate(over="ignore"):
        estimate, lower, upper = (float(1 - np.exp(-own)) for own in (in_logs.estimate, in_logs.lower, in_logs.upper))
    return replace(in_logs, estimate=estimate, lower=lower, upper=upper, limit=1 - at_most)
