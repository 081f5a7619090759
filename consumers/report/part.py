"""What a report shows of a model, or of two models that answered the same events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from millstream.consumers.comparison.verdict import DEVIATIONS
from millstream.consumers.rollout.boundaries import two_sided
from millstream.consumers.rollout.proportions import proportion_interval
from millstream.inference.estimates import auc, auc_error
from millstream.inference.evaluation import LOSSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.inference.evaluation import Scores, Summary, Task
    from millstream.schemas.arrays import Floats

LEVEL = 0.05
"""The probability that an interval of the report misses the truth; those over time miss it at any time."""
NARROWEST_AT = 10_000
"""Labels at which a confidence sequence of a difference is narrowest. It is chosen before the data are seen."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the models."""

    name: str  # such as `version 2`
    latency: str  # what its latency is; empty: it has none


@dataclass(frozen=True, slots=True)
class Part:
    """The results of one comparison, or of one model alone."""

    title: str
    verdict: str  # in words
    basis: Sequence[tuple[str, str]]  # what it is based on: name and text
    task: Task
    sides: tuple[Side, ...]  # one, or two: the primary, then the other
    whole: Summary
    windows: Mapping[int, Summary]  # by their start, ms since the epoch
    width: int  # of a window, ms
    segments: Mapping[str, Summary] = field(default_factory=dict)
    segment_field: str | None = None
    rows: Sequence[dict[str, Any]] = ()  # results of the comparison job's windows (schema evaluation-v2)

    @property
    def paired(self) -> bool:
        """Whether two models are compared."""
        return len(self.sides) > 1


class Figure(NamedTuple):
    """A figure of one model with its interval; NaN: not known."""

    value: float
    low: float
    high: float


def figure(scores: Scores, task: Task) -> Figure:
    """The AUC, the accuracy or the mean absolute error of one model, with an interval of 95 % (not of the error)."""
    value: float | None
    error: float | None = None
    if task == "classification":
        value, error = auc(scores.positive, scores.negative), auc_error(scores.positive, scores.negative)
    elif task == "multiclass":
        wrong, right = int(scores.confusion[2]), int(scores.confusion[3])
        value = right / (right + wrong) if right + wrong else None
        error = None if value is None else math.sqrt(value * (1 - value) / (right + wrong))
    else:
        labelled = scores.positive.total + scores.negative.total
        value = scores.absolute / labelled if labelled else None
    if value is None:
        return Figure(math.nan, math.nan, math.nan)
    radius = math.nan if error is None else DEVIATIONS * error
    return Figure(value, value - radius, value + radius)


def largest(segments: Mapping[str, Summary], most: int) -> dict[str, Summary]:
    """The segments with the most events, the largest first; the others together."""
    ordered = sorted(segments.items(), key=lambda entry: -entry[1].events)
    found = dict(ordered[:most])
    if others := ordered[most:]:
        found[f"{len(others)} others"] = reduce(add, (summary for _, summary in others))
    return found


class Sequenced(NamedTuple):
    """An estimate over time, with the confidence sequence around it: one entry per window, of all events until its end."""

    times: list[int]  # ends of windows, ms since the epoch
    middles: list[float]
    lows: list[float]
    highs: list[float]


def agreement_over_time(part: Part) -> Sequenced:
    """The share of events on which both models agree. The intervals hold at all times at once (see `rollout.proportions`)."""
    counts = np.array([[each.agreed, each.answered] for each in part.windows.values()], np.float64).reshape(-1, 2)
    agreed, answered = counts.cumsum(axis=0).T
    interval = proportion_interval(agreed, answered, LEVEL)
    return _sequenced(
        part, np.divide(agreed, answered, out=np.full(len(agreed), np.nan), where=answered > 0), *interval
    )


def difference_over_time(part: Part, loss: str) -> Sequenced:
    """The other model's minus the primary's mean loss; `loss`: one of `LOSSES`. The intervals hold at all times at once."""
    place = LOSSES.index(loss)
    sums = np.array(
        [[_labelled(part, each), *each.losses[:, place]] for each in part.windows.values()], np.float64
    ).reshape(-1, 3)
    labels, totals, squares = sums.cumsum(axis=0).T
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = totals / labels
        of_event = np.maximum(squares / labels - mean**2, 0.0) * labels / (labels - 1)
        variance = np.where(labels > 1, of_event / labels, np.inf)
    last = of_event[-1] if len(of_event) and np.isfinite(of_event[-1]) and of_event[-1] > 0 else 1.0
    radius = two_sided(variance, float(np.sqrt(last / NARROWEST_AT)), LEVEL)
    return _sequenced(part, mean, mean - radius, mean + radius)


def _labelled(part: Part, summary: Summary) -> int:
    """The events with a label and a score, or a class, of both models."""
    if part.task == "multiclass":
        return int(summary.primary.confusion.sum())
    return summary.joint_negative.total + summary.joint_positive.total


def _sequenced(part: Part, middles: Floats, lows: Floats, highs: Floats) -> Sequenced:
    ends = [start + part.width for start in part.windows]
    return Sequenced(ends, middles.tolist(), lows.tolist(), highs.tolist())
