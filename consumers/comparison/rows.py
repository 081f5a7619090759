"""Turns records into rows of the join: a comparison's scores and whether they agree, or a label's value."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from millstream.consumers.comparison.chunks import LABEL_ROW, Rows, comparison_row
from millstream.inference.class_answers import NO_CLASS, OTHER_CLASS, are_probabilities, compared_classes
from millstream.schemas.comparisons import compared_output
from millstream.schemas.decoding import open_decoder
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.ids import ids_of
from millstream.schemas.wording import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from millstream.consumers.comparison.outcomes import Outcomes
    from millstream.inference.class_answers import Classes
    from millstream.pipeline.comparison_sections import Comparison, Labels
    from millstream.schemas.comparisons import Comparisons
    from millstream.schemas.decoded import Decoded, Decoder
    from millstream.schemas.store import SchemaStore
    from millstream.schemas.table import Table

log = logging.getLogger(__name__)

_OFFSET_BITS = 48
_NO_VALUE = math.nan
_MAX_QUOTED = 150  # characters of a decoder's error
_MAX_LATENCY_MS = 1e9  # a latency of more than 11 days must be wrong, and counts as missing


def id_hash(event_id: str) -> int:
    """A 64-bit hash (BLAKE2b) of the event ID. The chance that any two of ten million IDs collide is 1 in 370,000."""
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Scoring:
    """Which of the models' outputs is the score, and when two results agree."""

    output: str | None
    item: int | None
    regression: bool
    threshold: float
    tolerance: float
    classes: Classes | None  # those of the models, if they are compared

    @classmethod
    def of(cls, section: Comparison, classes: Classes | None = None) -> Scoring:
        """The scoring that the pipeline file gives."""
        regression = section.task == "regression"
        return cls(section.output, section.item, regression, section.threshold, section.tolerance, classes)

    def rows(self, comparisons: Comparisons, offsets: npt.NDArray[np.int64]) -> Rows:
        """The rows of the join (`comparison_row`); `offsets` are the records' offsets in the comparison topic."""
        rows = np.zeros(len(comparisons.ids), comparison_row(self.classes))
        rows["id"] = [id_hash(event_id) for event_id in comparisons.ids]
        rows["position"] = offsets[comparisons.rows]
        rows["event_time"] = comparisons.event_times
        rows["pair"] = comparisons.pair
        for name, latencies in (("primary_ms", comparisons.primary_ms), ("shadow_ms", comparisons.shadow_ms)):
            rows[name] = np.where((latencies >= 0) & (latencies <= _MAX_LATENCY_MS), latencies, _NO_VALUE)
        rows["failed"] = [outputs is None for outputs in comparisons.shadow]
        pairs = list(zip(comparisons.primary, comparisons.shadow, strict=True))
        if self.classes is not None:
            _fill_classes(rows, self.classes, self.output, pairs)
        elif pairs:
            rows["primary"], rows["shadow"], rows["agreed"] = zip(
                *(self._answers(*each) for each in pairs), strict=True
            )
        return rows

    def _answers(self, primary: dict[str, Any], shadow: dict[str, Any] | None) -> tuple[float, float, int]:
        """Both scores, and whether they agree."""
        name = compared_output(self.output, primary, primary if shadow is None else shadow, item=self.item) or ""
        first = primary.get(name)
        if shadow is None:
            return self._score(first), _NO_VALUE, -1
        second = shadow.get(name)
        scores = self._score(first), self._score(second)
        if first is None or second is None:
            return *scores, -1
        if not any(map(math.isnan, scores)):
            return *scores, int(self._agree(*scores))
        if isinstance(first, list) and isinstance(second, list):
            first, second = _largest(first), _largest(second)
        return *scores, int(first == second)

    def _score(self, value: Any) -> float:
        if isinstance(value, list) and self.item is not None:
            value = value[self.item] if self.item < len(value) else None
        score = float(value) if isinstance(value, bool | int | float) else _NO_VALUE
        return score if math.isfinite(score) else _NO_VALUE

    def _agree(self, first: float, second: float) -> bool:
        if self.regression:
            return abs(first - second) <= self.tolerance
        return (first >= self.threshold) == (second >= self.threshold)


def _fill_classes(
    rows: Rows, classes: Classes, output: str | None, answers: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
) -> None:
    """Fill in what both models predicted. The score is the largest probability."""
    kept = classes.probabilities
    for row, (primary, shadow) in zip(rows, answers, strict=True):
        name = compared_classes(classes, output, primary, primary if shadow is None else shadow) or ""
        for side, outputs in (("primary", primary), ("shadow", shadow or {})):
            row[f"{side}_class"], probabilities = class_answer(classes, name, outputs)
            row[f"{side}_probabilities"] = probabilities if kept else _NO_VALUE
            row[side] = probabilities.max()
    comparable = (rows["primary_class"] != NO_CLASS) & (rows["shadow_class"] != NO_CLASS)
    equal = (rows["primary_class"] == rows["shadow_class"]) & (rows["primary_class"] != OTHER_CLASS)
    rows["agreed"] = np.where(comparable, equal, -1)


def class_answer(classes: Classes, name: str, outputs: Mapping[str, Any]) -> tuple[int, npt.NDArray[np.float64]]:
    """What `Classes.read` returns, with the probability of each class in place of its score, or one NaN: not known."""
    place, scores = classes.read(name, outputs)
    known = scores is not None and are_probabilities(scores)
    return place, np.clip(np.array(scores if known else [_NO_VALUE]), 0, 1)


def _largest(values: list[Any]) -> Any:
    """The index of the largest number; the values themselves if they aren't all numbers."""
    numbers = all(isinstance(value, bool | int | float) for value in values)
    return max(range(len(values)), key=values.__getitem__) if values and numbers else values


class BadLabels(NamedTuple):
    """Records that aren't labels."""

    number: int
    example: str  # where the first one is, what was expected there and what was found; empty: there is none


class LabelReader:
    """Reads labels' records."""

    def __init__(self, section: Labels, store: SchemaStore, outcomes: Outcomes) -> None:
        """Raises SchemaError: the schema is missing, or lacks a field that the pipeline file names."""
        self._section = section
        self._outcomes = outcomes
        reader = None if section.schema_name is None else store.by_name(section.schema_name)
        types = {section.event_id: "scalar", section.value: outcomes.json_type}
        self._decoder: Decoder = open_decoder(section.format, store, reader, types)

    def rows(
        self, values: Sequence[bytes | None], partitions: Sequence[int], offsets: Sequence[int]
    ) -> tuple[list[str], Rows, BadLabels]:
        """The event IDs, the rows of the join (LABEL_ROW), and the records that aren't labels. Raises SchemaUnavailable.

        If records make the decoder raise, only they are left out. The other records of the fetch count.
        """
        try:
            return self._rows(values, partitions, offsets)
        except SchemaUnavailable:
            raise
        except Exception as error:
            if len(values) == 1:
                log.error(
                    "the label at offset %d of partition %d breaks the decoder: %r", offsets[0], partitions[0], error
                )
                broken = self._example(
                    partitions[0], offsets[0], f"a record that breaks the decoder ({error!r:.{_MAX_QUOTED}})"
                )
                return [], np.zeros(0, LABEL_ROW), BadLabels(1, broken)
            middle = len(values) // 2
            ids, rows, bad = self.rows(values[:middle], partitions[:middle], offsets[:middle])
            more = self.rows(values[middle:], partitions[middle:], offsets[middle:])
            both = BadLabels(bad.number + more[2].number, bad.example or more[2].example)
            return ids + more[0], np.concatenate([rows, more[1]]), both

    def _rows(
        self, values: Sequence[bytes | None], partitions: Sequence[int], offsets: Sequence[int]
    ) -> tuple[list[str], Rows, BadLabels]:
        decoded = self._decoder.decode([value or b"" for value in values])
        table = decoded.table
        ids, numbers = table[self._section.event_id], self._outcomes.numbers_of(table[self._section.value])
        is_good = self._outcomes.are_possible(numbers)
        if ids.valid is not None:
            is_good &= ids.valid
        good = np.flatnonzero(is_good)
        event_ids, places = list(ids_of(ids.take(good))), decoded.rows[good]
        rows = np.zeros(len(good), LABEL_ROW)
        rows["id"] = [id_hash(event_id) for event_id in event_ids]
        rows["position"] = (np.array(partitions, np.int64)[places] << _OFFSET_BITS) | np.array(offsets, np.int64)[
            places
        ]
        rows["value"] = numbers[good]
        return event_ids, rows, self._bad(decoded, is_good, partitions, offsets)

    def _bad(
        self, decoded: Decoded, is_good: npt.NDArray[np.bool_], partitions: Sequence[int], offsets: Sequence[int]
    ) -> BadLabels:
        """The records that aren't labels. `is_good`: which of the decoded ones are."""
        found = [(bad.row, f"a record that can't be read ({bad.error:.{_MAX_QUOTED}})") for bad in decoded.bad[:1]]
        others = np.flatnonzero(~is_good)
        if len(others):
            found.append((int(decoded.rows[others[0]]), self._found(decoded.table.take(others[:1]))))
        if not found:
            return BadLabels(0, "")
        row, what = min(found)
        return BadLabels(len(decoded.bad) + len(others), self._example(partitions[row], offsets[row], what))

    def _found(self, table: Table) -> str:
        """What is wrong in the only record of a table."""
        for field, of in ((self._section.event_id, "event ID"), (self._section.value, "label")):
            [value] = table[field].to_list()
            if value is None:
                return f"no {of} at `{field}`"
        return f"{shown(value)} at `{self._section.value}`"

    def _example(self, partition: int, offset: int, found: str) -> str:
        """Where a record that is no label is, what was expected and found, and how to see it."""
        section = self._section
        return (
            f"offset {offset} of {section.topic}/{partition}: expected an event ID at `{section.event_id}` and "
            f"{self._outcomes.expected} at `{section.value}`, found {found}. "
            f"`millstream tail PIPELINE --topic {section.topic} --from-beginning` prints labels"
        )
