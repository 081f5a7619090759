"""Joins rows of two models and of labels by event ID, and sums them up by window, model and segment. Pure, but for the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.replay.answers import NO_ANSWER, agreement
from millstream.consumers.replay.buckets import places_of
from millstream.inference.class_answers import NO_CLASS
from millstream.inference.class_evaluation import Answers, summarise_classes
from millstream.inference.evaluation import Columns, Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.consumers.replay.answers import Rows
    from millstream.consumers.replay.buckets import Buckets
    from millstream.pipeline.comparison_sections import Comparison
    from millstream.schemas.arrays import Floats, Ints, Mask

PRIMARY, OTHER, LABELS = "primary", "other", "labels"
"""The kinds of rows."""
MOST_WINDOWS: Final = 60


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of equal length in event time. Times outside are in the first or the last one."""

    start: int  # ms since the epoch
    width: int  # ms
    count: int

    @classmethod
    def of(cls, times: Ints, width: int) -> Windows:
        """Windows for nearly all of these times, at most `MOST_WINDOWS`, as long as `width` or a multiple of it."""
        if not len(times):
            return cls(0, width, 1)
        low, high = (int(each) for each in np.quantile(times, [0.001, 0.999]))
        width *= max(1, -(-(high - low + 1) // (width * (MOST_WINDOWS - 1))))
        start = low // width * width
        return cls(start, width, (high - start) // width + 1)

    def places(self, times: Ints) -> Ints:
        """The number of each time's window."""
        found: Ints = np.clip((times - self.start) // self.width, 0, self.count - 1)
        return found


@dataclass(slots=True)
class Evaluated:
    """What comes of two models' answers to the same events. Each event counts once."""

    windows: dict[int, Summary] = field(default_factory=dict)  # by their start, ms since the epoch
    models: dict[int, Summary] = field(default_factory=dict)  # by the number of the primary's model
    segments: dict[int, Summary] = field(default_factory=dict)  # by the number of the segment
    answered: int = 0  # events that the other model answered
    repeated: int = 0  # further answers of the other model to the same events
    missing: int = 0  # of the answered ones, those without a prediction of the primary
    labels: int = 0  # labels that were read
    bad_labels: int = 0  # records of the labels' topic that are no label; whoever reads them counts them
    width: int = 0  # of a window, ms

    @property
    def whole(self) -> Summary:
        """All windows together."""
        return reduce(add, self.windows.values(), Summary())


def evaluate(
    section: Comparison, buckets: Buckets, windows: Windows, *, models: bool = False, segments: bool = False
) -> Evaluated:
    """Join the rows in the buckets, and sum them up.

    Args:
        section: says what the models predict.
        buckets: the rows of both models and the labels.
        windows: by which they are summed up.
        models: whether they are also summed up by the primary's model.
        segments: whether they are also summed up by segment.
    """
    by = [name for name, wanted in (("model", models), ("segment", segments)) if wanted]
    found = Evaluated(width=windows.width)
    for bucket in range(buckets.count):
        other, further = buckets.firsts(OTHER, bucket)
        primary, _ = buckets.firsts(PRIMARY, bucket)
        labels, _ = buckets.firsts(LABELS, bucket)
        found.answered += len(other)
        found.repeated += further
        found.labels += len(labels)
        places, there = places_of(other["id"], primary["id"])
        found.missing += int((~there).sum())
        if there.any():
            _add(section, found, (primary[places[there]], other[there]), labels, windows, by)
    found.windows = dict(sorted(found.windows.items()))
    return found


def _add(
    section: Comparison, found: Evaluated, rows: tuple[Rows, Rows], labels: Rows, windows: Windows, by: Sequence[str]
) -> None:
    """Add the events of these rows, primary's and other's, one of each per event."""
    primary, other = rows
    places, there = places_of(primary["id"], labels["id"])
    values = np.where(there, labels["value"][places], np.nan) if len(labels) else np.full(len(primary), np.nan)
    starts = windows.start + windows.width * windows.places(primary["time"])
    others = {"model": found.models, "segment": found.segments}
    for sums, keys in ((found.windows, starts), *((others[name], primary[name]) for name in by)):
        for key in np.unique(keys).tolist():
            part = _summary(section, primary, other, values, keys == key)
            sums[key] = sums[key] + part if key in sums else part


def _summary(section: Comparison, primary: Rows, other: Rows, labels: Floats, chosen: Mask) -> Summary:
    first, second = primary[chosen], other[chosen]
    columns = Columns(
        primary=first["score"],
        shadow=second["score"],
        agreed=agreement(section, first, second),
        failed=np.zeros(len(first), np.bool_),
        primary_ms=first["ms"].astype(np.float64),
        shadow_ms=second["ms"].astype(np.float64),
        labels=labels[chosen],
    )
    if section.task != "multiclass":
        return summarise(columns, section.threshold)
    return summarise_classes(columns, *(_answers(each) for each in (first, second)))


def _answers(rows: Rows) -> Answers:
    kept = rows.dtype.names is not None and "probabilities" in rows.dtype.names
    probabilities = rows["probabilities"] if kept else np.zeros((len(rows), 0), np.float32)
    return Answers(np.where(rows["answer"] == NO_ANSWER, NO_CLASS, rows["answer"]).astype(np.int32), probabilities)


def sampled(parts: Iterable[Rows], every: int = 100) -> Ints:
    """The times of some of the events."""
    times: Sequence[Ints] = [part["time"][::every] for part in parts]
    return np.concatenate(times) if times else np.zeros(0, np.int64)
