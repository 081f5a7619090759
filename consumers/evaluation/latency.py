"""Compares the latency quantiles of two variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.rollout.judging import OUTCOMES, Levels, Verdict, quantile_sign
from millstream.consumers.rollout.quantiles import batch_design_effect, histogram, quantile_interval

if TYPE_CHECKING:
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.consumers.rollout.proportions import Interval
    from millstream.schemas.arrays import Floats


def latencies_of(side: Side) -> Floats:
    """The times of the model calls in ms, of events that the variant answered."""
    found: Floats = side.ms[side.answered & np.isfinite(side.ms)]
    return found


def metric_of(quantile: float) -> str:
    """The name of a latency quantile, such as latency_p95."""
    return f"latency_p{100 * quantile:g}"


def latency_verdict(settings: StepSettings, baseline: Side, candidate: Side, levels: Levels) -> Verdict:
    """Whether the candidate is too slow. The benefit is minus the relative slowdown: -0.5 is half as long again."""
    quantile, most = settings.latency_quantile, settings.latency_at_most
    times = [latencies_of(side) for side in (baseline, candidate)]
    counted = [_counted(own) for own in times]
    signs, ends = {}, {}
    for level in dict.fromkeys((levels.promotion, levels.rollback)):
        first, second = (quantile_interval(counts, quantile, level / 2, effect) for counts, effect in counted)
        signs[level], ends[level] = int(quantile_sign(first, second, most)), _benefit(first, second)
    outcome = OUTCOMES[-1 if signs[levels.rollback] < 0 else max(signs[levels.promotion], 0)]
    estimate = None
    if all(map(len, times)):
        usual, found = (float(np.quantile(own, quantile)) for own in times)
        estimate = 1 - found / usual if usual > 0 else None
    lower, upper = ends[levels.promotion][0], ends[levels.rollback][1]
    return Verdict(metric_of(quantile), outcome, estimate, lower, upper, service=True)


def _counted(milliseconds: Floats) -> tuple[Floats, float]:
    """The histogram, and how many events count as one: those of a micro-batch have the same time."""
    _, sizes = np.unique(milliseconds, return_counts=True)
    return histogram(milliseconds), batch_design_effect(
        float(sizes.sum()), float(np.square(sizes.astype(np.float64)).sum())
    )


def _benefit(baseline: Interval, candidate: Interval) -> tuple[float, float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        lower, upper = 1 - candidate.upper / baseline.lower, 1 - candidate.lower / baseline.upper
    return float(np.nan_to_num(lower, nan=-np.inf, neginf=-np.inf)), float(np.nan_to_num(upper, nan=1.0))
