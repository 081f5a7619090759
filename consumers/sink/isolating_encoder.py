"""Encodes predictions, and isolates events that make the encoder raise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.consumers.events import Rejection
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.safety_net import SafetyNet, raise_expected
from millstream.inference.executors.interface import Tensors
from millstream.schemas.arrays import Ints
from millstream.schemas.packed import Texts
from millstream.schemas.predictions import PredictionRows, UnsupportedOutputError
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table


@dataclass(frozen=True, slots=True)
class PredictionColumns:
    """The fields of predictions, with one value per event; times in ms since the epoch."""

    ids: Texts
    event_times: Ints
    ingest_times: Ints
    prediction_times: Ints
    outputs: Tensors  # output name -> [events, ...]
    models: RowModels
    event: Table | None = None  # the fields that predictions include; None: they include none

    def rows(self, start: int, stop: int) -> "PredictionColumns":
        """Copy a range of events."""
        rows = np.arange(start, stop)
        outputs = {name: array[rows] for name, array in self.outputs.items()}
        times = self.event_times[rows], self.ingest_times[rows], self.prediction_times[rows]
        event = None if self.event is None else self.event.take(rows)
        return PredictionColumns(Texts.of(list(self.ids[start:stop])), *times, outputs, self.models.take(rows), event)


class IsolatingEncoder:
    """Encodes predictions. One thread calls it."""

    def __init__(self, encoder: PredictionRows, metrics: Metrics) -> None:
        """Args:
        encoder: encodes many predictions at once.
        metrics: where to count.
        """
        self._encoder = encoder
        self._net: SafetyNet[PredictionColumns] = SafetyNet("encode", metrics)

    def encode(self, columns: PredictionColumns) -> tuple[Sequence[bytes], dict[int, Rejection]]:
        """Encode predictions. Returns the values, and the rejections of events that make the encoder raise, by row.

        Raises:
            Exception: the encoder raises on good events too.
        """
        values: list[bytes] = []
        failed: dict[int, Rejection] = {}
        waiting = [(0, len(columns.event_times))]
        while waiting:
            start, stop = waiting.pop()
            part = columns if not failed and stop - start == len(columns.event_times) else columns.rows(start, stop)
            try:
                encoded = self._encode(part)
            except Exception as error:
                raise_expected(error)
                if stop - start == 1:
                    failed[start] = self._rejection(error)._replace(model=columns.models.letter_model(start))
                    continue
                if not isinstance(error, UnsupportedOutputError):
                    self._net.note(error)
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
                continue
            self._net.passed(lambda part=part: part.rows(0, 1))  # type: ignore[misc]
            if part is columns:
                return encoded, {}
            values += encoded
        return values, failed

    def _rejection(self, error: Exception) -> Rejection:
        """The rejection of an event that makes the encoder raise when it is encoded alone."""
        if isinstance(error, UnsupportedOutputError):  # the model's fault, if others can be encoded
            self._net.blame(error, self._encode)
            return Rejection("model_rejected", str(error))
        return self._net.rejection(error, self._encode)

    def _encode(self, columns: PredictionColumns) -> Sequence[bytes]:
        times = columns.event_times, columns.ingest_times, columns.prediction_times
        return self._encoder.encode(columns.ids, *times, columns.outputs, columns.event, models=columns.models)
