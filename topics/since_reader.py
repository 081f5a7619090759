"""Reads topics from a time on, many records per call, without a consumer group. Nothing in it waits for ever."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.schemas.arrays import Ints
from millstream.topics.client_log import client_log
from millstream.topics.errors import TopicError
from millstream.topics.partitions import partitions_of
from millstream.topics.records import ANSWER_TIMEOUT, PASSING_ERRORS, asked_again, bounds, unreadable
from millstream.topics.unreachable import LEADERLESS_ERRORS, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MARGIN_MS: Final = 60_000
"""Clocks of producers differ, so records up to this much older may come after the first one of a time."""
_REFRESH_TIMEOUT: Final = 1.0  # seconds
_MOST_RECORDS: Final = 2000  # of one read of `existing`
IDLE_TIMEOUT: Final = 30.0  # seconds without a record, after which `existing` gives up

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one topic as columns, one entry each."""

    partitions: Ints
    offsets: Ints
    timestamps: Ints  # ms since the epoch; -1: none
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        """How many."""
        return len(self.offsets)

    def part(self, start: int, stop: int) -> Fetched:
        """A range of them."""
        own = slice(start, stop)
        return Fetched(self.partitions[own], self.offsets[own], self.timestamps[own], self.keys[own], self.values[own])

    def take(self, rows: Ints) -> Fetched:
        """Those at these places."""
        keys, values = ([own[row] for row in rows.tolist()] for own in (self.keys, self.values))
        return Fetched(self.partitions[rows], self.offsets[rows], self.timestamps[rows], keys, values)


@dataclass(slots=True)
class _Partition:
    """How far a partition is read."""

    position: int  # the next offset
    end: int  # as far as the broker has said
    is_at_end: bool
    newest: float = -math.inf  # timestamp of the newest record read that is not of the future, ms since the epoch


class SinceReader:
    """Reads the committed records of some topics, from a time on. For one thread."""

    def __init__(self, client: Mapping[str, Any], since: Mapping[str, int]) -> None:
        """Connect, and find where to begin.

        Args:
            client: settings of a Kafka client.
            since: topic -> from when on, by the records' timestamps, ms since the epoch. Older ones may come, too.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: a topic does not exist.
        """
        self._bootstrap = str(client["bootstrap.servers"])
        self._consumer = Consumer(
            {
                **client,
                "group.id": "millstream-reader",  # required by the client, which never joins it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 32_768,
            },
            logger=client_log("reader"),
        )
        self._partitions: dict[Place, _Partition] = {}
        self._bounds: dict[Place, tuple[int, int]] = {}  # at the start
        self._topics = tuple(since)
        try:
            self.seek(since)
        except BaseException:
            self.close()
            raise

    def seek(self, since: Mapping[str, int]) -> None:
        """Begin at other times. Raises as the constructor."""
        try:
            places = [place for topic, start in since.items() for place in self._starts(topic, start - _MARGIN_MS)]
            self._consumer.assign(places)
        except KafkaException as error:
            raise unreachable(self._bootstrap, error.args[0]) from None

    def refresh(self) -> None:
        """Read partitions that the topics got in the meantime, too, from their beginning. It tries for a second."""
        known = dict(self._partitions)
        try:
            for topic in self._topics:
                found = self._consumer.list_topics(topic, timeout=_REFRESH_TIMEOUT).topics[topic]
                for number in set(found.partitions) - {own for name, own in known if name == topic}:
                    low, high = self._consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=_REFRESH_TIMEOUT
                    )
                    known[topic, number] = _Partition(low, high, low >= high)
            if len(known) > len(self._partitions):
                self._consumer.assign(
                    [
                        TopicPartition(*place, own.position) for place, own in known.items()
                    ]  # also drops what is on its way
                )
                self._partitions = known
        except KafkaException:  # the broker is away: the next call finds them
            return

    def read(self, limit: int, timeout: float) -> dict[str, Fetched]:
        """Up to `limit` records by topic. If there are none, it waits up to `timeout` seconds.

        Raises:
            TopicError: a topic can't be read (any more).
        """
        # `consume` waits until it has all records that it may return, so `poll` waits for the first one.
        first = self._consumer.poll(timeout)
        if first is None:
            return {}
        found: dict[str, list[Any]] = {}
        for message in [first, *self._consumer.consume(limit - 1, 0)]:
            error = message.error()
            if error is None:
                found.setdefault(str(message.topic()), []).append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Control records and aborted records have offsets, too, but don't come. So this is the only sign of the end.
                self._reached(message)
            elif error.code() not in PASSING_ERRORS:
                raise unreadable(message.topic(), error)
        return {topic: self._fetched(topic, messages) for topic, messages in found.items()}

    def existing(self) -> Iterator[Fetched]:
        """Read all records that were there when the reader was made. It ends also while others write on.

        Raises:
            TopicError: a topic can't be read, or no record came for 30 s.
        """
        came = time.monotonic()
        while not self._has_existing:
            if found := self.read(_MOST_RECORDS, 0.2):
                yield from found.values()
                came = time.monotonic()
            elif time.monotonic() - came > IDLE_TIMEOUT:
                raise TopicError(
                    f"topic {', '.join(self._topics)}: {self.behind:,} records are not read yet, and none has come for "
                    f"{IDLE_TIMEOUT:g} s. Look whether the brokers at {self._bootstrap} run, and try again."
                )

    @property
    def _has_existing(self) -> bool:
        return all(own.is_at_end or own.position >= self._bounds[place][1] for place, own in self._partitions.items())

    @property
    def partitions(self) -> int:
        """How many partitions the topics have."""
        return len(self._partitions)

    @property
    def left(self) -> frozenset[tuple[str, int, int]]:
        """Topic, partition and next offset of each partition that is not at its end."""
        return frozenset((*place, own.position) for place, own in self._partitions.items() if not own.is_at_end)

    @property
    def is_at_end(self) -> bool:
        """Whether all that was there has been read."""
        return all(own.is_at_end for own in self._partitions.values())

    @property
    def behind(self) -> int:
        """Records that are not read yet, as far as the broker has said. Control records of transactions count as well."""
        for (topic, number), own in self._partitions.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
            own.end = max(own.end, high)
        return sum(max(own.end - own.position, 0) for own in self._partitions.values() if not own.is_at_end)

    @property
    def read_until(self) -> float:
        """All records before this timestamp were read, ms since the epoch; infinite at the end of all partitions."""
        return min((math.inf if own.is_at_end else own.newest for own in self._partitions.values()), default=math.inf)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _starts(self, topic: str, since: int) -> list[TopicPartition]:
        """Where each partition begins, and whether there is anything to read."""
        numbers = self._numbers(topic)
        found = self._offsets_at(topic, numbers, max(since, 0))
        # Negative: all records are older. Librdkafka's mock of a broker says so of any time, so read from the beginning there.
        older = [number for number in numbers if found[number] < 0 and range(*self._bounds[topic, number])]
        first = self._offsets_at(topic, older, 0)
        places = []
        for number in numbers:
            low, high = self._bounds[topic, number]
            start = found[number]
            if start < 0:
                start = high if first.get(number, 0) >= 0 else low
            start = max(start, low)
            self._partitions[topic, number] = _Partition(start, high, start >= high)
            places.append(TopicPartition(topic, number, start))
        return places

    def _offsets_at(self, topic: str, numbers: Sequence[int], since: int) -> dict[int, int]:
        """Partition -> offset of the first record of a time or later; negative: there is none. Raises KafkaException."""
        if not numbers:
            return {}
        wanted = [TopicPartition(topic, number, since) for number in numbers]
        found = asked_again(lambda: self._consumer.offsets_for_times(wanted, timeout=ANSWER_TIMEOUT), LEADERLESS_ERRORS)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset for place in found}

    def _numbers(self, topic: str) -> list[int]:
        """The topic's partitions. The broker is asked once."""
        known = sorted(number for name, number in self._bounds if name == topic)
        if known:
            return known
        found = partitions_of(self._consumer, topic, ANSWER_TIMEOUT)
        for number in found:
            self._bounds[topic, number] = bounds(self._consumer, topic, number)
        return found

    def _reached(self, message: Any) -> None:
        own = self._partitions[message.topic(), message.partition()]
        own.position, own.is_at_end = max(own.position, message.offset()), True

    def _fetched(self, topic: str, messages: Sequence[Any]) -> Fetched:
        partitions, offsets, timestamps = (
            np.array([call(message) for message in messages], np.int64) for call in (_partition, _offset, _timestamp)
        )
        now = time.time_ns() // 1_000_000
        for number in np.unique(partitions).tolist():
            mine = partitions == number
            own = self._partitions[topic, number]
            last = int(offsets[mine][-1])
            if last >= own.position:  # otherwise, the end was reported after these records in the same read
                own.position, own.is_at_end = last + 1, False
            times = timestamps[mine]
            # A clock that is ahead doesn't mean that all records until its time were read.
            own.newest = max(own.newest, float(times[times <= now].max(initial=-1)))
        return Fetched(
            partitions,
            offsets,
            timestamps,
            [message.key() for message in messages],
            [message.value() for message in messages],
        )


def _partition(message: Any) -> int:
    return int(message.partition())


def _offset(message: Any) -> int:
    return int(message.offset())


def _timestamp(message: Any) -> int:
    return int(message.timestamp()[1])
