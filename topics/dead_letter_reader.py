"""Reads a dead-letter topic to its end, and single events from where they came."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.schemas.dead_letters import DeadLetter, DeadLetterError
from millstream.topics.dead_letters import NoLetter, Position, StoredLetter, Unread, marked
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.records import ANSWER_TIMEOUT, TRANSIENT_ERRORS, ReadRecord, bounds, headers_of
from millstream.topics.unreachable import unreachable

IDLE_TIMEOUT = 30.0  # seconds without anything new before the end of a partition is given up
MAX_READ_RECORDS = 500  # records of one read
READ_TIMEOUT = 0.2  # seconds of one read where nothing comes: Ctrl-C is heard this often

Decode = Callable[[bytes], DeadLetter]
"""The dead letter in a record's value. Raises DeadLetterError, SchemaUnavailable."""


class _StuckError(TopicError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class DeadLetterReader:
    """Reads as nobody's group: nothing is committed. One thread uses it; a context manager."""

    def __init__(self, client: Mapping[str, Any], topic: str, decode: Decode) -> None:
        """Connect.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic does not exist.
        """
        self._topic = topic
        self._decode = decode
        self._bootstrap = str(client["bootstrap.servers"])
        self._letters = _consumer(client, "read_committed")
        # Asked for ends beyond open transactions, and reads originals while letters are being read.
        self._events = _consumer(client, "read_uncommitted")
        try:
            with self._answered():
                found = self._events.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic]
            if found.error is not None:
                raise TopicError(f"topic {topic}: {found.error.str()}. Create it: millstream topics create PIPELINE")
        except (BrokerUnreachableError, TopicError):
            self.close()
            raise
        self._partitions = sorted(found.partitions)

    def letters(self, *, replayed: bool) -> Iterator[StoredLetter | NoLetter | Unread]:
        """What is in the topic now, by partition and offset; with those that were replayed, or without.

        A partition with an open transaction gives `Unread` in place of its letters: a marker may say that they were replayed.

        Nothing is held but the markers of one partition, so the topic may be of any size.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic can't be read.
            SchemaUnavailable: the schema registry does not answer.
        """
        # All ends now: what fails again while its letter is being replayed is for the next time.
        bounds = {partition: self._bounds(self._topic, partition) for partition in self._partitions}
        for partition, (low, high) in bounds.items():
            # A marker is written after its letter, into the same partition: so they are read first.
            try:
                marks = self._marks(partition, low, high)
            except _StuckError as stuck:
                yield Unread(Position(partition, stuck.offset), str(stuck))
                continue
            for record in self._read(self._letters, self._topic, partition, low, high):
                position = Position(partition, record.offset)
                if replayed or position not in marks:
                    yield from self._stored(record, marks.get(position))

    def _marks(self, partition: int, low: int, high: int) -> dict[Position, int]:
        """When letters of a partition were replayed, by their positions."""
        return {
            position: record.timestamp
            for record in self._read(self._letters, self._topic, partition, low, high)
            # A marker follows its letter in the same partition. Any other marker is forged and ignored.
            if (position := marked(record)) is not None
            and position.partition == partition
            and low <= position.offset < record.offset
        }

    def letter(self, position: Position) -> StoredLetter | NoLetter:
        """The letter at a position. Raises what `letters` does, and TopicError where nothing is there."""
        nothing = TopicError(
            f"no dead letter at {position} of {self._topic}. `millstream dead-letters list PIPELINE --all` shows what is there."
        )
        if position.partition not in self._partitions:
            raise nothing
        low, high = self._bounds(self._topic, position.partition)
        if not low <= position.offset < high:
            raise nothing
        found, replayed_at = None, None
        for record in self._read(self._letters, self._topic, position.partition, position.offset, high):
            if record.offset == position.offset:
                found = record
            elif found is None:
                break
            elif marked(record) == position:
                replayed_at = record.timestamp
                break
        if found is None or (stored := next(self._stored(found, replayed_at), None)) is None:
            raise nothing
        return stored

    def original(self, letter: DeadLetter) -> ReadRecord | None:
        """The event as it lies in its own topic; None where it is gone (retention, compaction, a topic made anew).

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic can't be read.
        """
        try:
            low, high = self._bounds(letter.topic, letter.partition)
        except TopicError:  # the topic or the partition is gone
            return None
        if not low <= letter.offset < high:
            return None
        record = next(self._read(self._events, letter.topic, letter.partition, letter.offset, letter.offset + 1), None)
        # In a topic made anew another event may lie at this offset.
        same = record is not None and (record.offset, record.key, record.timestamp) == (
            letter.offset,
            letter.key,
            letter.timestamp,
        )
        return record if same else None

    def partitions(self, topic: str) -> frozenset[int]:
        """The partitions of a topic; none where it does not exist. Raises BrokerUnreachableError."""
        with self._answered():
            found = self._events.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic]
        return frozenset() if found.error is not None else frozenset(found.partitions)

    def close(self) -> None:
        """Close the connections."""
        self._letters.close()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stored(self, record: ReadRecord, replayed_at: int | None) -> Iterator[StoredLetter | NoLetter]:
        """The record as what it is; nothing for a marker, or another record without a value."""
        if record.value is None:
            return
        position = Position(record.partition, record.offset)
        try:
            yield StoredLetter(position, self._decode(record.value), replayed_at)
        except DeadLetterError as error:
            yield NoLetter(position, str(error))

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset and the one after the last, open transactions included."""
        try:
            return bounds(self._events, topic, partition)
        except KafkaException as error:
            if error.args[0].code() in {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}:
                raise TopicError(f"topic {topic} has no partition {partition} (any more).") from None
            raise unreachable(self._bootstrap, error.args[0]) from None

    def _read(self, consumer: Consumer, topic: str, partition: int, start: int, end: int) -> Iterator[ReadRecord]:
        """The committed records with offsets from `start` to before `end`; waits for transactions that are open between them."""
        if start >= end:
            return
        consumer.assign([TopicPartition(topic, partition, start)])
        reached, moved = start, time.monotonic()
        while reached < end:
            # `consume` waits until it has all it was asked for, so a first record is waited for by `poll`.
            first = consumer.poll(READ_TIMEOUT)
            for message in [] if first is None else [first, *consumer.consume(MAX_READ_RECORDS - 1, 0)]:
                error = message.error()
                if error is None:
                    reached = (message.offset() or 0) + 1
                    if reached <= end:
                        yield _record(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # What was aborted, and the marks that end transactions, have offsets and are no records.
                    reached = max(reached, message.offset() or 0)
                elif error.code() not in TRANSIENT_ERRORS:
                    raise TopicError(f"topic {topic} can't be read: {error.str()}.")
            if first is not None:
                moved = time.monotonic()
            elif time.monotonic() - moved > IDLE_TIMEOUT:
                raise _StuckError(
                    f"{topic}/{partition} can't be read from offset {reached} to its end at {end}: a transaction that writes "
                    f"there is still open, or the broker does not answer. Try again in a minute.",
                    reached,
                )

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise unreachable(self._bootstrap, error.args[0]) from None


def _consumer(client: Mapping[str, Any], isolation: str) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "millstream-reader",  # the client wants one; it is never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,  # the end of a partition is told after this wait
        },
        logger=logging.getLogger("kafka.reader"),
    )


def _record(message: Any) -> ReadRecord:
    return ReadRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],  # -1 where it has none
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
    )
