import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from millstream.topics import records
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.records import ReadRecord, RecordReader, RecordWriter
from millstream.topics.unreachable import unreachable
from tests.broker.choice import Broker
from tests.broker.clients import produce, read_all, wait_until
from tests.broker.raw_batch import send_batch
from tests.conftest import MakeTopic

AWAY = {"bootstrap.servers": "127.0.0.1:9"}


def client(kafka: Broker) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


def read(reader: RecordReader, count: int) -> list[ReadRecord]:
    found: list[ReadRecord] = []

    def enough() -> bool:
        found.extend(reader.read(100, 0.2))
        return len(found) >= count

    wait_until(enough, 30, f"{count} records")
    return found


def test_written_records_are_stored_in_order_and_counted(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    writer = RecordWriter(client(kafka), topic)
    for number in range(500):
        writer.write(b"%d" % number, b"same key")
    writer.flush()
    assert writer.delivered == 500
    assert [message.value() for message in read_all(kafka.bootstrap, topic, 500)] == [b"%d" % n for n in range(500)]


def test_key_goes_to_the_partition_that_java_clients_choose(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    writer = RecordWriter(client(kafka), topic)
    for key in (b"21", b"foobar"):
        writer.write(b"", key)
    writer.flush()
    found = {message.key(): message.partition() for message in read_all(kafka.bootstrap, topic, 2)}
    # Hashes from Kafka's own UtilsTest.testMurmur2: -973932308 and -790332482, as positive numbers, over 4 partitions.
    assert found == {b"21": (-973932308 & 0x7FFFFFFF) % 4, b"foobar": (-790332482 & 0x7FFFFFFF) % 4}


def test_reader_from_the_beginning_gives_all_that_a_record_holds(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    before = time.time() * 1000 - 1
    produce(kafka.bootstrap, topic, [(b"k", b"v", [("h", b"1"), ("h", None)]), (None, None)], partition=2)
    with RecordReader(client(kafka), [topic], from_beginning=True) as reader:
        first, second = read(reader, 2)
    assert before <= first.timestamp <= time.time() * 1000
    assert first == ReadRecord(topic, 2, 0, first.timestamp, b"k", b"v", (("h", b"1"), ("h", None)))
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())


def test_reader_from_the_end_gives_all_that_comes_after_it_was_made(kafka: Broker, make_topic: MakeTopic) -> None:
    topics = [make_topic(), make_topic()]
    for topic in topics:
        produce(kafka.bootstrap, topic, [(b"k", b"early")])
    with RecordReader(client(kafka), topics, from_beginning=False) as reader:
        for topic in topics:
            produce(kafka.bootstrap, topic, [(b"k", b"late")])
        records = read(reader, 2)
    assert sorted((record.topic, record.value) for record in records) == sorted((topic, b"late") for topic in topics)


def test_reader_of_a_quiet_topic_returns_after_the_timeout(kafka: Broker, make_topic: MakeTopic) -> None:
    with RecordReader(client(kafka), [make_topic()], from_beginning=True) as reader:
        assert reader.read(10, 0.05) == []


@pytest.mark.durable
def test_missing_topic_is_told_with_what_to_do(kafka: Broker) -> None:
    with pytest.raises(TopicError, match=r"topic not-there: .* Create it"):
        RecordReader(client(kafka), ["not-there"], from_beginning=True)
    with pytest.raises(TopicError, match=r"topic not-there: .* Create it"):
        RecordWriter(client(kafka), "not-there")


@pytest.mark.durable
def test_record_that_the_topic_refuses_is_an_error(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="1000")
    writer = RecordWriter(client(kafka), topic)
    writer.write(b"small", None)
    writer.write(bytes(5000), None)
    with pytest.raises(
        TopicError, match=f"could not be written to topic {topic}: .* Raise the topic's `max.message.bytes`"
    ):
        writer.flush()


def test_broker_that_is_away_is_told_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.topics.records.ANSWER_TIMEOUT", 0.5)
    with pytest.raises(BrokerUnreachableError, match=r"no Kafka broker answers at 127\.0\.0\.1:9 "):
        RecordReader(AWAY, ["t"], from_beginning=True)
    with pytest.raises(BrokerUnreachableError, match=r"no Kafka broker answers at 127\.0\.0\.1:9 "):
        RecordWriter(AWAY, "t")


@pytest.mark.durable  # the mock takes no batches of our own making
def test_header_names_that_are_not_utf8_are_no_headers(kafka: Broker, make_topic: MakeTopic) -> None:
    """Many, for Python specialises calls that are made often, and then finds no error that confluent-kafka only left set."""
    pytest.importorskip("aiokafka", reason="the comparison job's packages: make .venv/.comparison")
    topic = make_topic()
    for _ in range(3):
        send_batch(kafka.bootstrap, topic, [b"v"] * 100, name=b"\xff")
        send_batch(kafka.bootstrap, topic, [b"v"], name=b"a")
    with RecordReader(client(kafka), [topic], from_beginning=True) as reader:
        headers = [record.headers for record in read(reader, 303)]
    assert headers == [*[None] * 100, (("a", b"v"),)] * 3


class Leaderless(Consumer):
    """A client that is told of a partition without a leader, as librdkafka says it, so many times."""

    times = 2

    def get_watermark_offsets(self, *args: Any, **options: Any) -> Any:
        if self.times:
            self.times -= 1
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return super().get_watermark_offsets(*args, **options)


def test_leader_of_a_partition_is_waited_for_and_a_partition_that_is_not_there_is_told(
    kafka: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    consumer = Leaderless({"bootstrap.servers": kafka.bootstrap, "group.id": "any"})
    assert records.bounds(consumer, topic, 0) == (0, 0)
    with pytest.raises(KafkaException) as raised:
        records.bounds(consumer, topic, 99)
    assert raised.value.args[0].code() in {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
    consumer.close()


def test_partition_that_gets_no_leader_is_no_missing_one(
    kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ANSWER_TIMEOUT", 2.0)
    monkeypatch.setattr(Leaderless, "times", 1000)
    consumer = Leaderless({"bootstrap.servers": kafka.bootstrap, "group.id": "any"})
    with pytest.raises(KafkaException) as raised:
        records.bounds(consumer, make_topic(), 0)
    consumer.close()
    assert "has no leader now" in str(unreachable(kafka.bootstrap, raised.value.args[0]))
