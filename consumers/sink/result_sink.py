"""Writes results as predictions and dead letters, and returns for each partition how far it is done."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import EventRefused
from millstream.consumers.events import (
    BatchResult,
    BatchSlice,
    DecodedBatch,
    MicroBatch,
    NextOffsets,
    Rejection,
)
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import (
    END_TO_END,
    FILTERED,
    PREDICTIONS,
    REVOKED_DROPPED,
    SKIPPED,
    STAGE_SECONDS,
    TOMBSTONES,
    Metrics,
)
from millstream.consumers.record_headers import HeaderRows
from millstream.consumers.record_types import HeaderList, Key, Partition
from millstream.consumers.records import rows_in
from millstream.consumers.sink.coalesce import coalesce
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput, DeadLetterSink, record_bytes
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.final_counts import FinalCounts
from millstream.consumers.sink.isolating_encoder import IsolatingEncoder, PredictionColumns
from millstream.consumers.sink.refusals import Refusals
from millstream.schemas.packed import Packed, lengths_of, taken
from millstream.schemas.predictions import PredictionRows
from millstream.schemas.row_models import RowModels

# Upper bound of a record's bytes besides key, value and headers: 61 for a batch with one record, and up to 31 for its numbers.
PREDICTION_OVERHEAD = 100
TOO_LARGE_REASON = "prediction_too_large"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The encoders, the topics and their limits."""

    variant: str
    predictions: PredictionRows  # the encoder
    prediction_topic: str
    prediction_bytes: int  # of the largest record that the topic accepts
    dead_letters: DeadLetterOutput
    carry_headers: frozenset[str]  # names of the record headers that predictions get too
    stop_at: frozenset[str] = frozenset()  # reasons at which the worker ends
    include: tuple[str, ...] = ()  # the event's fields that predictions include


class _Encoded(NamedTuple):
    """The predictions of a batch, and the events without one."""

    values: Sequence[bytes]
    events: npt.NDArray[np.int64]  # the row of each value's event, ascending
    models: RowModels  # of the values
    rejected: Mapping[int, Rejection]  # row of each event without a value -> its rejection

    def between(self, first: int, last: int, of: int) -> "_Encoded":
        """The predictions of the events from `first` to `last`, of `of` events. Rows then count from `first`."""
        # A search that isn't needed is avoided: numpy would release the GIL for it.
        start, stop = (first, last) if len(self.events) == of else self.events.searchsorted([first, last]).tolist()
        rejected = {event - first: why for event, why in self.rejected.items() if first <= event < last}
        return _Encoded(
            self.values[start:stop], self.events[start:stop] - first, self.models.between(start, stop), rejected
        )


class Sink:
    """Writes results in the order of its calls. One thread calls it."""

    def __init__(self, delivery: Delivery, outputs: Outputs, *, assignment: Assignment, metrics: Metrics) -> None:
        """Args:
        delivery: takes the records.
        outputs: the encoders, the topics and their limits.
        assignment: the partitions that this worker has now.
        metrics: where to count.
        """
        self._delivery = delivery
        self._outputs = outputs
        self._assignment = assignment
        self._metrics = metrics
        # Predictions since the last checkpoint: when they were written, and the timestamps of their events' records.
        self._written: list[tuple[float, npt.NDArray[np.int64]]] = []
        self._encoder = IsolatingEncoder(outputs.predictions, metrics)
        self._counts = FinalCounts(metrics)
        self._dead_letters = DeadLetterSink(delivery, outputs.dead_letters, metrics, self._counts)
        self._refusals = Refusals(outputs.dead_letters.file)

    def start(self) -> None:
        """Start the producer. May wait for the broker. Raises DeliveryFailed, Abandoned."""
        self._delivery.start()

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        """Give the predictions and dead letters of micro-batches to the producer.

        Returns:
            how far each partition that this worker still has is done with them.

        Raises:
            EventRefused: the pipeline stops at an event. All events before it are written.
            DeliveryFailed, Abandoned, TransactionAborted: as `Delivery.produce`.
        """
        ends: NextOffsets = {}
        for number, answered in enumerate(answers if self._outputs.stop_at else coalesce(answers), 1):
            try:
                ends |= self._write(answered)
            except EventRefused as refused:
                refused.ends, refused.batches = ends | refused.ends, number
                raise
        return ends

    def _write(self, answered: BatchResult) -> NextOffsets:
        started = time.perf_counter()
        predictions = self._encode(answered)
        parts, refused = self._until_refused(answered.batch, predictions)
        encoded = time.perf_counter()
        self._metrics.observe(STAGE_SECONDS, encoded - started, "encode")
        ends: NextOffsets = {}
        if len(answered.batch.parts) == 1 and refused is None:
            ends = self._write_part(parts[0], predictions)
        else:
            first = 0
            for part in parts:
                last = first + part.last - part.first
                ends |= self._write_part(part, predictions.between(first, last, answered.batch.events))
                first = last
        self._metrics.observe(STAGE_SECONDS, time.perf_counter() - encoded, "produce")
        if refused is not None:
            refused.ends = ends
            raise refused
        return ends

    def _encode(self, answered: BatchResult) -> _Encoded:
        batch, rows, models = answered.batch, answered.rows, answered.row_models
        if not len(rows):
            return _Encoded([], rows, models, answered.rejected)
        ids, times = batch.ids(), batch.event_times()
        ingest = np.repeat(
            [part.block.ingest_time for part in batch.parts], [part.last - part.first for part in batch.parts]
        )
        if len(rows) < batch.events:
            ids, times, ingest = ids.take(rows), times[rows], ingest[rows]
        event = batch.features(rows, self._outputs.include) if self._outputs.include else None
        columns = PredictionColumns(ids, times, ingest, answered.prediction_times, answered.outputs, models, event)
        values, failed = self._encoder.encode(columns)
        if not failed:
            return _Encoded(values, rows, models, answered.rejected)
        rejected = {**answered.rejected, **{int(rows[place]): why for place, why in failed.items()}}
        kept = np.delete(np.arange(len(rows)), list(failed))
        return _Encoded(values, rows[kept], models.take(kept), rejected)

    def _write_part(self, part: BatchSlice, predictions: _Encoded) -> NextOffsets:
        """Write the predictions of a part's events, and the dead letters of the others. Rows count from its first event."""
        block, events, rejected = part.block, predictions.events, predictions.rejected
        ours = self._assignment.current(block.epochs)
        good = block.good[part.first : part.last]
        dead = {**part.rejected(), **{int(good[event]): why for event, why in rejected.items()}}
        if ours is not None:
            dead = {row: why for row, why in dead.items() if block.partition(row) in ours}
        rows = good if len(events) == len(good) else good[events]
        keys = part.event_keys if len(events) == len(good) else taken(part.event_keys, events)
        written = self._produce(block, rows, predictions.values, keys, ours, dead)
        if len(written) < len(rows) and predictions.models.variants is not None:
            _name_models(dead, rows, predictions.models)
        self._dead_letters.write(block, dead)
        skip = self._outputs.dead_letters.skip
        letters = {row: why for row, why in dead.items() if why.reason not in skip}
        skipped = [row for row in dead if row not in letters]
        others = np.append(written, skipped) if skipped else written
        # Among many records of other pipelines, a few that can't be read don't show that this one is wrong.
        apart = frozenset(block.unread.tolist()) if len(block.left_out) and len(block.unread) else frozenset[int]()
        self._refusals.note(block, letters, others, apart)
        models = predictions.models
        self._count(models if written is rows else models.take(rows.searchsorted(written)), len(written))
        self._written.append((time.time(), block.timestamps[written]))
        return self._ends_of(part, ours)

    def _count(self, models: RowModels, written: int) -> None:
        """Count the predictions of each model."""
        if not models.models:  # the batch didn't run
            return
        for at, count in models.counts(written):
            name, version = models.models[at]
            variant = self._outputs.variant if models.variants is None else models.variants[at]
            self._counts.add(PREDICTIONS, count, name, str(version), variant)

    def _produce(
        self,
        block: DecodedBatch,
        rows: npt.NDArray[np.int64],
        values: Sequence[bytes],
        keys: Sequence[Key],
        ours: set[Partition] | None,
        dead: dict[int, Rejection],
    ) -> npt.NDArray[np.int64]:
        """Write the predictions of these rows in their order, in as few calls as possible. Returns the rows written.

        A prediction that is too large is not written, and added to `dead`. A prediction of a partition that this worker has lost
        is dropped.
        """
        topic, start = self._outputs.prediction_topic, 0
        all_headers = self._headers_of(block, rows)
        dropped: list[int] = []
        for place in self._apart(block, rows, values, keys, all_headers, ours):
            if place > start:
                part = None if all_headers is None else all_headers[start:place]
                self._delivery.produce_all(topic, values[start:place], keys[start:place], part)
            start, row, value, key = place + 1, int(rows[place]), values[place], keys[place]
            headers = self._carried(block, row)
            if ours is not None and block.partition(row) not in ours:
                dropped.append(place)
            elif (size := record_bytes(value, key, headers, PREDICTION_OVERHEAD)) > self._outputs.prediction_bytes:
                dropped.append(place)
                dead[row] = self._too_large(size)
            else:
                self._delivery.produce(topic, value, key, headers)
        if start < len(values):
            part = None if all_headers is None else all_headers[start:]
            self._delivery.produce_all(topic, values[start:], keys[start:], part)
        return np.delete(rows, dropped) if dropped else rows

    def _apart(
        self,
        block: DecodedBatch,
        rows: npt.NDArray[np.int64],
        values: Sequence[bytes],
        keys: Sequence[Key],
        headers: HeaderRows | None,
        ours: set[Partition] | None,
    ) -> list[int]:
        """The indices of the predictions that may be too large, or are of a lost partition, ascending."""
        sizes = lengths_of(values) + lengths_of(keys)
        if headers is not None:
            sizes = sizes + 2 * headers.packed.lengths  # at least what the carried ones take in the record
        apart = sizes > self._outputs.prediction_bytes - PREDICTION_OVERHEAD
        if ours is not None:
            apart |= ~block.is_of(ours)[rows]
        return np.flatnonzero(apart).tolist()

    def _headers_of(self, block: DecodedBatch, rows: npt.NDArray[np.int64]) -> HeaderRows | None:
        """The headers of these rows, of which the predictions carry some; None if no row has headers."""
        names, headers = self._outputs.carry_headers, block.headers
        if not names or not headers or not len(rows_in(headers, rows)):
            return None
        return HeaderRows(Packed.of([headers[row].packed if row in headers else b"" for row in rows.tolist()]), names)

    def _too_large(self, size: int) -> Rejection:
        return Rejection(
            TOO_LARGE_REASON,
            f"the prediction has {size} bytes with its key and headers, more than topic {self._outputs.prediction_topic} takes "
            f"(max.message.bytes): raise that, restart the workers, then replay",
        )

    def _note_latencies(self) -> None:
        """Measure how old the events were when readers could see their predictions. Records without a timestamp don't count."""
        written, self._written = self._written, []
        if not written:
            return
        stamps = np.concatenate([timestamps for _, timestamps in written])
        readable = np.repeat([at for at, _ in written], [len(timestamps) for _, timestamps in written])
        if self._delivery.publishes_at_checkpoint:
            readable[:] = time.time()
        self._metrics.observe_many(END_TO_END, np.maximum(readable - stamps / 1000, 0.0)[stamps >= 0])

    def _ends_of(self, part: BatchSlice, ours: set[Partition] | None) -> NextOffsets:
        """How far each partition is done with this part. Also counts records without a result, and those of lost partitions."""
        block = part.block
        ends = {p: (block.epochs[p], end) for p, end in part.next_offsets().items() if ours is None or p in ours}
        covered = part.stop - part.start
        stale = 0 if ours is None else covered - int(block.is_of(ours)[part.start : part.stop].sum())
        if stale:
            self._metrics.count(REVOKED_DROPPED, stale)
        left_out = part.left_out()
        tombstones = covered - (part.last - part.first) - len(part.rejected()) - len(left_out)
        if tombstones and not stale:
            self._counts.add(TOMBSTONES, tombstones)
        if len(left_out):
            mine = len(left_out) if ours is None else int(block.is_of(ours)[left_out].sum())
            self._counts.add(SKIPPED, mine, FILTERED)
        return ends

    def _until_refused(
        self,
        batch: MicroBatch,
        predictions: _Encoded,
    ) -> tuple[Sequence[BatchSlice], EventRefused | None]:
        """The batch's parts up to the first event at which the pipeline stops, and the error for this event, if any."""
        stop_at = self._outputs.stop_at
        if not stop_at:
            return batch.parts, None
        events, parts, first = predictions.events, list[BatchSlice](), 0
        for part in batch.parts:
            block, good = part.block, part.block.good[part.first : part.last]
            ours = self._assignment.current(block.epochs)
            of_events = {e - first: why for e, why in predictions.rejected.items() if first <= e < first + len(good)}
            if TOO_LARGE_REASON in stop_at:
                start, stop = events.searchsorted([first, first + len(good)]).tolist()
                of_events |= self._too_large_of(part, predictions.values[start:stop], events[start:stop] - first)
            of_rows = part.rejected() | {int(good[event]): why for event, why in of_events.items()}
            for row, why in sorted(of_rows.items()):
                partition = block.partition(row)
                if why.reason in stop_at and (ours is None or partition in ours):
                    last = part.first + int(good.searchsorted(row))
                    parts.append(BatchSlice(block, part.start, row, part.first, last))
                    return parts, EventRefused(partition, int(block.offsets[row]), why.reason, why.error)
            parts.append(part)
            first += len(good)
        return parts, None

    def _too_large_of(
        self, part: BatchSlice, values: Sequence[bytes], events: npt.NDArray[np.int64]
    ) -> dict[int, Rejection]:
        """The events of a part whose predictions are larger than the topic accepts."""
        keys, rows = taken(part.event_keys, events), part.block.good[part.first + events].tolist()
        found = {}
        for event, row, value, key in zip(events.tolist(), rows, values, keys, strict=True):
            size = record_bytes(value, key, self._carried(part.block, row), PREDICTION_OVERHEAD)
            if size > self._outputs.prediction_bytes:
                found[event] = self._too_large(size)
        return found

    def _carried(self, block: DecodedBatch, row: int) -> HeaderList:
        return block.headers[row].named(self._outputs.carry_headers) if row in block.headers else []

    def push(self) -> None:
        """Send the records at once that the producer holds back for a fuller request. Raises DeliveryFailed, Abandoned."""
        self._delivery.push()

    def catch_up(self) -> None:
        """Log the dead letters that are not told yet, once their time has come."""
        self._refusals.catch_up()
        self._dead_letters.catch_up()

    def say_all(self) -> None:
        """Log which dead letters lack their events. The worker's totals count all dead letters."""
        self._dead_letters.say_all()

    def checkpoint(self, ends: NextOffsets) -> None:
        """Make all results written so far final. Raises as `Delivery.checkpoint`.

        Args:
            ends: how far the results written since the last checkpoint bring each partition.
        """
        started = time.perf_counter()
        self._delivery.checkpoint(ends)
        self._metrics.observe(STAGE_SECONDS, time.perf_counter() - started, "commit")
        self._counts.publish()
        self._note_latencies()

    def abort(self) -> None:
        """Take back all results since the last checkpoint, and write none of the records read so far: they are read again."""
        self._delivery.abort()
        self._counts.drop()
        self._written = []
        self._assignment.drop_read()


def _name_models(dead: dict[int, Rejection], rows: npt.NDArray[np.int64], models: RowModels) -> None:
    """Add the models to rejections of events whose predictions exist, but are too large. `rows`: of the predictions."""
    for row, why in dead.items():
        if why.reason == TOO_LARGE_REASON:
            dead[row] = why._replace(model=models.letter_model(int(rows.searchsorted(row))))
