from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions

from millstream.topics import lag, records
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.lag import LagReader, PartitionLag
from millstream.topics.local.ports import free_ports
from tests.broker.clients import create_topic, produce, read_all, wait_until
from tests.broker.maven import MavenKafka, missing_for_maven

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


def test_broker_that_has_just_started_is_asked_again(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Moving(Consumer):
        def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
            asked.append(len(partitions))
            if len(asked) < 3:
                raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
            return super().committed(partitions, timeout=timeout)

    monkeypatch.setattr(lag, "Consumer", Moving)
    with closing(LagReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}", [topic])) as reader:
        assert [entry.messages for entry in reader.read()] == [10, 5, 0, 0]
    assert asked == [4, 4, 4]


def test_committed_records_are_no_lag(kafka: Broker, topic: str, reader: LagReader) -> None:
    commit(kafka, topic, {0: 7, 1: 5, 2: 0})
    assert by_partition(reader.read()) == [(7, 10, 3), (5, 5, 0), (0, 0, 0), (None, 0, 0)]
    produce(kafka.bootstrap, topic, [(None, b"v")] * 2, partition=1)
    assert by_partition(reader.read()) == [(7, 10, 3), (5, 7, 2), (0, 0, 0), (None, 0, 0)]


@pytest.mark.durable
def test_partitions_that_a_topic_gets_later_are_read(kafka: Broker, topic: str, reader: LagReader) -> None:
    commit(kafka, topic, {0: 7, 1: 5})
    assert [entry.messages for entry in reader.read()] == [3, 0, 0, 0]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    produce(kafka.bootstrap, topic, [(None, b"v")] * 2, partition=5)
    found = reader.read()
    assert [entry.messages for entry in found] == [3, 0, 0, 0, 0, 2]
    assert found[5].counted
    assert found[5].seconds is not None


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


def in_transactions(kafka: Broker, topic: str, *sizes: int) -> None:
    """A committed transaction of each size in partition 0; a negative size is aborted."""
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"writer-of-{topic}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    for size in sizes:
        producer.begin_transaction()
        for _ in range(abs(size)):
            producer.produce(topic, b"v", partition=0)
        if size > 0:
            producer.commit_transaction(30)
        else:
            producer.flush(10)  # an aborted record that was never written leaves no hole
            producer.abort_transaction(30)
    wait_for_transactions(kafka, topic)


@pytest.mark.durable
def test_offsets_behind_an_open_transaction_are_told(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    produce(kafka.bootstrap, topic, [(None, b"v")], partition=0)
    holder = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"holder-of-{topic}"})
    holder.init_transactions(30)
    holder.begin_transaction()
    holder.produce(topic, b"open", partition=0)
    holder.flush(10)
    produce(kafka.bootstrap, topic, [(None, b"behind")] * 3, partition=0)
    reader = LagReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}", [topic])
    (held,) = reader.read()
    holder.commit_transaction(30)
    wait_for_transactions(kafka, topic)
    (ended,) = reader.read()
    reader.close()
    assert (held.messages, held.held_back) == (1, 4)
    assert (ended.messages, ended.held_back) == (5, 0)


@pytest.mark.durable
def test_offsets_that_a_transaction_holds_are_not_waited_for(kafka: Broker, topic: str, reader: LagReader) -> None:
    """Of workers that commit all the time there is always one, and of one that hangs nobody knows when it ends."""
    commit(kafka, topic, {0: 7})
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"group-of-{topic}"})
    worker = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"worker-of-{topic}"})
    worker.init_transactions(30)
    worker.begin_transaction()
    worker.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], member.consumer_group_metadata(), 30)
    began = time.monotonic()
    assert by_partition(reader.read())[0] == (7, 10, 3)
    assert time.monotonic() - began < lag.ANSWER_TIMEOUT / 2
    worker.commit_transaction(30)
    wait_until(lambda: by_partition(reader.read())[0] == (9, 10, 1), 10, "the transaction's offsets")
    member.close()


def wait_for_transactions(kafka: Broker, topic: str) -> None:
    """Wait until none is open in partition 0: the broker confirms a commit first, and writes the transaction's end then."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]

    def end(level: IsolationLevel) -> int:
        [answer] = admin.list_offsets(asked, isolation_level=level).values()
        return int(answer.result(10).offset)

    def ended() -> bool:
        return end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED)

    wait_until(ended, 30, f"the transactions over {topic} to end")


def reader_of(kafka: Broker, topic: str, start: str = "earliest") -> LagReader:
    return LagReader({"bootstrap.servers": kafka.bootstrap}, f"group-of-{topic}", [topic], start=start)


@pytest.mark.durable
def test_ends_of_transactions_and_aborted_records_are_no_events(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    in_transactions(kafka, topic, 1, 1, -3, 2)  # offsets: event, end, event, end, 3 aborted, end, 2 events, end
    reader = reader_of(kafka, topic)
    [whole] = reader.read()
    assert (whole.end, whole.messages, whole.counted) == (11, 4, True)
    assert 0 < (whole.seconds or 0) < 60
    commit(kafka, topic, {0: 3})  # after the second event, as a worker commits
    assert [(lag.committed, lag.messages) for lag in reader.read()] == [(3, 2)]
    commit(kafka, topic, {0: 10})  # after the last event: only the transaction's end is left
    assert [(lag.messages, lag.seconds, lag.counted) for lag in reader.read()] == [(0, 0.0, True)]
    assert [(lag.messages, lag.seconds) for lag in reader.read()] == [(0, 0.0)]
    in_transactions(kafka, topic, 1)
    assert [lag.messages for lag in reader.read()] == [1]
    reader.close()


@pytest.mark.durable
def test_long_backlog_is_estimated_from_its_beginning(
    kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "MAX_COUNTED_OFFSETS", 20)
    topic = make_topic(partitions=1)
    in_transactions(kafka, topic, *[1] * 30)
    reader = reader_of(kafka, topic)
    for _ in range(2):  # the second from what the first has learnt
        [found] = reader.read()
        assert found.end == 60
        assert found.messages == pytest.approx(30, abs=2)
        assert not found.counted
    commit(kafka, topic, {0: 50})
    assert [(near.messages, near.counted) for near in reader.read()] == [(5, True)]
    reader.close()


@pytest.mark.durable
def test_records_of_an_open_transaction_are_no_lag_yet(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"open-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.flush(10)
    reader = reader_of(kafka, topic)
    assert by_partition(reader.read()) == [(None, 0, 0)]
    producer.commit_transaction(30)
    wait_for_transactions(kafka, topic)
    assert [found.messages for found in reader.read()] == [1]
    reader.close()


def test_group_that_begins_at_the_end_has_no_lag_before_it_begins(kafka: Broker, topic: str) -> None:
    reader = reader_of(kafka, topic, start="latest")
    assert [found.messages for found in reader.read()] == [0, 0, 0, 0]
    commit(kafka, topic, {0: 7})
    assert [found.messages for found in reader.read()] == [3, 0, 0, 0]
    reader.close()


@pytest.mark.durable
@pytest.mark.full  # the cleaner takes its time
def test_records_that_compaction_has_removed_are_no_lag(kafka: Broker, make_topic: MakeTopic) -> None:
    settings = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "100"}
    topic = make_topic(partitions=1, cleanup_policy="compact", **settings)
    produce(kafka.bootstrap, topic, [(b"same key", b"v")] * 50, partition=0)
    reader = reader_of(kafka, topic)
    others = 0

    def compacted() -> bool:
        """One record of the first fifty is left, and those that were written since."""
        nonlocal others
        produce(kafka.bootstrap, topic, [(f"key {others}".encode(), b"v")], partition=0)  # so that segments are closed
        others += 1
        return len(read_all(kafka.bootstrap, topic)) == 1 + others

    wait_until(compacted, 120, "the cleaner to compact the topic")
    [found] = reader.read()
    assert (found.end, found.messages) == (50 + others, 1 + others)
    reader.close()


@pytest.mark.durable
def test_records_that_retention_has_deleted_are_nobodys_lag(kafka: Broker, topic: str, reader: LagReader) -> None:
    commit(kafka, topic, {0: 2})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [future] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    future.result(10)
    found = reader.read()[0]
    assert by_partition([found]) == [(2, 10, 4)]
    assert (found.start, found.deleted) == (6, 4)


@pytest.mark.durable
def test_topic_that_is_not_there_is_told(kafka: Broker) -> None:
    reader = LagReader({"bootstrap.servers": kafka.bootstrap}, "any", ["no-such-topic"])
    with pytest.raises(TopicError, match=r"no-such-topic: .* millstream topics create"):
        reader.read()
    reader.close()


@pytest.mark.full
@pytest.mark.durable
def test_lag_is_read_again_after_the_broker_was_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    with MavenKafka() as broker:
        create_topic(broker.bootstrap, "events", 2, {})
        produce(broker.bootstrap, "events", [(None, b"x")] * 3)
        with closing(LagReader({"bootstrap.servers": broker.bootstrap}, "g", ("events",))) as reader:

            def lag() -> int:
                try:
                    return sum(one.messages for one in reader.read())
                except BrokerUnreachableError:
                    return -1

            wait_until(lambda: lag() == 3, 30, "the lag")
            monkeypatch.setattr("millstream.topics.lag.ANSWER_TIMEOUT", 1.0)  # a broker that is away is asked in vain
            for _ in range(2):  # each start raises the epoch of the partitions' leader
                broker.kill()
                assert lag() == -1
                broker.start()
                wait_until(lambda: lag() == 3, 60, "the lag after the outage")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.NOT_COORDINATOR, "The group's coordinator isn't ready: try again. Look into the broker's log"),
        (KafkaError._TIMED_OUT, "The group's coordinator isn't ready: try again. Look into the broker's log"),
        (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            "Grant READ on the topics and DESCRIBE on the group to the user of `kafka.client`",
        ),
        (KafkaError.UNKNOWN, "Look into the broker's log"),
    ],
)
def test_advice_fits_the_coordinators_error(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    class Refused(Consumer):
        def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
            raise KafkaException(KafkaError(code, "the reason"))

    monkeypatch.setattr(lag, "Consumer", Refused)
    monkeypatch.setattr(records, "ANSWER_TIMEOUT", 0.2)
    with (
        closing(LagReader({"bootstrap.servers": kafka.bootstrap}, "any", [topic])) as reader,
        pytest.raises(BrokerUnreachableError) as raised,
    ):
        reader.read()
    assert str(raised.value).startswith(f"the lag can't be read from {kafka.bootstrap}: the reason. {advice}.")


def test_topic_that_may_not_be_read_is_told_each_time(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Denied:
        """The client's message about a topic, which it gives once."""

        def topic(self) -> str:
            return topic

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return -1001

        def error(self) -> KafkaError:
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "the reason")

    denied, allowed = [Denied()], False

    class Refused(Consumer):
        def poll(self, timeout: float = -1) -> Any:
            if allowed:
                return super().poll(timeout)
            time.sleep(0.05)
            return denied.pop() if denied else None

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
            return super().consume(num_messages, timeout) if allowed else []

    monkeypatch.setattr(lag, "Consumer", Refused)
    produce(kafka.bootstrap, topic, [(None, b"x")])
    with closing(LagReader({"bootstrap.servers": kafka.bootstrap}, "any", [topic])) as reader:
        monkeypatch.setattr(lag, "ANSWER_TIMEOUT", 4.0)
        for _ in range(2):
            with pytest.raises(BrokerUnreachableError, match=r"the reason\. Grant READ on the topics"):
                reader.read()
        monkeypatch.setattr(lag, "ANSWER_TIMEOUT", 10.0)
        allowed = True
        assert all(one.counted and one.seconds is not None for one in reader.read())


def test_broker_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "ANSWER_TIMEOUT", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    reader = LagReader({"bootstrap.servers": address, "log_level": 0}, "any", ["any"])
    with pytest.raises(BrokerUnreachableError, match=address):
        reader.read()
    reader.close()


@pytest.mark.full
@pytest.mark.skipif(missing_for_maven() is not None, reason="restarts a broker of its own, which needs Java and Maven")
def test_topic_that_was_created_anew_on_a_cluster_of_some_age() -> None:
    """Its partitions have lower leader epochs than the old ones, for which the client that reads samples gets nothing."""
    with MavenKafka() as own:
        create_topic(own.bootstrap, "in", 1, {})
        own.restart()  # raises the partition's epoch
        produce(own.bootstrap, "in", [(None, b"v")] * 10)
        with closing(LagReader({"bootstrap.servers": own.bootstrap}, "group", ["in"])) as reader:
            assert reader.read()[0].messages == 10
            admin = AdminClient({"bootstrap.servers": own.bootstrap})
            admin.delete_topics(["in"])["in"].result()
            with pytest.raises(TopicError, match="millstream topics create"):
                wait_until(lambda: not reader.read(), 30, "the topic to go")
            create_topic(own.bootstrap, "in", 1, {})
            produce(own.bootstrap, "in", [(None, b"v")] * 3)
            wait_until(
                lambda: (found := reader.read()[0]).messages == 3 and found.seconds is not None, 60, "the new lag"
            )
