"""A batch that the Kafka client can't inflate stops its partition: the worker says where, and the others go on."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.load import vector_events
from millstream.consumers.observability import metrics as m
from millstream.schemas.wire import HEAD_BYTES
from tests.broker.clients import produce
from tests.broker.raw_batch import GZIP, LZ4, ZSTD, send_batch
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

INFLATED = 150_000_000  # bytes; librdkafka inflates up to 100 MB
pytest.importorskip("cramjam", reason="compresses the batch: make .venv/.comparison")
MessageSizeTooLargeError = pytest.importorskip("aiokafka.errors").MessageSizeTooLargeError


@pytest.mark.durable
def test_batch_that_cannot_be_inflated_is_named_and_can_be_skipped(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    topic = service.inputs[0]
    good = [(b"k", value) for value in vector_events(10, 1).values]
    produce(kafka.bootstrap, topic, good[:5], partition=0)
    send_batch(kafka.bootstrap, topic, [good[0][1][:HEAD_BYTES] + bytes(INFLATED)], codec=ZSTD)
    produce(kafka.bootstrap, topic, good[5:7], partition=0)
    produce(kafka.bootstrap, topic, good[7:], partition=1)
    series = f"{m.BLOCKED.name}{{offset=5,partition=0,topic={topic},what=batch}}"
    with Worker(service.file) as worker:
        worker.wait_for(lambda: worker.metrics().get(series, 0) > 0, 60, "standing still")
        worker.wait_for(lambda: worker.metrics()[m.PREDICTIONS.name] == 8, 60, "done with what can be read")
        assert f"{topic}/0 stands still at offset 5" in worker.log
        assert worker.stop() == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    consumer.close()
    with Worker(service.file) as worker:
        worker.wait_for(lambda: worker.metrics().get(m.PREDICTIONS.name) == 2, 60, "behind it")
        assert series not in worker.metrics()
        assert worker.stop() == 0


@pytest.mark.durable
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_broker_refuses_such_a_batch_where_it_stores_the_topic_uncompressed(kafka: Broker, codec: int) -> None:
    """The defence that docs/security.md names: at its default the broker stores the batch."""
    topics = {"compressed": "producer", "inflated": "uncompressed"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    suffix = f"{codec}-{uuid.uuid4().hex[:8]}"
    asked = [NewTopic(f"{name}-{suffix}", 1, 1, config={"compression.type": how}) for name, how in topics.items()]
    for future in admin.create_topics(asked).values():
        future.result()
    send_batch(kafka.bootstrap, f"compressed-{suffix}", [bytes(20_000_000)], codec=codec)
    with pytest.raises(MessageSizeTooLargeError):
        send_batch(kafka.bootstrap, f"inflated-{suffix}", [bytes(20_000_000)], codec=codec)
