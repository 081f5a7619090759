"""Encodes predictions, and isolates one that breaks the encoder."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consumers.events import Rejection
from consumers.metrics import Metrics
from consumers.safety_net import ERRORS, SafetyNet, raise_expected
from inference.executors.interface import Tensors
from schemas.packed import Texts
from schemas.predictions import PredictionRows, UnsupportedOutputError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PredictionColumns:
    """What predictions are made of, one value an event; times in ms since the epoch."""

    ids: Texts
    event_times: Ints
    ingest_times: Ints
    prediction_times: Ints
    outputs: Tensors  # output name -> [events, ...]

    def take(self, rows: Ints) -> "PredictionColumns":
        """Copy those of these events."""
        outputs = {name: array[rows] for name, array in self.outputs.items()}
        times = self.event_times[rows], self.ingest_times[rows], self.prediction_times[rows]
        return PredictionColumns(self.ids.take(rows), *times, outputs)


class IsolatingEncoder:
    """Encodes predictions. One thread calls it."""

    def __init__(self, encoder: PredictionRows, metrics: Metrics) -> None:
        """Args:
        encoder: makes records of many predictions at once.
        metrics: where to count.
        """
        self._encoder = encoder
        self._net: SafetyNet[PredictionColumns] = SafetyNet("encode", metrics)

    def encode(self, columns: PredictionColumns) -> tuple[Sequence[bytes], dict[int, Rejection]]:
        """One value an event, but for those that break the encoder; and why, by their rows.

        Raises:
            BaseException: the encoder fails on good events too.
        """
        try:
            encoded = self._encode(columns)
        except ERRORS as error:
            raise_expected(error)
            return self._one_by_one(columns)
        self._net.passed(lambda: columns.take(np.zeros(1, np.int64)))
        return encoded, {}

    def _one_by_one(self, columns: PredictionColumns) -> tuple[Sequence[bytes], dict[int, Rejection]]:
        values: list[bytes] = []
        failed: dict[int, Rejection] = {}
        for row in range(len(columns.event_times)):
            one = columns.take(np.array([row]))
            try:
                values.append(self._encode(one)[0])
                self._net.passed(lambda one=one: one)  # type: ignore[misc]
            except ERRORS as error:
                rejection = self._net.rejection(error, self._encode)
                is_models = isinstance(error, UnsupportedOutputError)
                failed[row] = Rejection("model_rejected", str(error)) if is_models else rejection
        return values, failed

    def _encode(self, columns: PredictionColumns) -> Sequence[bytes]:
        times = columns.event_times, columns.ingest_times, columns.prediction_times
        return self._encoder.encode(columns.ids, *times, columns.outputs)
