"""The data path without Kafka: recorded bytes -> decode -> batch -> executor -> encode, its stages overlapping as in a worker."""

from __future__ import annotations

import threading
import time
from queue import Queue
from typing import TYPE_CHECKING

import numpy as np

from consumers.batcher import Batcher, Limits
from consumers.decoder import BlockDecoder, EventFields
from consumers.events import MicroBatch, Polled
from consumers.records import Records
from schemas.avro import AvroDecoder
from schemas.directory import DirectoryStore
from schemas.packed import Packed
from schemas.predictions import PredictionEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from inference.executors.interface import ModelExecutor, Tensors
    from inference.signature import Signature

POLL = 4096  # records decoded at once, as the worker's
AHEAD = 4  # batches that wait before a stage


class DataPath:
    """Decodes and batches in one thread, runs the model in a second, encodes in the caller's."""

    def __init__(
        self, schemas: Path, schema: str, signature: Signature, executor: ModelExecutor, max_events: int
    ) -> None:
        store = DirectoryStore(schemas)
        decoder = AvroDecoder(store, store.by_name(schema), [*signature.fields, "id", "event_time"])
        self._decoder = BlockDecoder(decoder, EventFields("id", "event_time", 1), signature, allow_nan=False)
        self._limits = Limits(max_events, 1 << 40, 3600)
        self._executor = executor
        self._encoder = PredictionEncoder(1_000_001, pipeline="bench", model="bench", version=1, variant="primary")
        self._batches: Queue[MicroBatch | None] = Queue(AHEAD)
        self._answers: Queue[tuple[MicroBatch, Tensors] | None] = Queue(AHEAD)
        self._error: BaseException | None = None

    def run(self, values: Packed) -> float:
        """Seconds that all recorded values take. Raises what a stage raised."""
        stages = [
            threading.Thread(target=self._guard, args=(run,)) for run in (lambda: self._decode(values), self._execute)
        ]
        start = time.monotonic()
        for stage in stages:
            stage.start()
        written = 0
        while (answer := self._answers.get()) is not None:
            written += self._encode(*answer)
        seconds = time.monotonic() - start
        for stage in stages:
            stage.join()
        if self._error is not None:
            raise self._error
        assert written == len(values), f"{written} of {len(values)} events were answered"
        return seconds

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self._error = error
            self._answers.put(None)

    def _decode(self, values: Packed) -> None:
        batcher = Batcher(self._limits)
        for start in range(0, len(values), POLL):
            polled = Polled(_records(values[start : start + POLL], start), {("recorded", 0): 1}, time.monotonic(), 0)
            batcher.add(self._decoder.decode(polled))
            while batch := batcher.take(time.monotonic()):
                self._batches.put(batch)
        while batch := batcher.drain():
            self._batches.put(batch)
        self._batches.put(None)

    def _execute(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._answers.put((batch, self._executor.run(batch.tensors())))
        self._answers.put(None)

    def _encode(self, batch: MicroBatch, outputs: Tensors) -> int:
        times = batch.event_times()
        return len(self._encoder.encode(batch.ids(), times, times, np.zeros_like(times), outputs))


def _records(values: Packed, start: int) -> Records:
    """As they are read: one partition's, from this offset."""
    count = len(values)
    zeros, types = np.zeros(count, np.int64), np.ones(count, np.int64)
    return Records(
        (("recorded", 0),), zeros, np.arange(start, start + count), zeros, types, [None] * count, values, None
    )
