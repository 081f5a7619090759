"""Writes rejected events as dead letters: the whole event with the reason, in the order of the records."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from millstream.consumers.events import DecodedBatch, Rejection
from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import DEAD_LETTERS, INTERNAL_ERRORS, SKIPPED, Metrics
from millstream.consumers.observability.seldom import Kind, SeldomWarnings
from millstream.consumers.record_headers import HeaderRows
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.final_counts import FinalCounts
from millstream.schemas.arrays import Ints
from millstream.schemas.dead_letters import DeadLetter, DeadLetterColumns, DeadLetterEncoder
from millstream.schemas.packed import Packed, lengths_of, taken
from millstream.topics.attempts import attempts_before

RECORD_OVERHEAD = 512  # upper bound of a record's bytes besides key, value and headers
_HEADER_OVERHEAD = 10  # bytes of a header's lengths, at most
SHORTENED = Kind(
    "dead letter written without key, value and headers of its event",
    "dead letters written without key, value and headers of their events",
)
PIECE_BYTES = 1 << 20  # about so many bytes of records become dead letters at a time
_Size = TypeVar("_Size", int, Ints)
_TIMESTAMP_TYPES = (None, "create_time", "log_append_time")  # by Kafka's number for them


@dataclass(frozen=True, slots=True)
class DeadLetterOutput:
    """The encoder, the topic and its limits."""

    pipeline: str
    topic: str
    encoder: DeadLetterEncoder
    max_bytes: int  # of the largest record that the topic accepts
    skip: frozenset[str]  # reasons without a dead letter
    file: str  # the pipeline file for the commands in messages, quoted for a shell


@dataclass(frozen=True, slots=True)
class _Records:
    """Records to produce: one value per record in each column."""

    values: Packed
    keys: Sequence[bytes | None]
    headers: list[tuple[str, Packed]]

    @property
    def sizes(self) -> Ints:
        """Upper bound of each record's bytes, if it is alone in a batch of records."""
        headers = [(name, column.lengths) for name, column in self.headers]
        return _size(self.values.lengths, lengths_of(self.keys), headers, RECORD_OVERHEAD)


class DeadLetterSink:
    """Writes dead letters. One thread calls it."""

    def __init__(self, delivery: Delivery, output: DeadLetterOutput, metrics: Metrics, counts: FinalCounts) -> None:
        """Args:
        delivery: takes the records.
        output: the encoder, the topic and its limits.
        metrics: where to count failures.
        counts: where to count results.
        """
        self._delivery = delivery
        self._output = output
        self._metrics = metrics
        self._counts = counts
        self._net: SafetyNet[DeadLetter] = SafetyNet("encode", metrics)
        self._warnings = SeldomWarnings()

    def write(self, block: DecodedBatch, rejected: Mapping[int, Rejection]) -> None:
        """Give the dead letters of a block's rejected events to the producer, in the order of the records.

        Args:
            block: holds their records.
            rejected: by row of the block.

        Raises:
            DeliveryFailed, Abandoned, TransactionAborted: as `Delivery.produce_all`.
        """
        if not rejected:
            self.catch_up()
            return
        skip = self._output.skip
        self._count(SKIPPED, [why.reason for why in rejected.values() if why.reason in skip])
        kept = {row: rejected[row] for row in sorted(rejected) if rejected[row].reason not in skip}
        for rows in _pieces(block, kept):
            self._write(_letters(block, rows, [kept[row] for row in rows], self._output.pipeline))

    def catch_up(self) -> None:
        """Log the letters without their events since the last warning, if the time for the next one has come."""
        self._warnings.catch_up()

    def say_all(self) -> None:
        """Log the letters without their events since the last warning, at the end."""
        self._warnings.say_all()

    def _write(self, letters: DeadLetterColumns) -> None:
        try:
            records = self._encode(letters)
        except Exception as error:
            if len(letters) > 1:
                self._write_parts(letters, [len(letters) // 2])
                return
            # Without a dead letter, each worker would fail at this event.
            self._net.note(error)
            self._metrics.count(INTERNAL_ERRORS, 1, "encode")
            records = self._without_content(letters.letter(0), f"it can't be written: {type(error).__name__}")
        if len(too_large := np.flatnonzero(records.sizes > self._output.max_bytes)):
            if len(letters) > 1:
                self._write_parts(letters, sorted({*too_large.tolist(), *(too_large + 1).tolist()}))
                return
            # The broker would refuse the record, and each worker would fail at this event.
            why = f"with them the dead letter is larger than topic {self._output.topic} takes (its max.message.bytes)"
            records = self._without_content(letters.letter(0), why)
        headers = HeaderRows.of_columns(records.headers)
        self._delivery.produce_all(self._output.topic, records.values, records.keys, headers)
        self._count(DEAD_LETTERS, letters.reasons)

    def _write_parts(self, letters: DeadLetterColumns, cuts: Sequence[int]) -> None:
        for start, stop in pairwise([0, *cuts, len(letters)]):
            if stop > start:
                self._write(letters.part(start, stop))

    def _encode(self, letters: DeadLetterColumns) -> _Records:
        values, headers = self._output.encoder.encode(letters)
        return _Records(values, letters.keys, headers)

    def _without_content(self, letter: DeadLetter, why: str) -> _Records:
        """The letter without the event's key, value and headers. The record itself keeps the key, if it then fits."""
        error = (
            f"{letter.error} [key, value and headers left out: {why}; the event is at offset {letter.offset} of "
            f"{letter.topic}/{letter.partition} for as long as that keeps it]"
        )
        example = f"offset {letter.offset} of {letter.topic}/{letter.partition} ({letter.reason}): {why}"
        self._warnings.warn(SHORTENED, 1, example)
        bare = letter._replace(key=None, value=None, headers=(), error=error)
        records = self._encode(DeadLetterColumns.of(bare))
        with_key = replace(records, keys=[letter.key])
        return with_key if with_key.sizes.max() <= self._output.max_bytes else records

    def _count(self, metric: Metric, reasons: Sequence[str]) -> None:
        for reason, count in Counter(reasons).items():
            self._counts.add(metric, count, reason)


def _pieces(block: DecodedBatch, kept: Mapping[int, Rejection]) -> list[list[int]]:
    """Cut the rows into pieces, so that the dead letters of many large records are not all in memory at once."""
    rows = list(kept)
    sizes = np.diff(block.ends, prepend=0)[rows] + RECORD_OVERHEAD
    cuts = np.flatnonzero(np.diff(sizes.cumsum() // PIECE_BYTES)) + 1
    return [rows[start:stop] for start, stop in pairwise([0, *cuts.tolist(), len(rows)]) if stop > start]


def _letters(block: DecodedBatch, rows: Sequence[int], why: Sequence[Rejection], pipeline: str) -> DeadLetterColumns:
    places, timestamp_types = (numbers[rows].tolist() for numbers in (block.places, block.timestamp_types))
    partitions = [block.partitions[place] for place in places]
    headers: list[Iterable[tuple[str, bytes | None]]] = [block.headers.get(row, ()) for row in rows]
    return DeadLetterColumns(
        pipeline=pipeline,
        failed_at=time.time_ns() // 1_000_000,
        reasons=[each.reason for each in why],
        errors=[each.error for each in why],
        topics=[topic for topic, _ in partitions],
        partitions=np.array([number for _, number in partitions], np.int64),
        offsets=block.offsets[rows],
        timestamps=block.timestamps[rows],
        timestamp_types=[_TIMESTAMP_TYPES[number] for number in timestamp_types],
        keys=taken(block.keys, np.array(rows)),
        values=taken(block.values, np.array(rows)),
        headers=headers,
        attempts=np.array([attempts_before(of_event) + 1 if of_event else 1 for of_event in headers], np.int64),
        models=[each.model for each in why],
    )


def record_bytes(value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes | None]], overhead: int) -> int:
    """Upper bound of a record's bytes, if it is alone in a batch of records.

    Args:
        value: the record's value.
        key: the record's key.
        headers: name and content of each.
        overhead: bytes of the record besides these.
    """
    lengths = [(name, len(content or b"")) for name, content in headers]
    return _size(len(value), len(key or b""), lengths, overhead)


def _size(value: _Size, key: _Size, headers: Sequence[tuple[str, _Size]], overhead: int) -> _Size:
    """The size from the lengths, of one record or of many."""
    size = value + key + overhead
    for name, content in headers:
        size = size + content + len(name.encode()) + _HEADER_OVERHEAD
    return size
