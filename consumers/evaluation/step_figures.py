"""Computes the figures of a step for people: per variant, metric, segment and window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.stats import rankdata

from millstream.consumers.evaluation.distributions import input_drifts, score_drift
from millstream.consumers.evaluation.figures import Figure, WindowFigures
from millstream.consumers.evaluation.latency import metric_of, timed
from millstream.consumers.evaluation.sides import QUALITY, clusters_of
from millstream.pipeline.rollout_metrics import RARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.evaluation.distributions import Reference
    from millstream.consumers.evaluation.rows import Rows
    from millstream.consumers.evaluation.segments import Segment
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.schemas.arrays import Floats, Mask

MOST_WINDOWS: Final = 24
"""Windows that are shown: the newest."""
_QUANTILES: Final = (0.5, 0.95, 0.99)


def total_figures(
    settings: StepSettings,
    sides: Sequence[Side],
    segments: Sequence[Segment],
    reference: Reference | None,
    rows: Rows,
) -> WindowFigures:
    """Since the step began.

    Args:
        settings: of the step.
        sides: the events of each variant.
        segments: those that are judged.
        reference: the fields of events before the step.
        rows: all events of the step.
    """
    found: list[Figure] = []
    for variant, side in zip(settings.variants, sides, strict=True):
        found += _of_side(settings, variant.name, side, None)
        for segment in segments:
            found += _quality(settings, variant.name, side.part(segment.of(side.rows)), segment.name)
    for variant, side in zip(settings.variants[1:], sides[1:], strict=True):
        if (scores := score_drift(sides[0], side, settings.level)) is not None:
            events = int((side.answered & np.isfinite(side.score)).sum())
            found += [
                Figure(variant.name, name, None, events, float(value))
                for name, value in (("score_psi", scores.psi), ("score_ks", scores.ks))
            ]
    for field, drift in input_drifts(settings, reference, rows):
        events = int(np.isfinite(rows["fields"][:, settings.fields.index(field)]).sum())
        found += [
            Figure("", f"{name}:{field}", None, events, float(value))
            for name, value in (("input_psi", drift.psi), ("input_ks", drift.ks))
        ]
    return WindowFigures(None, None, tuple(found))


def window_figures(settings: StepSettings, sides: Sequence[Side]) -> tuple[WindowFigures, ...]:
    """The newest windows, ascending, without segments."""
    starts = [side.rows["time"] - side.rows["time"] % settings.window for side in sides]
    newest = np.unique(np.concatenate(starts))[-MOST_WINDOWS:]
    windows = []
    for start in newest.tolist():
        figures: list[Figure] = []
        for variant, side, own in zip(settings.variants, sides, starts, strict=True):
            figures += _of_side(settings, variant.name, side.part(own == start), None)
        windows.append(WindowFigures(start, start + settings.window, tuple(figures)))
    return tuple(windows)


def _of_side(settings: StepSettings, name: str, side: Side, segment: str | None) -> Iterator[Figure]:
    yield Figure(name, "events", segment, len(side.rows), float(len(side.rows)))
    yield Figure(name, "matured", segment, len(side.rows), float(side.mature.sum()))
    yield Figure(name, "labelled", segment, len(side.rows), float(side.labelled.sum()))
    for metric in RARE:
        yield _mean(settings, name, metric, side, segment)
    times = timed(side).milliseconds
    for quantile in _QUANTILES:
        value = float(np.quantile(times, quantile)) if len(times) else None
        yield Figure(name, metric_of(quantile), segment, len(times), value)
    known = side.answered & np.isfinite(side.score)
    if settings.scoring.classes is None:
        mean = float(side.score[known].mean()) if known.any() else None
        yield Figure(name, "score_mean", segment, int(known.sum()), mean)
    yield from _quality(settings, name, side, segment)


def _quality(settings: StepSettings, name: str, side: Side, segment: str | None) -> Iterator[Figure]:
    if not settings.has_labels:
        return
    for metric in QUALITY[settings.scoring.task]:
        if metric != "reward" or settings.reward is not None:
            yield _mean(settings, name, metric, side, segment)
    if settings.scoring.task == "classification":
        mask = side.labelled & side.answered & np.isfinite(side.score) & np.isfinite(side.rows["label"])
        yield Figure(name, "auc", segment, int(mask.sum()), auc(side.score[mask], side.rows["label"][mask] >= 0.5))


def _mean(settings: StepSettings, name: str, metric: str, side: Side, segment: str | None) -> Figure:
    found = clusters_of(settings.scoring, metric, side)
    if not found.events:
        return Figure(name, metric, segment, 0, None)
    error = float(np.sqrt(found.variance))
    return Figure(name, metric, segment, int(found.events), float(found.mean), error if np.isfinite(error) else None)


def auc(scores: Floats, positive: Mask) -> float | None:
    """The probability that a positive event has a higher score than a negative one; None without both."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))
