"""Both readers give the same: all records of what was assigned, what comes in a record's place, and the consumer's callbacks."""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition, cimpl

from millstream.consumers.client_handle import handle_of
from millstream.consumers.records import Records
from millstream.consumers.source import fetched
from millstream.consumers.source.fetched import LIBRARY, Fetched
from millstream.consumers.source.reader import OneByOne, Reader, reader_of
from tests.broker.clients import wait_until
from tests.consumers.test_records import rows
from tests.native import with_native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.consumers.record_types import Partition
    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

COMPILED = pytest.mark.skipif(not LIBRARY.exists(), reason="consumers/source/fetched.c is not compiled: no C compiler")
KINDS = pytest.mark.parametrize("kind", [pytest.param(Fetched, marks=COMPILED), OneByOne])
COUNT = 300


class Member:
    """A member of a group of its own that reads as a worker does: partitions are paused until they are followed."""

    def __init__(self, broker: Broker, group: str, kind: type) -> None:
        self.events: list[tuple[int, Partition]] = []
        self.assigned: list[TopicPartition] = []
        error_cb = self._on_error
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "error_cb": error_cb,
            }
        )
        note: Callable[[KafkaError, Partition], None] = lambda error, at: self.events.append((error.code(), at))  # noqa: E731
        arguments = (self.consumer, error_cb, note) if kind is Fetched else (self.consumer, note)
        self.reader: Reader = kind(*arguments)

    def _on_error(self, error: KafkaError) -> None:
        """A broker that is busy answers late."""

    def join(self, *topics: str) -> None:
        """Until all of their partitions are assigned."""
        self.assigned = []
        self.consumer.subscribe(list(topics), on_assign=self._assign)
        self.wait_for(lambda: bool(self.assigned), "an assignment")
        self.consumer.resume(self.assigned)

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        self.assigned = partitions

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Read nothing, let callbacks come."""
        wait_until(lambda: not self.reader.consume(1, 0.1) and condition(), 60, what)

    def read(self, count: int) -> list[tuple[Any, ...]]:
        """So many records."""
        parts: list[Records] = []
        deadline = time.monotonic() + 60
        while sum(map(len, parts)) < count:
            assert time.monotonic() < deadline, f"{sum(map(len, parts))} of {count} records came"
            parts += [part for part in (self.reader.consume(1000, 0), self.reader.consume(1, 0.1)) if part]
        return rows(Records.concat(parts))


def produce_header(broker: Broker, topic: str, name: bytes) -> None:
    """Produce a record with a header of this name, which confluent-kafka's own producer takes as text only."""
    error_cb: Callable[[KafkaError], None] = lambda _error: None  # noqa: E731
    producer = Producer({"bootstrap.servers": broker.bootstrap, "error_cb": error_cb})
    handle, library = ctypes.c_void_p(handle_of(producer, error_cb)[0]), ctypes.CDLL(cimpl.__file__)
    to = ctypes.c_int(1), ctypes.c_char_p(topic.encode())  # RD_KAFKA_VTYPE_TOPIC, and so on
    value = ctypes.c_int(4), ctypes.c_char_p(b"v"), ctypes.c_size_t(1)
    header = ctypes.c_int(9), ctypes.c_char_p(name), ctypes.c_char_p(b"x"), ctypes.c_ssize_t(1)
    copy = ctypes.c_int(7), ctypes.c_int(2)
    assert library.rd_kafka_producev(handle, *to, *value, *header, *copy, ctypes.c_int(0)) == 0
    assert producer.flush(30) == 0


class Mock:
    """The mock broker inside a client of its own."""

    def __init__(self, consumer: Consumer, error_cb: object) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        mock_of = self._library.rd_kafka_handle_mock_cluster
        mock_of.restype = ctypes.c_void_p
        self._mock = ctypes.c_void_p(mock_of(ctypes.c_void_p(handle_of(consumer, error_cb)[0])))

    def create(self, topic: str) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._mock, topic.encode(), 1, 1) == 0

    def fail(self, topic: str, code: int) -> None:
        """Answer questions about the topic so."""
        self._library.rd_kafka_mock_topic_set_error(self._mock, topic.encode(), code)


@contextmanager
def member(broker: Broker, group: str, kind: type) -> Iterator[Member]:
    one = Member(broker, group, kind)
    try:
        yield one
    finally:
        one.consumer.close()


def produce(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(
            topic,
            None if number % 17 == 0 else b"%d" % number * (number % 3),
            None if number % 5 == 0 else b"key-%d" % (number % 7),
            timestamp=1_700_000_000_000 + number,
            headers=[("trace", b"%d" % number), ("trace", None), ("ü", b"")] if number % 4 == 0 else [],
        )
    assert producer.flush(30) == 0


@COMPILED
def test_they_read_the_same(kafka: Broker, make_topic: MakeTopic) -> None:
    topics = make_topic(), make_topic()
    for topic in topics:
        produce(kafka, topic)
    found = []
    for kind in (Fetched, OneByOne):
        with member(kafka, f"{topics[0]}-{kind.__name__}", kind) as one:
            one.join(*topics)
            found.append(sorted(one.read(2 * COUNT), key=lambda row: row[:2]))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * COUNT
    assert {len(row[-1]) for row in found[0] if row[-1]} == {3}


@KINDS
def test_ends_of_partitions_are_told(kafka: Broker, make_topic: MakeTopic, kind: type) -> None:
    topic = make_topic()
    produce(kafka, topic)
    with member(kafka, topic, kind) as one:
        one.join(topic)
        one.read(COUNT)
        ends = {(KafkaError._PARTITION_EOF, (p.topic, p.partition)) for p in one.assigned}
        one.wait_for(lambda: set(one.events) >= ends, "the ends of all partitions")
        assert set(one.events) == ends


@KINDS
@pytest.mark.durable  # the mock knows a member that left until its session ends
def test_partitions_that_come_again_are_read(kafka: Broker, make_topic: MakeTopic, kind: type) -> None:
    topic = make_topic()
    produce(kafka, topic)
    with member(kafka, topic, kind) as one:
        for _ in range(3):
            one.join(topic)
            assert len(one.read(COUNT)) == COUNT
            one.consumer.unsubscribe()
            one.wait_for(lambda: not one.consumer.assignment(), "a revocation")


@KINDS
def test_what_was_sought_and_paused_is_read_once(kafka: Broker, make_topic: MakeTopic, kind: type) -> None:
    topic = make_topic()
    produce(kafka, topic)
    with member(kafka, topic, kind) as one:
        one.join(topic)
        one.read(COUNT // 2)
        one.consumer.pause(one.assigned)
        for partition in one.assigned:
            one.consumer.seek(TopicPartition(topic, partition.partition, 0))
        one.consumer.resume(one.assigned)
        found = sorted(one.read(COUNT))
        assert len(found) == len({row[:2] for row in found}) == COUNT


@pytest.mark.broker
@KINDS
@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_errors_are_called_back(kind: type, code: int) -> None:
    """A topic that can't be had any more: the client calls `error_cb` while records are waited for."""
    told: list[int] = []
    called: list[int] = []
    error_cb: Callable[[KafkaError], None] = lambda error: called.append(error.code())  # noqa: E731
    note: Callable[[KafkaError, Partition], None] = lambda error, _partition: told.append(error.code())  # noqa: E731
    consumer = Consumer(
        {
            "test.mock.num.brokers": 1,
            "group.id": "group",
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 500,
            "topic.metadata.propagation.max.ms": 0,
            "error_cb": error_cb,
        }
    )
    mock = Mock(consumer, error_cb)
    mock.create("in")
    reader: Reader = Fetched(consumer, error_cb, note) if kind is Fetched else OneByOne(consumer, note)
    consumer.assign([TopicPartition("in", 0, 0)])
    wait_until(lambda: not reader.consume(10, 0.1) and KafkaError._PARTITION_EOF in told, 60, "the partition's end")
    mock.fail("in", code)
    wait_until(lambda: not reader.consume(10, 0.1) and bool(called), 60, "the error")
    consumer.close()


@pytest.mark.broker
@COMPILED
def test_what_a_callback_raises_is_raised() -> None:
    def assigned(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        raise LookupError("not mine")

    error_cb = print
    consumer = Consumer({"test.mock.num.brokers": 1, "group.id": "group", "error_cb": error_cb})
    Mock(consumer, error_cb).create("in")
    reader = Fetched(consumer, error_cb, lambda _error, _partition: None)
    consumer.subscribe(["in"], on_assign=assigned)
    with pytest.raises(LookupError, match="not mine"):
        wait_until(lambda: bool(reader.consume(10, 0.1)), 60, "an assignment")
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.consume(1, 0)


@pytest.mark.parametrize("kind", [pytest.param(Fetched, marks=COMPILED), OneByOne])
def test_choice_of_native_parts_is_followed(kafka: Broker, kind: type) -> None:
    error_cb = print
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none", "error_cb": error_cb})
    with with_native(on=kind is Fetched):
        assert type(reader_of(consumer, error_cb, lambda _error, _partition: None)) is kind
    consumer.close()


def test_without_the_library_they_are_read_one_by_one(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fetched, "LIBRARY", tmp_path / "missing.so")
    error_cb = print
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none", "error_cb": error_cb})
    reader = reader_of(consumer, error_cb, lambda _error, _partition: None)
    assert isinstance(reader, OneByOne)
    consumer.close()


@KINDS
def test_record_with_a_header_name_that_is_not_utf8_is_read_among_others(
    kafka: Broker, make_topic: MakeTopic, kind: type
) -> None:
    topic = make_topic()
    for name in (b"before", b"\xff\xfe", b"after"):
        produce_header(kafka, topic, name)
    with member(kafka, f"group-of-{topic}", kind) as one:
        one.join(topic)
        headers = [found[-1] for found in one.read(3)]
    readable = [[("after", b"x")], [("before", b"x")]]
    lost = [None] if kind is OneByOne else [[("\ufffd\ufffd", b"x")]]
    assert sorted(headers, key=str) == sorted(readable + lost, key=str)
