"""Rejected events to dead letters: each event whole, with the reason, in the order of the events."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.consumers.events import DecodedBatch, Rejection
from millstream.consumers.observability.metrics import DEAD_LETTERS, INTERNAL_ERRORS, SKIPPED, Metrics
from millstream.consumers.records import Ints
from millstream.consumers.resilience.safety_net import ERRORS, SafetyNet
from millstream.consumers.sink.delivery import Delivery
from millstream.schemas.dead_letters import DeadLetter, DeadLetterEncoder
from millstream.schemas.packed import Packed
from millstream.topics.dead_letters import attempts_before

log = logging.getLogger(__name__)

BESIDE = 512  # bytes of a record besides key, value and headers; rather too many
_MOST_OF_HEADERS = 4096  # bytes of a dead letter's own headers: their texts are cut, or names of at most 250 characters
_HEADER = 10  # bytes of a header's lengths, at most
_TIMESTAMP_TYPES = (None, "create_time", "log_append_time")  # by Kafka's number for them


@dataclass(frozen=True, slots=True)
class DeadLetterOutput:
    """What is written, where."""

    pipeline: str
    topic: str
    encoder: DeadLetterEncoder
    max_bytes: int  # of a record, as the topic takes it
    skip: frozenset[str]  # reasons for which nothing is written


class DeadLetterSink:
    """Writes dead letters. One thread calls it."""

    def __init__(self, delivery: Delivery, output: DeadLetterOutput, metrics: Metrics) -> None:
        """Args:
        delivery: takes the records.
        output: what is written, where.
        metrics: where to count.
        """
        self._delivery = delivery
        self._output = output
        self._metrics = metrics
        self._net: SafetyNet[DeadLetter] = SafetyNet("encode", metrics)

    def write(self, block: DecodedBatch, rejected: Mapping[int, Rejection]) -> None:
        """Hand the dead letters of a block's rejected events to the producer, in the order of their records.

        Args:
            block: their records.
            rejected: by row.

        Raises:
            DeliveryFailed, Abandoned, TransactionAborted: as `Delivery.produce`.
        """
        now = time.time_ns() // 1_000_000
        counts = {DEAD_LETTERS: Counter[str](), SKIPPED: Counter[str]()}
        try:
            for letter in _letters_of(block, rejected, self._output.pipeline, now):
                if letter.reason in self._output.skip:
                    counts[SKIPPED][letter.reason] += 1
                    continue
                value, key, headers = self._encode(letter)
                self._delivery.produce(self._output.topic, value, key, headers)
                counts[DEAD_LETTERS][letter.reason] += 1
        finally:
            for metric, of_reasons in counts.items():
                for reason, count in of_reasons.items():
                    self._metrics.count(metric, count, reason)

    def _encode(self, letter: DeadLetter) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
        try:
            return self._within_limit(letter)
        except ERRORS as error:
            # Without a dead letter the worker would fail at this event forever.
            self._net.note(error)
            self._metrics.count(INTERNAL_ERRORS, 1, "encode")
            return self._within_limit(_without_content(letter, f"it can't be written: {type(error).__name__}"))

    def _within_limit(self, letter: DeadLetter) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
        """Value, key and headers of the record. The event's content is left out if the topic does not take it."""
        output, key = self._output, letter.key
        encoded, headers = output.encoder.encode(letter), output.encoder.headers(letter)
        small = len(encoded) + len(key or b"") + BESIDE + _MOST_OF_HEADERS <= output.max_bytes
        if not small and record_bytes(encoded, key, headers, BESIDE) > output.max_bytes:
            # Otherwise the broker would refuse the record, and the worker would fail at this event forever.
            letter = _without_content(
                letter, f"with them the dead letter is larger than topic {output.topic} takes (max.message.bytes)"
            )
            log.warning("dead letter of %s/%d@%d: %s", letter.topic, letter.partition, letter.offset, letter.error)
            encoded, headers = output.encoder.encode(letter), output.encoder.headers(letter)
            key = key if record_bytes(encoded, key, headers, BESIDE) <= output.max_bytes else None
        return encoded, key, headers


def _letters_of(
    block: DecodedBatch, rejected: Mapping[int, Rejection], pipeline: str, now: int
) -> Iterator[DeadLetter]:
    """The dead letters, each made when it is asked for: a hostile stream's contents may be large."""
    rows = np.array(sorted(rejected), np.int64)
    columns = (block.places, block.offsets, block.timestamps, block.timestamp_types)
    numbers = (column[rows].tolist() for column in columns)
    contents = (_each_of(strings, rows) for strings in (block.keys, block.values))
    for row, place, offset, timestamp, stamped, key, value in zip(rows.tolist(), *numbers, *contents, strict=True):
        topic, partition = block.partitions[place]
        why, sent_with = rejected[row], tuple(block.headers.get(row, ()))
        yield DeadLetter(
            reason=why.reason,
            error=why.error,
            pipeline=pipeline,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp=timestamp,
            failed_at=now,
            key=key,
            value=value,
            timestamp_type=_TIMESTAMP_TYPES[stamped],
            headers=sent_with,
            attempts=attempts_before(sent_with) + 1,
        )


def _each_of(strings: Sequence[bytes | None], rows: Ints) -> Iterator[bytes | None]:
    return strings.each_of(rows) if isinstance(strings, Packed) else (strings[row] for row in rows.tolist())


def _without_content(letter: DeadLetter, why: str) -> DeadLetter:
    error = (
        f"{letter.error} [key, value and headers left out: {why}; the event is at offset {letter.offset} of "
        f"{letter.topic}/{letter.partition} for as long as that keeps it]"
    )
    return letter._replace(key=None, value=None, headers=(), error=error)


def record_bytes(value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes | None]], beside: int) -> int:
    """Bytes of a record in a batch of its own, rather too many. `beside`: bytes besides value, key and headers."""
    of_headers = sum([4 * len(name) + len(content or b"") + _HEADER for name, content in headers])
    return len(value) + len(key or b"") + of_headers + beside
