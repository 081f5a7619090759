"""Ranges of offsets on a broker: found by timestamps, and read to their ends."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.source import range_reader
from millstream.consumers.source.range_reader import RangeReader
from millstream.topics.errors import TopicError
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

START = 1_700_000_000_000


@pytest.fixture
def reader(kafka: Broker) -> Iterator[RangeReader]:
    found = RangeReader({"bootstrap.servers": kafka.bootstrap}, "ranges")
    yield found
    found.close()


def write(kafka: Broker, topic: str, partition: int, times: range, *, transaction: bool = False) -> None:
    settings = {"transactional.id": uuid.uuid4().hex} if transaction else {}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **settings})
    if transaction:
        producer.init_transactions()
        producer.begin_transaction()
    for time in times:
        producer.produce(topic, str(time).encode(), partition=partition, timestamp=START + time)
    if transaction:
        producer.commit_transaction()
    assert producer.flush(30) == 0


def read(reader: RangeReader) -> list[int]:
    return sorted(int(value or 0) for records in reader for value in records.values)


@pytest.mark.durable
def test_records_of_a_time_are_read_whatever_lies_around(
    kafka: Broker, make_topic: MakeTopic, reader: RangeReader
) -> None:
    topic = make_topic(3)
    write(kafka, topic, 0, range(0, 3000))
    write(kafka, topic, 1, range(500, 600), transaction=True)  # its end is a marker, which no reader gets
    # The broker shows a transaction's records a little later than the commit.
    wait_until(lambda: reader.ranges((topic,), START, START + 1000)[topic, 1][1] >= 100, 30, "the transaction's end")
    for start, end, expected in (
        (0, 10_000, [*range(3000), *range(500, 600)]),
        (550, 560, [*range(550, 560)] * 2),
        (2990, 3000, [*range(2990, 3000)]),
        (3000, 4000, []),
        (-1000, 0, []),
    ):
        ranges = reader.ranges((topic,), START + start, START + end)
        assert set(ranges) == {(topic, 0), (topic, 1), (topic, 2)}
        reader.begin(ranges)
        assert read(reader) == sorted(expected)
        assert reader.done


@pytest.mark.durable
def test_records_that_come_later_are_not_in_the_range(
    kafka: Broker, make_topic: MakeTopic, reader: RangeReader
) -> None:
    topic = make_topic(1)
    write(kafka, topic, 0, range(10))
    ranges = reader.ranges((topic,), START, START + 1000)
    write(kafka, topic, 0, range(10, 20))
    reader.begin({place: (start + 5, end) for place, (start, end) in ranges.items()})
    assert read(reader) == [5, 6, 7, 8, 9]
    reader.begin(ranges)  # once more, as after an aborted transaction
    assert read(reader) == list(range(10))


def test_committed_offsets_of_a_new_broker_are_requested_until_its_coordinator_is_ready(
    kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    errors = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]

    class Starting(Consumer):
        def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
            if errors:
                raise KafkaException(KafkaError(errors.pop()))
            return super().committed(partitions, timeout=timeout)

    monkeypatch.setattr(range_reader, "Consumer", Starting)
    with closing(RangeReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}")) as reader:
        assert reader.committed([(topic, 0)])[topic, 0] < 0
    assert not errors


def test_missing_topic_is_told(kafka: Broker, reader: RangeReader) -> None:
    if kafka.durable:
        with pytest.raises(TopicError, match="Create it: millstream topics create"):
            reader.ranges((f"missing-{uuid.uuid4().hex}",), 0, 1)


@pytest.mark.durable
def test_deleted_records_are_told(kafka: Broker, make_topic: MakeTopic, reader: RangeReader) -> None:
    topic = make_topic(1)
    write(kafka, topic, 0, range(10))
    reader.begin({(topic, 0): (100, 110)})  # as if the topic had been made anew
    with pytest.raises(WorkerError, match="were deleted meanwhile"):
        read(reader)
