from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.clients import produce
from tests.broker.ports import free_ports
from topics import lag
from topics.errors import BrokerUnreachableError, TopicError
from topics.lag import LagReader, PartitionLag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic


@pytest.fixture
def topic(kafka: Broker, make_topic: MakeTopic) -> str:
    """Ten records in partition 0, five in partition 1, none in the others."""
    name = make_topic()
    produce(kafka.bootstrap, name, [(None, b"v")] * 10, partition=0)
    produce(kafka.bootstrap, name, [(None, b"v")] * 5, partition=1)
    return name


@pytest.fixture
def reader(kafka: Broker, topic: str) -> Iterator[LagReader]:
    reader = LagReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}", [topic])
    yield reader
    reader.close()


def commit(kafka: Broker, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": f"group-of-{topic}", "enable.auto.commit": False}
    )
    consumer.commit(offsets=[TopicPartition(topic, *place) for place in offsets.items()], asynchronous=False)
    consumer.close()


def by_partition(lags: list[PartitionLag]) -> list[tuple[int | None, int, int]]:
    return [(entry.committed, entry.end, entry.messages) for entry in lags]


def test_all_is_lag_before_anything_is_committed(reader: LagReader) -> None:
    assert by_partition(reader.read()) == [(None, 10, 10), (None, 5, 5), (None, 0, 0), (None, 0, 0)]


def test_committed_records_are_no_lag(kafka: Broker, topic: str, reader: LagReader) -> None:
    commit(kafka, topic, {0: 7, 1: 5, 2: 0})
    assert by_partition(reader.read()) == [(7, 10, 3), (5, 5, 0), (0, 0, 0), (None, 0, 0)]
    produce(kafka.bootstrap, topic, [(None, b"v")] * 2, partition=1)
    assert by_partition(reader.read()) == [(7, 10, 3), (5, 7, 2), (0, 0, 0), (None, 0, 0)]


def test_seconds_are_the_age_of_the_oldest_unprocessed_record(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    now = time.time()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for age in (500, 300, 100):
        producer.produce(topic, b"v", partition=0, timestamp=int((now - age) * 1000))
    producer.flush(10)
    commit(kafka, topic, {0: 1})
    reader = LagReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}", [topic])
    first, *others = reader.read()
    commit(kafka, topic, {0: 3})
    second = reader.read()[0]
    reader.close()
    assert first.seconds == pytest.approx(300 + time.time() - now, abs=2)
    assert [entry.seconds for entry in others] == [0, 0, 0]
    assert (second.messages, second.seconds) == (0, 0)


@pytest.mark.durable
def test_records_that_retention_has_deleted_are_nobodys_lag(kafka: Broker, topic: str, reader: LagReader) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415  (only here)

    commit(kafka, topic, {0: 2})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [future] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    future.result(10)
    assert by_partition(reader.read())[0] == (2, 10, 4)


@pytest.mark.durable
def test_topic_that_is_not_there_is_told(kafka: Broker) -> None:
    reader = LagReader({"bootstrap.servers": kafka.bootstrap}, "any", ["no-such-topic"])
    with pytest.raises(TopicError, match=r"no-such-topic .* millstream topics create"):
        reader.read()
    reader.close()


def test_broker_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "ANSWER_TIMEOUT", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    reader = LagReader({"bootstrap.servers": address, "log_level": 0}, "any", ["any"])
    with pytest.raises(BrokerUnreachableError, match=address):
        reader.read()
    reader.close()
