"""Records handed over in bulk are those that `produce` would have handed over; one that fails is told, whatever the delivery."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from millstream.consumers.errors import DeliveryFailed, TransactionAborted
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.consumers.sink.bulk import LIBRARY, Bulk
from millstream.consumers.sink.delivery import AtLeastOnce
from millstream.consumers.sink.transactions import ExactlyOnce
from millstream.schemas.native import VARIABLE, Native
from millstream.schemas.packed import Packed
from tests.broker.clients import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.consumers.record_types import HeaderList
    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="consumers/sink/bulk.c is not compiled")
MURMUR = {"partitioner": "murmur2_random"}


def on_error(error: KafkaError) -> None:
    raise AssertionError(error)


def producer(broker: Broker, **settings: Any) -> Producer:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap, "error_cb": on_error, **MURMUR, **dotted})


def by_key(broker: Broker, topic: str, count: int) -> dict[bytes, list[tuple[int | None, bytes | None]]]:
    """Partition and value of the records of each key, in the order of their offsets."""
    found: dict[bytes, list[tuple[int | None, bytes | None]]] = {}
    for message in read_all(broker.bootstrap, topic, count):
        key = message.key()
        if key is not None:
            assert isinstance(key, bytes)
            found.setdefault(key, []).append((message.partition(), message.value()))
    return found


@pytest.mark.parametrize("pack", [list, Packed.of], ids=["objects", "packed"])
def test_records_are_those_of_produce(
    kafka: Broker, make_topic: MakeTopic, pack: Callable[[list[bytes]], list[bytes]]
) -> None:
    keys = [
        None if number % 7 == 0 else b"" if number % 11 == 0 else b"key-%d" % (number % 13) for number in range(300)
    ]
    values = [b"%d" % number * (number % 5) for number in range(300)]
    mine, theirs = make_topic(), make_topic()
    client = producer(kafka)
    assert Bulk(client, on_error).produce(mine, pack(values), keys) == 300
    for value, key in zip(values, keys, strict=True):
        client.produce(theirs, value, key)
    assert client.flush(30) == 0
    found = by_key(kafka, mine, 300)
    assert found == by_key(kafka, theirs, 300)
    assert sum(map(len, found.values())) == 300 - keys.count(None)


@pytest.mark.parametrize("pack", [list, Packed.of], ids=["objects", "packed"])
def test_records_with_headers_are_those_of_produce(
    kafka: Broker, make_topic: MakeTopic, pack: Callable[[list[bytes]], list[bytes]]
) -> None:
    values = [b"%d" % number * (number % 5) for number in range(100)]
    keys = [None if number % 7 == 0 else b"" if number % 11 == 0 else b"key-%d" % number for number in range(100)]
    kinds: list[HeaderList] = [
        [],
        [("trace", b"t"), ("né", b""), ("trace", None)],
        [("né", b"\0x")],
        [("trac", b"no"), ("traces", b"no"), ("", b"no")],
        [("other", b"no"), ("trace", b"x" * 3000), ("other", None)],
        [("trace", b"%d" % number) for number in range(50)],
    ]
    of_events = [RecordHeaders.of(kinds[number % len(kinds)]) for number in range(100)]
    headers = HeaderRows(Packed.of([own.packed for own in of_events]), {"trace", "né", "missing"})
    mine, theirs = make_topic(), make_topic()
    client = producer(kafka)
    bulk = Bulk(client, on_error)
    assert bulk.produce(mine, pack(values), keys, headers) == 100
    for value, key, of_event in zip(values, keys, of_events, strict=True):
        client.produce(theirs, value, key, headers=[*of_event.named({"trace", "né"})])
    assert client.flush(30) == 0
    found, expected = (
        Counter((m.partition() if m.key() is not None else -1, m.key(), m.value(), str(m.headers())) for m in read)
        for read in (read_all(kafka.bootstrap, mine, 100), read_all(kafka.bootstrap, theirs, 100))
    )
    assert found == expected
    assert sum(found.values()) == 100


def test_full_queue_takes_a_part_of_the_records_with_headers(kafka: Broker, make_topic: MakeTopic) -> None:
    client = producer(kafka, queue_buffering_max_messages=10, linger_ms=60_000)
    bulk = Bulk(client, on_error)
    topic, values = make_topic(), [b"%d" % number for number in range(25)]
    headers = HeaderRows.of_columns([("h", Packed.of(values))])
    assert bulk.produce(topic, values, [b"k"] * 25, headers) == 10
    assert bulk.produce(topic, values, [b"k"] * 25, headers) == 0


def test_record_with_headers_that_is_refused_is_told(kafka: Broker, make_topic: MakeTopic) -> None:
    bulk = Bulk(producer(kafka, message_max_bytes=1000), on_error)
    with pytest.raises(KafkaException) as told:
        bulk.produce(
            make_topic(), [b"v", b"x" * 2000], [b"k", b"k"], HeaderRows.of_columns([("h", Packed.of([b"a", b"b"]))])
        )
    assert told.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_what_the_full_queue_did_not_take_is_told_and_may_follow(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client = producer(kafka, queue_buffering_max_messages=10, linger_ms=60_000)
    bulk = Bulk(client, on_error)
    values = [b"%d" % number for number in range(25)]
    taken = bulk.produce(topic, values, [b"k"] * 25)
    assert taken == 10
    assert bulk.produce(topic, values[taken:], [b"k"] * 15) == 0
    while taken < 25:
        assert client.flush(30) == 0
        taken += bulk.produce(topic, values[taken:], [b"k"] * (25 - taken))
    assert client.flush(30) == 0
    assert [value for _, value in by_key(kafka, topic, 25)[b"k"]] == values


def test_a_record_that_the_client_refuses_is_told(kafka: Broker, make_topic: MakeTopic) -> None:
    client = producer(kafka, message_max_bytes=1000)
    with pytest.raises(KafkaException) as refused:
        Bulk(client, on_error).produce(make_topic(), [b"small", b"x" * 2000], [b"a", b"b"])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_producer_that_is_laid_out_otherwise_is_left_alone(kafka: Broker) -> None:
    with pytest.raises(LookupError, match="keeps librdkafka's handle elsewhere"):
        Bulk(producer(kafka), print)


def test_nothing_is_handed_to_a_closed_producer(kafka: Broker, make_topic: MakeTopic) -> None:
    client = producer(kafka)
    bulk = Bulk(client, on_error)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        bulk.produce(make_topic(), [b"value"], [b"key"])


@pytest.fixture
def exactly_once(kafka: Broker) -> Iterator[ExactlyOnce]:
    """Of a worker that is in no group: offsets are not looked at by these tests."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex})
    assignment = Assignment()
    assignment.group_metadata = consumer.consumer_group_metadata()
    soon = {"topic.metadata.propagation.max.ms": 500, "topic.metadata.refresh.interval.ms": 500}
    delivery = ExactlyOnce(
        {"bootstrap.servers": kafka.bootstrap, **soon},
        transactional_id=uuid.uuid4().hex,
        assignment=assignment,
        abandon=threading.Event(),
        metrics=Metrics("p"),
    )
    delivery.start()
    yield delivery
    consumer.close()


@pytest.mark.durable
def test_a_record_that_the_broker_refuses_is_told_by_the_next_transaction(
    make_topic: MakeTopic, exactly_once: ExactlyOnce
) -> None:
    topic = make_topic(max_message_bytes="1000")
    exactly_once.produce_all(topic, [b"x" * 2000], [b"key"])
    with pytest.raises(TransactionAborted):
        exactly_once.checkpoint({})
    exactly_once.abort()
    exactly_once.produce_all(topic, [b"x" * 2000], [b"key"])
    with pytest.raises(
        DeliveryFailed, match=f"a record for topic {topic} .* Raise `max.message.bytes` of topic {topic}"
    ):
        exactly_once.checkpoint({})


@pytest.mark.durable
def test_a_topic_that_is_not_there_is_told_at_the_latest_by_the_next_transaction(exactly_once: ExactlyOnce) -> None:
    topic = f"missing-{uuid.uuid4().hex[:8]}"
    exactly_once.produce_all(topic, [b"value"], [b"key"])
    with pytest.raises(TransactionAborted):
        exactly_once.checkpoint({})
    exactly_once.abort()
    with pytest.raises(DeliveryFailed, match=f"Create topic {topic}"):
        write(exactly_once, topic, [b"value"])


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topic of each call that sends many records."""
    in_bulk: list[str] = []
    produce = Bulk.produce

    def counted(self: Bulk, topic: str, *columns: Any) -> int:
        in_bulk.append(topic)
        return produce(self, topic, *columns)

    monkeypatch.setattr(Bulk, "produce", counted)
    return in_bulk


@pytest.mark.durable
def test_records_go_in_bulk_where_native_parts_are_on(
    kafka: Broker,
    make_topic: MakeTopic,
    native_environ: Mapping[str, str],
    exactly_once: ExactlyOnce,
    in_bulk: list[str],
) -> None:
    topic = make_topic()
    values = [b"%d" % number for number in range(100)]
    exactly_once.produce_all(topic, values, [b"key"] * 100, HeaderRows.of_columns([("h", Packed.of(values))]))
    exactly_once.checkpoint({})
    assert in_bulk == ([topic] if native_environ[VARIABLE] != Native.OFF else [])
    found = [(m.value(), m.headers()) for m in read_all(kafka.bootstrap, topic, 100)]
    assert found == [(value, [("h", value)]) for value in values]


def write(delivery: ExactlyOnce, topic: str, values: list[bytes]) -> None:
    delivery.produce_all(topic, values, [b"key"] * len(values))
    delivery.checkpoint({})


@pytest.mark.durable
@pytest.mark.usefixtures("native_environ")
def test_after_an_abort_the_next_transaction_counts_and_those_behind_it(
    kafka: Broker, make_topic: MakeTopic, exactly_once: ExactlyOnce
) -> None:
    topic = make_topic()
    for number in range(5):
        if number % 3 == 1:
            exactly_once.produce_all(topic, [b"%d" % number] * 3, [b"key"] * 3)
            exactly_once.abort()
        else:
            write(exactly_once, topic, [b"%d" % number] * 3)
    values = [value for _, value in by_key(kafka, topic, 9)[b"key"]]
    assert values == [b"0"] * 3 + [b"2"] * 3 + [b"3"] * 3


def at_least_once(broker: Broker, **settings: Any) -> AtLeastOnce:
    client = {"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": 500, **settings}
    return AtLeastOnce(client, abandon=threading.Event(), metrics=Metrics("p"))


@pytest.mark.durable
def test_at_least_once_writes_in_bulk_where_native_parts_are_on(
    kafka: Broker, make_topic: MakeTopic, native_environ: Mapping[str, str], in_bulk: list[str]
) -> None:
    topic = make_topic()
    delivery = at_least_once(kafka)
    for number in range(3):
        delivery.produce_all(topic, [b"%d" % number] * 100, [b"key"] * 100)
        delivery.checkpoint({})
    assert [value for _, value in by_key(kafka, topic, 300)[b"key"]] == [b"0"] * 100 + [b"1"] * 100 + [b"2"] * 100
    assert in_bulk == ([topic] * 3 if native_environ[VARIABLE] != Native.OFF and LIBRARY.exists() else [])


@pytest.mark.durable
@pytest.mark.usefixtures("native_environ")
def test_at_least_once_tells_of_a_record_that_the_broker_refuses(kafka: Broker, make_topic: MakeTopic) -> None:
    fine, topic = make_topic(), make_topic(max_message_bytes="1000")
    other, delivery = at_least_once(kafka), at_least_once(kafka)
    delivery.produce_all(fine, [b"x" * 2000] * 10, [b"key"] * 10)
    delivery.checkpoint({})
    delivery.produce_all(fine, [b"x" * 2000] * 10, [b"key"] * 10)
    delivery.produce_all(topic, [b"x" * 2000], [b"key"])
    for _ in range(2):  # nothing counts any more
        with pytest.raises(
            DeliveryFailed, match=f"a record for topic {topic} .* Raise `max.message.bytes` of topic {topic}"
        ):
            delivery.checkpoint({})
    other.produce_all(fine, [b"x" * 2000], [b"key"])
    other.checkpoint({})  # another producer's records fail by themselves


@pytest.mark.durable
@pytest.mark.usefixtures("native_environ")
def test_at_least_once_tells_of_a_topic_that_is_not_there(kafka: Broker) -> None:
    topic = f"missing-{uuid.uuid4().hex[:8]}"
    delivery = at_least_once(kafka)
    with pytest.raises(DeliveryFailed, match=f"Create topic {topic}"):
        delivery.produce_all(topic, [b"value"], [b"key"])
        delivery.checkpoint({})


@pytest.mark.durable
def test_at_least_once_waits_for_room_in_the_clients_queue(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    delivery = at_least_once(kafka, **{"queue.buffering.max.messages": 100})
    values = [b"%d" % number for number in range(1000)]
    delivery.produce_all(topic, values, [b"key"] * 1000)
    delivery.checkpoint({})
    assert [value for _, value in by_key(kafka, topic, 1000)[b"key"]] == values


def test_plugin_of_the_user_stays(kafka: Broker) -> None:
    with pytest.raises(KafkaException, match=r"theirs\.so"):
        at_least_once(kafka, **{"plugin.library.paths": "/no/theirs.so"})
