"""The events of each variant as columns, and what each metric counts of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.rows import Rows, buckets
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.maturity import matured
from millstream.pipeline.rollout_metrics import RARE

if TYPE_CHECKING:
    from millstream.consumers.evaluation.settings import Scoring, StepSettings
    from millstream.schemas.arrays import Floats, Ints, Mask

QUALITY: Final = {
    "classification": ("accuracy", "brier", "log_loss", "reward"),
    "multiclass": ("accuracy", "reward"),
    "regression": ("absolute_error", "squared_error", "reward"),
}
"""`comparison.task` -> the metrics of events with a label. The log loss is reported only: it has no bound."""
_LEAST_PROBABILITY: Final = 1e-15  # keeps the log loss of a certain and wrong answer finite


@dataclass(frozen=True, slots=True)
class Side:
    """A variant's events. All columns have the shape [events]."""

    rows: Rows
    bucket: Ints
    score: Floats
    ms: Floats
    failed: Mask
    nan: Mask
    labelled: Mask  # mature, and the label came in time
    mature: Mask  # predictions only

    def part(self, mask: Mask) -> Side:
        """These events only."""
        return Side(*(getattr(self, name)[mask] for name in self.__slots__))

    @property
    def answered(self) -> Mask:
        """Whether the variant itself answered."""
        found: Mask = ~self.failed & ~self.rows["dead"]
        return found


def sides_of(settings: StepSettings, rows: Rows, now: int) -> tuple[Side, ...]:
    """The events of each variant that count in comparisons: routed by their key's hash, and not of the future."""
    counts = rows["randomised"] & (rows["time"] <= now)
    if settings.paired:
        both = rows[counts]
        return _side(settings, both, now, ""), _side(settings, both, now, "other_")
    return tuple(
        _side(settings, rows[counts & (rows["variant"] == variant)], now, "")
        for variant in range(len(settings.variants))
    )


def _side(settings: StepSettings, rows: Rows, now: int, prefix: str) -> Side:
    sorted_ = matured(rows["time"], rows["labelled"], now, settings.maturity)
    return Side(
        rows,
        buckets(rows),
        rows[f"{prefix}score"],
        rows[f"{prefix}ms"],
        rows[f"{prefix}failed"],
        rows[f"{prefix}nan"],
        sorted_.labelled,
        sorted_.mature & ~rows["dead"],
    )


def values_of(scoring: Scoring, metric: str, side: Side) -> tuple[Mask, Floats]:
    """Which events a metric counts, and the value of each of these: [events that count]."""
    if metric in RARE:
        mask = side.answered if metric == "nan" else np.ones(len(side.rows), np.bool_)
        flags = {"errors": side.failed, "dead_letters": side.rows["dead"], "nan": side.nan}[metric]
        return mask, flags[mask].astype(np.float64)
    mask = side.labelled & side.answered
    if metric == "reward":
        mask &= np.isfinite(side.rows["reward"])
        return mask, side.rows["reward"][mask]
    mask &= np.isfinite(side.rows["label"]) & np.isfinite(side.score)
    return mask, quality_values(scoring, metric, side.score[mask], side.rows["label"][mask])


def quality_values(scoring: Scoring, metric: str, scores: Floats, labels: Floats) -> Floats:
    """What each event adds to a metric of quality: [events]."""
    found: Floats | Mask
    match metric:
        case "accuracy" if scoring.classes is not None:
            found = scores == labels
        case "accuracy":
            found = (scores >= scoring.threshold) == (labels >= 0.5)
        case "brier" | "squared_error":
            found = np.square(scores - labels)
        case "absolute_error":
            found = np.abs(scores - labels)
        case "log_loss":
            likely = np.clip(np.where(labels >= 0.5, scores, 1 - scores), _LEAST_PROBABILITY, 1)
            found = -np.log(likely)
        case _:
            raise ValueError(f"no metric {metric}")
    return np.asarray(found, np.float64)


def clusters_of(scoring: Scoring, metric: str, side: Side) -> Clusters:
    """A metric's events and sums by bucket of keys."""
    mask, values = values_of(scoring, metric, side)
    return Clusters.of(side.bucket[mask], values)


def labels_came(side: Side) -> Clusters:
    """The mature events; the value of one is 1 if its label came in time."""
    return Clusters.of(side.bucket[side.mature], side.labelled[side.mature].astype(np.float64))
