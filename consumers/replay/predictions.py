"""Reads predictions and labels of a range of time, as rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.comparison.outcomes import Outcomes
from millstream.consumers.comparison.rows import LabelReader
from millstream.consumers.replay.row_sink import hashes
from millstream.schemas.datums import Datums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.consumers.records import Records
    from millstream.consumers.replay.answered_ids import AnsweredIds
    from millstream.consumers.replay.answers import Answering, Rows
    from millstream.consumers.replay.routing_check import RoutingCheck
    from millstream.inference.class_answers import Classes
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

_MOST_TIME: Final = 2**62  # ms; the difference of two times fits into 64 bits
MOST_NAMES: Final = 1000  # models, or values of a segment, that are told apart
OTHER: Final = "(other)"
NO_VALUE: Final = "(none)"


@dataclass(slots=True)
class Names:
    """Numbers for names, in the order in which they come. Beyond `MOST_NAMES`, all have the same number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The name's number."""
        if name not in self.numbers and len(self.numbers) >= MOST_NAMES:
            name = OTHER
        return self.numbers.setdefault(name, len(self.numbers))

    def __iter__(self) -> Iterator[str]:
        """All names, by their numbers."""
        return iter(self.numbers)


class PredictionDecoder:
    """Decodes predictions of one pipeline, in Avro or JSON."""

    def __init__(self, store: SchemaStore, pipeline: str) -> None:
        self._datums = Datums(store)
        self._pipeline = pipeline
        self.others = 0  # records that are no prediction of this pipeline

    def decode(self, values: Sequence[bytes | None]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The row of each value that is a prediction of this pipeline, and the prediction. Raises SchemaUnavailable."""
        for row, found in enumerate(self._datums.read(values)):
            if found is None or found.get("pipeline") != self._pipeline or not _is_prediction(found):
                self.others += 1
            else:
                yield row, found


_NEEDED: Final = {"event_id", "event_time", "model", "version", "ingest_time", "prediction_time", "outputs"}
_TIMES: Final = ("event_time", "ingest_time", "prediction_time")


def _is_prediction(found: Mapping[str, Any]) -> bool:
    """Whether it has what rows need. JSON may hold anything."""
    return (
        found.keys() >= _NEEDED
        and isinstance(found["outputs"], dict)
        and all(isinstance(found[name], int) and abs(found[name]) < _MOST_TIME for name in _TIMES)
    )


@dataclass(slots=True)
class PredictedRows:
    """Turns predictions into rows."""

    decoder: PredictionDecoder
    answering: Answering
    segment: str | None = None  # the field of the event, which predictions include, by which segments are told apart
    models: Names = field(default_factory=Names)
    segments: Names = field(default_factory=Names)
    routing: RoutingCheck | None = None  # checks the routing of predictions; None: it isn't checked
    answered: AnsweredIds | None = None  # events whose routing is checked; None: of all predictions

    def rows(self, records: Records) -> Rows:
        """The rows of the records that are predictions of the pipeline. Raises SchemaUnavailable."""
        placed = list(self.decoder.decode(records.values))
        found = [prediction for _, prediction in placed]
        rows = np.zeros(len(found), self.answering.row_type)
        if not found:
            return rows
        rows["id"] = hashes([str(each["event_id"]) for each in found])
        if self.routing is not None:
            checked = [True] * len(placed) if self.answered is None else self.answered.has(rows["id"]).tolist()
            self.routing.add((records.keys[row], own) for (row, own), yes in zip(placed, checked, strict=True) if yes)
        rows["time"] = [each["event_time"] for each in found]
        rows["ms"] = [each["prediction_time"] - each["ingest_time"] for each in found]
        rows["model"] = [self.models.number(f"{each['model']} version {each['version']}") for each in found]
        if self.segment is not None:
            rows["segment"] = [self.segments.number(_segment(each, self.segment)) for each in found]
        self.answering.fill_from(rows, [_finite(each["outputs"]) for each in found])
        return rows


def _segment(prediction: Mapping[str, Any], name: str) -> str:
    event = prediction.get("event")
    value = event.get(name) if isinstance(event, dict) else None
    return NO_VALUE if value is None else str(value)[:100]


_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _finite(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs with numbers in place of the texts that JSON has for NaN and infinity."""
    if not any(value in _NOT_FINITE for value in outputs.values() if isinstance(value, str)):
        return outputs
    return {name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for name, value in outputs.items()}


class LabelRows:
    """Turns labels into rows (`LABEL_ROW`)."""

    def __init__(self, pipeline: Pipeline, store: SchemaStore, classes: Classes | None) -> None:
        """Raises SchemaError: the schema is missing, or lacks a field that the pipeline file names."""
        assert pipeline.labels is not None
        self._reader = LabelReader(pipeline.labels, store, Outcomes(pipeline.comparison.task, classes))
        self.bad = 0  # records that are no label

    def rows(self, records: Records) -> Rows:
        """The rows of the records that are labels. Raises SchemaUnavailable."""
        numbers = [number for _, number in records.partitions]
        partitions = [numbers[place] for place in records.places.tolist()]
        _, rows, bad = self._reader.rows(list(records.values), partitions, records.offsets.tolist())
        self.bad += bad.number
        return rows
