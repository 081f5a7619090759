"""Reads a range of offsets of each partition, such as the events of a day, without a group: it commits nothing."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.reader import FINAL_ERRORS, UNREADABLE_ERRORS, reader_of
from millstream.topics.client_log import client_log
from millstream.topics.coordinator import UNREADY_ERRORS
from millstream.topics.partitions import partitions_of
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import ANSWER_TIMEOUT, TRANSIENT_ERRORS, asked_again, bounds
from millstream.topics.unreachable import LEADERLESS_ERRORS, unreachable

log = logging.getLogger(__name__)

Ranges = Mapping[Partition, tuple[int, int]]
"""Partition -> its first offset, and the one after its last."""
READ_LIMIT = 4096  # records of one read
READ_TIMEOUT = 0.2  # seconds that one read waits for records


class RangeReader:
    """Reads ranges of offsets. One thread calls it."""

    def __init__(self, client: Mapping[str, Any], group: str) -> None:
        """Args:
        client: the pipeline's client settings, with `bootstrap.servers`.
        group: that a producer commits offsets for, if any; the client wants a name. It never joins the group.
        """
        self._bootstrap = str(client["bootstrap.servers"])
        self._causes: list[KafkaError] = []
        self._ends: dict[Partition, int] = {}
        self._open: set[Partition] = set()
        error_cb = self._on_error  # always the same object: the reader uses it to find the client's handle
        self._consumer = Consumer(
            {
                **QUICK_CONNECT,
                "fetch.queue.backoff.ms": 20,
                "queued.min.messages": 30_000,
                **client,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "error_cb": error_cb,
            },
            logger=client_log("reader"),
        )
        self._reader = reader_of(self._consumer, error_cb, self._note_event)

    def ranges(self, topics: tuple[str, ...], start: int, end: int) -> dict[Partition, tuple[int, int]]:
        """The offsets of the records whose timestamps are in [start, end), ms since the epoch, as the broker finds them.

        Within a partition, timestamps may go back a little. The range begins with the first record from `start` on, and ends
        before the first one from `end` on.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: a topic does not exist.
        """
        try:
            found: dict[Partition, tuple[int, int]] = {}
            for topic in topics:
                numbers = self._partitions(topic)
                sides = [self._offsets(topic, numbers, time) for time in (start, end)]
                for number in numbers:
                    low, high = bounds(self._consumer, topic, number)
                    first, last = (high if side[number] < 0 else min(side[number], high) for side in sides)
                    found[topic, number] = (max(first, low), max(first, last, low))
            return found
        except KafkaException as error:
            raise unreachable(self._bootstrap, error.args[0], self._causes) from None

    def _partitions(self, topic: str) -> list[int]:
        return partitions_of(self._consumer, topic, ANSWER_TIMEOUT)

    def _offsets(self, topic: str, numbers: list[int], time: int) -> dict[int, int]:
        """The first offset from this time on, of each partition; below 0: there is none."""
        asked = [TopicPartition(topic, number, time) for number in numbers]
        answered = asked_again(
            lambda: self._consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT), LEADERLESS_ERRORS
        )
        return {each.partition: OFFSET_END if each.error else each.offset for each in answered}

    def begin(self, ranges: Ranges) -> None:
        """Read these ranges, from their first offsets on."""
        self._ends = {partition: end for partition, (start, end) in ranges.items() if start < end}
        self._open = set(self._ends)
        places = [TopicPartition(*partition, start) for partition, (start, end) in ranges.items() if start < end]
        self._consumer.assign(places)
        self._consumer.resume(places)  # a partition that was paused stays so when it is assigned again

    @property
    def done(self) -> bool:
        """Whether all records of the ranges are read."""
        return not self._open

    @property
    def group_metadata(self) -> Any:
        """For a producer that commits the group's offsets."""
        return self._consumer.consumer_group_metadata()

    def committed(self, partitions: list[Partition]) -> dict[Partition, int]:
        """The group's committed offsets; -1 or less: there is none. Raises BrokerUnreachableError."""
        try:
            found = asked_again(
                lambda: self._consumer.committed(
                    [TopicPartition(*each) for each in partitions], timeout=ANSWER_TIMEOUT
                ),
                UNREADY_ERRORS | {KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._WAIT_COORD},
            )
        except KafkaException as error:
            raise unreachable(self._bootstrap, error.args[0], self._causes) from None
        return {(each.topic, each.partition): each.offset for each in found}

    def read(self, limit: int, timeout: float) -> Records:
        """Up to `limit` records of the ranges; waits up to `timeout` seconds for one.

        Raises:
            WorkerError: a partition can't be read.
        """
        records = self._reader.consume(limit, 0) or self._reader.consume(1, timeout)
        if not records:
            return records
        ends = [self._ends.get(partition, 0) for partition in records.partitions]
        for place, partition in enumerate(records.partitions):
            if records.offsets[records.places == place].max() >= ends[place] - 1:
                self._finish(partition)
        if all(partition in self._open for partition in records.partitions):
            return records
        inside = records.offsets < [ends[place] for place in records.places.tolist()]
        return records if inside.all() else records.take(inside)

    def __iter__(self) -> Iterator[Records]:
        """All records of the ranges that are still to be read."""
        while not self.done:
            if records := self.read(READ_LIMIT, READ_TIMEOUT):
                yield records

    def _finish(self, partition: Partition) -> None:
        if partition in self._open:
            self._open.discard(partition)
            self._consumer.pause([TopicPartition(*partition)])  # what lies behind the range is not fetched

    def pause(self, *, pause: bool) -> None:
        """Stop fetching, or go on."""
        change = self._consumer.pause if pause else self._consumer.resume
        change([TopicPartition(*partition) for partition in self._open])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _note_event(self, error: KafkaError, partition: Partition) -> None:
        if (
            error.code() == KafkaError._PARTITION_EOF
        ):  # behind a range's last record, there may only be a transaction's marker
            self._open.discard(partition)
            return
        if error.code() in FINAL_ERRORS:
            raise WorkerError(
                FINAL_ERRORS[error.code()].format(topic=partition[0], error=error.str().removesuffix("."))
            )
        where = f"{partition[0]}/{partition[1]}"
        if error.code() in UNREADABLE_ERRORS:
            raise WorkerError(
                f"{where} has a batch of records that can't be read ({error.str()}). Choose times that leave it out."
            )
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            raise WorkerError(
                f"{where}: the records that come next were deleted meanwhile ({error.str()}). Choose a later start, and "
                f"begin anew."
            )
        log.warning("reading %s: %s", where, error.str())

    def _on_error(self, error: KafkaError) -> None:
        self._causes.append(error)
        del self._causes[:-10]
        log.log(
            logging.DEBUG if error.code() in TRANSIENT_ERRORS else logging.WARNING, "Kafka consumer: %s", error.str()
        )
