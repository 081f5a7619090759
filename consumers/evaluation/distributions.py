"""How far the candidate's scores are from the baseline's, and the events' fields from those before the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.rows import buckets
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.drift import Drift, binned, drift, edges_of
from millstream.consumers.rollout.judging import Levels
from millstream.consumers.rollout.verdicts import SCORE_DRIFT, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.evaluation.rows import Rows
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.schemas.arrays import Floats, Ints

_FIRST: Final = 1000  # scores of the baseline that fix the bins
_LEAST: Final = 100  # values of each distribution, from which an estimate is trusted


@dataclass(frozen=True, slots=True)
class Reference:
    """The fields of events before the step."""

    values: Floats  # [events, fields]


def score_drift(baseline: Side, candidate: Side, level: float) -> Drift | None:
    """None while there are too few scores.

    Args:
        baseline: its first scores fix the bins.
        candidate: is compared with it.
        level: of the lower bounds.
    """
    scores = [side.score[side.answered & np.isfinite(side.score)] for side in (baseline, candidate)]
    if min(map(len, scores)) < _LEAST:
        return None
    known = baseline.answered & np.isfinite(baseline.score)
    order = np.argsort(baseline.rows["time"][known], kind="stable")
    edges = edges_of(scores[0][order[:_FIRST]])
    if not len(edges):
        return None
    effect = _design_effect(baseline.bucket[known], scores[0], edges)
    return drift(binned(scores[0], edges), binned(scores[1], edges), level, effect)


def score_verdict(settings: StepSettings, baseline: Side, candidate: Side, levels: Levels) -> Verdict | None:
    """Breached if the index is shown to be too large. It passes by the estimate: an index has no upper bound."""
    most = settings.score_drift
    if most is None:
        return None
    found = score_drift(baseline, candidate, levels.rollback)
    if found is None:
        return Verdict(SCORE_DRIFT, "undecided")
    outcome: Outcome = "breach" if found.psi_at_least > most else "pass" if found.psi <= most else "undecided"
    return Verdict(SCORE_DRIFT, outcome, -float(found.psi), -np.inf, -float(found.psi_at_least), limit=-most)


def input_drifts(settings: StepSettings, reference: Reference | None, rows: Rows) -> Iterator[tuple[str, Drift]]:
    """The drift of each watched field since the time before the step; without fields that have too few values."""
    if reference is None:
        return
    for place, name in enumerate(settings.fields):
        before, after = reference.values[:, place], rows["fields"][:, place]
        if min(np.isfinite(before).sum(), np.isfinite(after).sum()) < _LEAST:
            continue
        edges = edges_of(before)
        known = np.isfinite(after)
        effect = _design_effect(buckets(rows)[known], after[known], edges)
        yield name, drift(binned(before, edges), binned(after, edges), settings.level / len(settings.fields), effect)


def _design_effect(bucket: Ints, values: Floats, edges: Floats) -> float:
    """How many events count as one, because those of a key are alike: by whether they are above the middle of the bins.

    Args:
        bucket: of each event's key.
        values: of each event; finite.
        edges: of the bins.
    """
    above = Clusters.of(bucket, (values > edges[len(edges) // 2]).astype(np.float64))
    effect = float(above.design_effect())
    return effect if np.isfinite(effect) else 1.0
