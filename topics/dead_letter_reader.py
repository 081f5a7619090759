"""Reads a dead-letter topic to its end, and single events from their own topics."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.schemas.dead_letters import DeadLetter, DeadLetterError
from millstream.topics.client_log import client_log
from millstream.topics.dead_letters import NoLetter, Position, StoredLetter, Unread, marked
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.partitions import partitions_of
from millstream.topics.records import ANSWER_TIMEOUT, PASSING_ERRORS, ReadRecord, bounds, headers_of, unreadable
from millstream.topics.unreachable import unreachable

IDLE_TIMEOUT = 30.0  # seconds without a new record, after which a partition counts as stuck before its end
MAX_READ_RECORDS = 500  # records of one read
READ_TIMEOUT = 0.2  # seconds that a read waits for records; so Ctrl-C takes no longer than that

Decode = Callable[[bytes], DeadLetter]
"""The dead letter in a record's value. Raises DeadLetterError, SchemaUnavailable."""


class _StuckError(TopicError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class DeadLetterReader:
    """Reads without a consumer group, so it commits nothing. A context manager, for one thread."""

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
        # Reads the ends of partitions beyond open transactions; and reads original events while letters are read.
        self._events = _consumer(client, "read_uncommitted")
        try:
            with self._answered():
                self._partitions = partitions_of(self._events, topic, ANSWER_TIMEOUT)
        except (BrokerUnreachableError, TopicError):
            self.close()
            raise

    def letters(self, *, replayed: bool) -> Iterator[StoredLetter | NoLetter | Unread]:
        """The content of the topic now, by partition and offset, with or without the replayed letters.

        A partition with an open transaction gives `Unread` instead of its letters, because the transaction may have markers that
        these were replayed.

        It keeps only the markers of one partition in memory, so the topic may have any size.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic can't be read.
            SchemaUnavailable: the schema registry does not answer.
        """
        # All ends are read first: letters of events that fail again during this replay are left to the next one.
        bounds = {partition: self._bounds(self._topic, partition) for partition in self._partitions}
        for partition, (low, high) in bounds.items():
            # A marker is in the same partition, after its letter. So the markers are read first.
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
        """The replay times of a partition's letters, by position."""
        return {
            position: record.timestamp
            for record in self._read(self._letters, self._topic, partition, low, high)
            # A marker follows its letter in the same partition. Any other marker is forged and ignored.
            if (position := marked(record)) is not None
            and position.partition == partition
            and low <= position.offset < record.offset
        }

    def letter(self, position: Position) -> StoredLetter | NoLetter:
        """The letter at a position. Raises as `letters`, and TopicError if there is no letter."""
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
        """The event in its own topic; None if it is gone (by retention or compaction, or the topic was created anew).

        A letter without a key fits an event with any key: the key was left out, if it was too large for the letter's record.

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
        # If the topic was created anew, another event may be at this offset.
        if record is None or (record.offset, record.timestamp) != (letter.offset, letter.timestamp):
            return None
        return record if letter.key in (None, record.key) else None

    def partitions(self, topic: str) -> frozenset[int]:
        """The partitions of a topic; none if it doesn't exist. Raises BrokerUnreachableError."""
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
        """Decode a record. Markers and other records without a value give nothing."""
        if record.value is None:
            return
        position = Position(record.partition, record.offset)
        try:
            letter = self._decode(record.value)
        except DeadLetterError as error:
            yield NoLetter(position, str(error))
            return
        # A letter whose value was left out lacks the event's key, too. The record still has the key, if that wasn't too large.
        key = record.key if letter.value is None and letter.key is None else letter.key
        yield StoredLetter(position, letter._replace(key=key), replayed_at)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the one after the last, including open transactions."""
        try:
            return bounds(self._events, topic, partition)
        except KafkaException as error:
            if error.args[0].code() in {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}:
                raise TopicError(f"topic {topic} has no partition {partition} (any more).") from None
            raise unreachable(self._bootstrap, error.args[0]) from None

    def _read(self, consumer: Consumer, topic: str, partition: int, start: int, end: int) -> Iterator[ReadRecord]:
        """The committed records with offsets from `start` to before `end`. Waits for open transactions between them."""
        if start >= end:
            return
        consumer.assign([TopicPartition(topic, partition, start)])
        reached, moved = start, time.monotonic()
        while reached < end:
            # `consume` waits until it has all records that it may return, so `poll` waits for the first one.
            first = consumer.poll(READ_TIMEOUT)
            for message in [] if first is None else [first, *consumer.consume(MAX_READ_RECORDS - 1, 0)]:
                error = message.error()
                if error is None:
                    reached = (message.offset() or 0) + 1
                    if reached <= end:
                        yield _record(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Aborted records, and the control records that end transactions, have offsets but are not delivered.
                    reached = max(reached, message.offset() or 0)
                elif error.code() not in PASSING_ERRORS:
                    raise unreadable(topic, error)
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
            "group.id": "millstream-reader",  # required by the client, which never joins it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,  # the broker reports the end of a partition after this time
        },
        logger=client_log("reader"),
    )


def _record(message: Any) -> ReadRecord:
    return ReadRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],  # -1: it has none
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
    )
