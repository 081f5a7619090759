"""The demo's broker: what it does, and the limits that its docstring states."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.topics.embedded import EmbeddedBroker
from tests.broker.clients import committed, produce, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(["made-at-start"]) as running:
        yield running


def _partition_count(broker: EmbeddedBroker, topic: str) -> int:
    # A consumer that only asks makes no topic, so this sees what is there.
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looks"})
    try:
        return len(consumer.list_topics(topic, timeout=5).topics[topic].partitions)
    finally:
        consumer.close()


def test_topics_exist_with_four_partitions(broker: EmbeddedBroker) -> None:
    broker.ensure_topics(["made-later", "made-at-start"])
    counts = [_partition_count(broker, topic) for topic in ("made-at-start", "made-later", "never-made")]
    assert counts == [EmbeddedBroker.partitions, EmbeddedBroker.partitions, 0]


def test_another_process_can_write(broker: EmbeddedBroker) -> None:
    program = (
        "import sys; from confluent_kafka import Producer; p = Producer({'bootstrap.servers': sys.argv[1]});"
        "p.produce('from-outside', b'hello', b'key'); sys.exit(p.flush(10))"
    )
    broker.ensure_topics(["from-outside"])
    subprocess.run([sys.executable, "-c", program, broker.bootstrap], check=True, timeout=30)
    assert [m.value() for m in read_all(broker.bootstrap, "from-outside", count=1)] == [b"hello"]


def test_records_keep_null_keys_headers_and_timestamps(broker: EmbeddedBroker) -> None:
    broker.ensure_topics(["whole"])
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("whole", None, b"tombstone", partition=0)
    producer.produce("whole", b"v", None, partition=0, headers=[("h", b"1"), ("n", None)], timestamp=1_234_567_890_123)
    assert producer.flush(10) == 0
    tombstone, record = read_all(broker.bootstrap, "whole")
    assert (tombstone.key(), tombstone.value(), record.key(), record.value()) == (b"tombstone", None, None, b"v")
    assert record.headers() == [("h", b"1"), ("n", None)]
    assert record.timestamp()[1] == 1_234_567_890_123


def test_commits_are_kept_for_the_next_consumer_of_the_group(broker: EmbeddedBroker) -> None:
    broker.ensure_topics(["commits"])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("commits", 3, 42)], asynchronous=False)
    consumer.close()
    assert committed(broker.bootstrap, "g", "commits") == {3: 42}


def test_a_partition_keeps_its_last_five_megabytes_and_moves_its_first_offset(broker: EmbeddedBroker) -> None:
    broker.ensure_topics(["long"])
    for _ in range(8):  # in several requests: whole record sets are dropped
        produce(broker.bootstrap, "long", [(None, bytes(1000))] * 1000, partition=0)
    looks = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looks"})
    first, end = looks.get_watermark_offsets(TopicPartition("long", 0), timeout=5)
    looks.close()
    assert end == 8000
    assert 4_000_000 < (end - first) * 1000 <= 5_300_000
    assert len(read_all(broker.bootstrap, "long", timeout=10)) == end - first


def test_outside_its_context_it_has_no_address() -> None:
    with pytest.raises(RuntimeError, match="with EmbeddedBroker"):
        _ = EmbeddedBroker().bootstrap


def test_it_prints_nothing() -> None:
    program = "from millstream.topics.embedded import EmbeddedBroker\nwith EmbeddedBroker(['t']): pass"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == (b"", b"")
