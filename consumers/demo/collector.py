"""Reads predictions and dead letters as any consumer would, and matches them with the events by ID."""

import threading
import time
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt

from millstream.consumers.demo.results import Results
from millstream.consumers.demo.scene import Scene
from millstream.consumers.demo.stream import FlightStream
from millstream.schemas.dead_letters import decode_dead_letter
from millstream.schemas.records import PREDICTIONS
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.records import ReadRecord, RecordReader

MAX_READ_RECORDS = 1000  # records of one read
READ_TIMEOUT = 0.05  # seconds that one read waits for records
LAST_READ_TIMEOUT = 0.5  # the same after the workers have ended, when only duplicates can still arrive
OUTPUT = "late_probability"


class Collector(threading.Thread):
    """A thread that fills the results of each model version."""

    def __init__(self, scene: Scene, stream: FlightStream, sent_at: npt.NDArray[np.float64]) -> None:
        """Args:
        scene: names the topics to read.
        stream: the events.
        sent_at: when each event was written, seconds on the monotonic clock.
        """
        super().__init__(name="collector", daemon=True)
        self.results = {version: Results(len(stream)) for version in scene.pipelines}
        self.failure: Exception | None = None
        self._stream = stream
        self._sent_at = sent_at
        self._schemas: Any = {own: fastavro.parse_schema(record.definition) for own, record in PREDICTIONS.items()}
        self._stopping = threading.Event()
        self._predictions = {p.output.topic: self.results[version] for version, p in scene.pipelines.items()}
        self._dead_letters = {p.dead_letters.topic: self.results[version] for version, p in scene.pipelines.items()}
        topics = [*self._predictions, *self._dead_letters]
        self._reader = RecordReader(scene.reading_client, topics, from_beginning=True)

    def answered(self) -> int:
        """How many events the slowest version has results for."""
        return min(results.answered for results in self.results.values())

    def run(self) -> None:
        """Read until stopped, then read the remaining records. An error ends the thread and is stored in `failure`."""
        try:
            with self._reader as reader:
                while True:
                    ending = self._stopping.is_set()
                    records = reader.read(MAX_READ_RECORDS, LAST_READ_TIMEOUT if ending else READ_TIMEOUT)
                    now = time.monotonic()
                    for record in records:
                        self._take(record, now)
                    if ending and not records:
                        return
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Read the remaining records, then end; wait for the end."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _take(self, record: ReadRecord, now: float) -> None:
        value = record.value or b""
        if record.topic in self._dead_letters:
            letter = decode_dead_letter(value)
            self._dead_letters[record.topic].died(self._stream.number_of_letter(letter), letter.reason)
            return
        schema = self._schemas[schema_id_of(value)]
        prediction: Any = fastavro.schemaless_reader(BytesIO(value[HEAD_BYTES:]), schema, None)
        number = self._stream.number_of(prediction["event_id"])
        latency = 0.0 if number is None else (now - self._sent_at[number]) * 1000
        self._predictions[record.topic].predicted(number, prediction["outputs"][OUTPUT], latency, prediction["version"])
