"""Turns records into rows of the join: a comparison's scores and whether they agree, or a label's value."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.comparison.chunks import COMPARISON_ROW, LABEL_ROW, Rows
from millstream.schemas.column import NumberColumn
from millstream.schemas.comparisons import compared_output
from millstream.schemas.decoding import open_decoder
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.ids import ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from millstream.pipeline.comparison_sections import Comparison, Labels
    from millstream.schemas.column import Column
    from millstream.schemas.comparisons import Comparisons
    from millstream.schemas.decoded import Decoder
    from millstream.schemas.store import SchemaStore

log = logging.getLogger(__name__)

_OFFSET_BITS = 48
_NO_VALUE = math.nan
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

    @classmethod
    def of(cls, section: Comparison) -> Scoring:
        """The scoring that the pipeline file gives."""
        regression = section.task == "regression"
        return cls(section.output, section.item, regression, section.threshold, section.tolerance)

    def rows(self, comparisons: Comparisons, offsets: npt.NDArray[np.int64]) -> Rows:
        """The rows of the join (COMPARISON_ROW); `offsets` are the records' offsets in the comparison topic."""
        rows = np.zeros(len(comparisons.ids), COMPARISON_ROW)
        answers = [self._answers(*outputs) for outputs in zip(comparisons.primary, comparisons.shadow, strict=True)]
        rows["id"] = [id_hash(event_id) for event_id in comparisons.ids]
        rows["position"] = offsets[comparisons.rows]
        rows["event_time"] = comparisons.event_times
        rows["pair"] = comparisons.pair
        for name, latencies in (("primary_ms", comparisons.primary_ms), ("shadow_ms", comparisons.shadow_ms)):
            rows[name] = np.where((latencies >= 0) & (latencies <= _MAX_LATENCY_MS), latencies, _NO_VALUE)
        rows["failed"] = [outputs is None for outputs in comparisons.shadow]
        if answers:
            rows["primary"], rows["shadow"], rows["agreed"] = zip(*answers, strict=True)
        return rows

    def _answers(self, primary: dict[str, Any], shadow: dict[str, Any] | None) -> tuple[float, float, int]:
        """Both scores, and whether they agree."""
        name = compared_output(self.output, primary, primary if shadow is None else shadow) or ""
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


def _largest(values: list[Any]) -> Any:
    """The index of the largest number; the values themselves if they aren't all numbers."""
    numbers = all(isinstance(value, bool | int | float) for value in values)
    return max(range(len(values)), key=values.__getitem__) if values and numbers else values


def are_labels(values: npt.NDArray[np.float64], *, regression: bool) -> npt.NDArray[np.bool_]:
    """Which values are valid labels: any finite number in a regression, else 0 and 1."""
    return np.isfinite(values) if regression else (values == 0) | (values == 1)


class LabelReader:
    """Reads labels' records."""

    def __init__(self, section: Labels, store: SchemaStore, *, regression: bool) -> None:
        """Raises SchemaError: the schema is missing, or lacks a field that the pipeline file names."""
        self._section = section
        self._regression = regression
        reader = None if section.schema_name is None else store.by_name(section.schema_name)
        types = {section.event_id: "scalar", section.value: "number"}
        self._decoder: Decoder = open_decoder(section.format, store, reader, types)

    def rows(
        self, values: Sequence[bytes | None], partitions: Sequence[int], offsets: Sequence[int]
    ) -> tuple[list[str], Rows, int]:
        """The event IDs, the rows of the join (LABEL_ROW), and how many records aren't labels. Raises SchemaUnavailable.

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
                return [], np.zeros(0, LABEL_ROW), 1
            middle = len(values) // 2
            ids, rows, bad = self.rows(values[:middle], partitions[:middle], offsets[:middle])
            more = self.rows(values[middle:], partitions[middle:], offsets[middle:])
            return ids + more[0], np.concatenate([rows, more[1]]), bad + more[2]

    def _rows(
        self, values: Sequence[bytes | None], partitions: Sequence[int], offsets: Sequence[int]
    ) -> tuple[list[str], Rows, int]:
        decoded = self._decoder.decode([value or b"" for value in values])
        table = decoded.table
        ids, numbers = table[self._section.event_id], _numbers_of(table[self._section.value])
        is_good = are_labels(numbers, regression=self._regression)
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
        return event_ids, rows, len(values) - len(good)


def _numbers_of(column: Column) -> npt.NDArray[np.float64]:
    """The values as numbers; NaN for a null, and for a value that isn't a number."""
    if isinstance(column, NumberColumn):
        numbers = column.values.astype(np.float64)
        return numbers if column.valid is None else np.where(column.valid, numbers, _NO_VALUE)
    return np.array([_number_of(value) for value in column.to_list()], np.float64)


def _number_of(value: object) -> float:
    try:
        return float(value) if isinstance(value, str) else _NO_VALUE
    except ValueError:
        return _NO_VALUE
