"""Reading topics from a time on."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from millstream.topics.errors import TopicError
from millstream.topics.since_reader import SinceReader
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

NOW = int(time.time() * 1000)
MINUTE = 60_000


def write(kafka: Broker, topic: str, values: list[tuple[bytes, int]], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value, timestamp in values:
        producer.produce(topic, value, b"k", partition, timestamp=timestamp)
    assert producer.flush(30) == 0


def values_of(reader: SinceReader, topic: str) -> set[bytes | None]:
    """Read to the end."""
    found: set[bytes | None] = set()
    until = time.monotonic() + 30
    while not reader.is_at_end:
        assert time.monotonic() < until
        for name, fetched in reader.read(100, 0.2).items():
            assert name == topic
            found |= set(fetched.values)
    return found


def took(reader: SinceReader, found: set[bytes | None], most: int = 10) -> bool:
    """Read once; returns whether anything was found so far."""
    for fetched in reader.read(most, 0.2).values():
        found |= set(fetched.values)
    return bool(found)


def test_topic_is_read_from_a_time_on(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    write(kafka, topic, [(b"new", NOW), (b"newer", NOW + 1)])
    write(kafka, topic, [(b"other", NOW)], partition=1)
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: NOW - MINUTE}) as reader:
        assert reader.behind == 3
        assert reader.read_until == -math.inf
        assert values_of(reader, topic) == {b"new", b"newer", b"other"}
        assert (reader.behind, reader.read_until) == (0, math.inf)
        write(kafka, topic, [(b"later", NOW + 2)])
        found: set[bytes | None] = set()
        wait_until(lambda: took(reader, found), 30, "the record")
        assert found == {b"later"}
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: NOW + 5 * MINUTE}) as reader:
        # Librdkafka's mock of a broker knows no times, so all is read from it.
        assert values_of(reader, topic) == (set() if kafka.durable else {b"new", b"newer", b"other", b"later"})


@pytest.mark.durable
def test_older_records_are_not_read(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    write(kafka, topic, [(b"old", NOW - 3 * MINUTE), (b"new", NOW)])
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: NOW - MINUTE}) as reader:
        assert values_of(reader, topic) == {b"new"}
        reader.seek({topic: NOW - 4 * MINUTE})
        assert values_of(reader, topic) == {b"old", b"new"}


@pytest.mark.parametrize("ahead", [0, 50 * MINUTE], ids=["now", "future"])
def test_record_of_the_future_does_not_mean_that_all_before_it_were_read(
    kafka: Broker, make_topic: MakeTopic, ahead: int
) -> None:
    topic = make_topic(1)
    write(kafka, topic, [(b"first", NOW - 3), (b"ahead", NOW - 2 + ahead), *[(b"more", NOW - 1)] * 9])
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: NOW - MINUTE}) as reader:
        found: set[bytes | None] = set()
        while b"ahead" not in found and took(reader, found, 2):
            assert b"more" not in found
        assert not reader.is_at_end
        assert reader.read_until <= NOW - 2
        values_of(reader, topic)
        assert reader.read_until == math.inf


@pytest.mark.durable
def test_open_transaction_is_the_end_until_it_commits(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    write(kafka, topic, [(b"first", NOW)])
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"second", timestamp=NOW)
    assert producer.flush(30) == 0
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: NOW}) as reader:
        assert values_of(reader, topic) == {b"first"}
        assert reader.behind == 0
        producer.commit_transaction(30)
        found: set[bytes | None] = set()
        wait_until(lambda: took(reader, found), 30, "the record")
        assert found == {b"second"}


def test_existing_records_are_read_though_others_write_on(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    write(kafka, topic, [(b"first", NOW)])
    write(kafka, topic, [(b"second", NOW)], partition=1)
    found: list[bytes | None] = []
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: 0}) as reader:
        for fetched in reader.existing():
            found += fetched.values
            assert len(found) < 100
            # There is always a newer record, so the reader never is at the end of this partition.
            write(kafka, topic, [(b"later", NOW)])
    assert {b"first", b"second"} <= set(found)


def test_existing_records_of_an_empty_topic_are_none(kafka: Broker, make_topic: MakeTopic) -> None:
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {make_topic(): 0}) as reader:
        assert list(reader.existing()) == []


@pytest.mark.durable
def test_transaction_markers_at_the_end_are_no_records(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        end(30)
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: 0}) as reader:
        assert [value for fetched in reader.existing() for value in fetched.values] == [b"kept"]


def test_records_that_do_not_come_are_told(
    kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.topics.since_reader.IDLE_TIMEOUT", 0.0)
    topic = make_topic(1)
    write(kafka, topic, [(b"first", NOW)])
    with SinceReader({"bootstrap.servers": kafka.bootstrap}, {topic: 0}) as reader:
        monkeypatch.setattr(reader, "read", lambda *_: {})
        with pytest.raises(TopicError, match=rf"topic {topic}: 1 records are not read yet, and none has come for 0 s"):
            list(reader.existing())
