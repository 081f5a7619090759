"""Matches a window's comparisons with their labels. Each comparison and each label counts once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.consumers.comparison.chunks import COMPARISON_ROW, LABEL_ROW, Chunk, Rows
from millstream.inference.class_evaluation import Answers, summarise_classes
from millstream.inference.evaluation import Columns, Summary, summarise
from millstream.schemas.arrays import Ints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.schemas.comparisons import Pair


@dataclass(frozen=True, slots=True)
class Labels:
    """Each event's first label: one entry per event, ascending by ID."""

    ids: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float64]
    numbers: Ints  # number of the label's chunk
    closed: Ints  # `Chunk.closed` of this chunk: it shows which windows were closed when the label was read
    repeats: Ints  # number of further labels of the event

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Labels:
        """The labels in these chunks."""
        rows, numbers = _joined(chunks, [chunk.rows for chunk in chunks], LABEL_ROW)
        closed = np.repeat([chunk.closed for chunk in chunks], [len(chunk.rows) for chunk in chunks]).astype(np.int64)
        order, firsts, repeats = _each_once(rows, numbers, rows["id"])
        rows, chosen = rows[order][firsts], order[firsts]
        return cls(rows["id"], rows["value"], numbers[chosen], closed[chosen], repeats)

    def match(self, ids: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Which of the IDs have a label, and the index of each one's label (0 if it has none)."""
        if not len(self.ids):
            return np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.int64)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return self.ids[places] == ids, places


@dataclass(frozen=True, slots=True)
class Window:
    """A window's comparisons: one entry per event and pair."""

    rows: Rows
    numbers: Ints  # number of each comparison's chunk
    repeats: Ints  # number of further comparisons of the same event and pair
    pairs: list[Pair]
    pair: Ints  # each row's index in `pairs`

    @classmethod
    def of(cls, chunks: Sequence[Chunk], inside: Sequence[npt.NDArray[np.bool_]]) -> Window:
        """The rows of these chunks that are inside the window."""
        places: dict[Pair, int] = {}
        parts, pair = [], []
        for chunk, mask in zip(chunks, inside, strict=True):
            part = chunk.rows[mask]
            ours = np.array([places.setdefault(each, len(places)) for each in chunk.pairs], np.int64)
            parts.append(part)
            pair.append(ours[part["pair"]] if len(part) else np.empty(0, np.int64))
        rows, numbers = _joined(chunks, parts, COMPARISON_ROW)
        of_pair = np.concatenate(pair) if pair else np.empty(0, np.int64)
        order, firsts, repeats = _each_once(rows, numbers, rows["id"], of_pair)
        return cls(rows[order][firsts], numbers[order][firsts], repeats, list(places), of_pair[order][firsts])

    def summaries(self, labels: Labels, close: int, threshold: float) -> Iterator[tuple[Pair, Summary, dict[str, int]]]:
        """For each pair: its summary, and the counts of duplicates and of early, late and repeated labels.

        Args:
            labels: the labels of all events.
            close: when the window closes, ms since the epoch. A label that was read after that is late.
            threshold: scores from this one on are positive.
        """
        has_label, places = labels.match(self.rows["id"])
        if not len(labels.ids):
            late = early = has_label
            values = np.full(len(self.rows), np.nan)
            repeated = np.zeros(len(self.rows), np.int64)
        else:
            late = has_label & (labels.closed[places] >= close)
            early = has_label & ~late & (labels.numbers[places] < self.numbers)
            values = np.where(has_label & ~late, labels.values[places], np.nan)
            repeated = np.where(has_label, labels.repeats[places], 0)
        for place, pair in enumerate(self.pairs):
            mine = self.pair == place
            if not mine.any():
                continue
            counts = {
                "duplicates": int(self.repeats[mine].sum()),
                "early_labels": int(early[mine].sum()),
                "late_labels": int(late[mine].sum()),
                "repeated_labels": int(repeated[mine].sum()),
            }
            yield pair, _summary(self.rows[mine], values[mine], threshold), counts


def _summary(rows: Rows, labels: npt.NDArray[np.float64], threshold: float) -> Summary:
    columns = _columns(rows, labels)
    if rows.dtype == COMPARISON_ROW:
        return summarise(columns, threshold)
    answers = [Answers(rows[f"{side}_class"], rows[f"{side}_probabilities"]) for side in ("primary", "shadow")]
    return summarise_classes(columns, *answers)


def _columns(rows: Rows, labels: npt.NDArray[np.float64]) -> Columns:
    return Columns(
        primary=rows["primary"],
        shadow=rows["shadow"],
        agreed=rows["agreed"],
        failed=rows["failed"],
        primary_ms=rows["primary_ms"].astype(np.float64),
        shadow_ms=rows["shadow_ms"].astype(np.float64),
        labels=labels,
    )


def _joined(chunks: Sequence[Chunk], parts: Sequence[Rows], dtype: np.dtype[np.void]) -> tuple[Rows, Ints]:
    """The rows of all parts, and the number of each row's chunk."""
    rows = np.concatenate(parts) if parts else np.empty(0, dtype)
    return rows, np.repeat([chunk.number for chunk in chunks], [len(part) for part in parts]).astype(np.int64)


def _each_once(rows: Rows, numbers: Ints, *same: npt.NDArray[np.generic]) -> tuple[Ints, Ints, Ints]:
    """Group the rows that have equal values in the `same` columns. Within a group, order them as they came.

    Positions don't say this order: labels of an event may stand in several partitions of their topic.

    Returns:
        the order of the rows; where each group starts in this order; and how many further positions each group has.
    """
    order = np.lexsort((rows["position"], numbers, *same)).astype(np.int64)
    new = _starts(order, same)
    firsts = np.flatnonzero(new)
    if len(firsts) == len(order):  # as usual
        return order, firsts, np.zeros(len(order), np.int64)
    by_position = np.lexsort((rows["position"], *same))
    position = rows["position"][by_position]
    # A row that was read again has the same position, so it isn't counted.
    further = np.zeros(len(order), np.int64)
    further[1:] = ~new[1:] & (position[1:] != position[:-1])
    return order, firsts, np.add.reduceat(further, firsts)


def _starts(order: Ints, same: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.bool_]:
    """Where each group starts in this order."""
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in same:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return new
