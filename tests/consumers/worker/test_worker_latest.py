"""A pipeline that leaves out the past (`input.start: latest`): nothing that comes later is left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from benchmarks.load import vector_events
from tests.broker.clients import produce, wait_until
from tests.consumers.processes import Worker
from tests.consumers.service import VECTOR_INPUT, id_of, vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
INPUT = VECTOR_INPUT | {"start": "latest"}


def send(service: Service, first: int, last: int, partition: int) -> None:
    load = vector_events(last, seed=31)
    records = list(zip(load.keys, load.values, strict=True))[first:]
    produce(service.bootstrap, service.inputs[0], records, partition=partition)


def ids(first: int, last: int) -> Counter[str]:
    return Counter(f"event-{number:010d}" for number in range(first, last))


def predicted(service: Service) -> Counter[str]:
    return Counter(map(id_of, service.predictions()))


def test_what_retention_has_left_is_predicted(tmp_path: Path, kafka: Broker) -> None:
    service = vector_service(tmp_path, kafka, input=INPUT)
    [topic] = service.inputs
    send(service, 0, 10, partition=1)  # the past
    with Worker(service.file) as worker:
        worker.wait_ready()
        wait_until(lambda: len(service.committed()) == 4, 30, "the ends to be committed")
        send(service, 10, 20, partition=1)
        wait_until(lambda: service.committed()[topic, 1] == 20, 30, "the events to be committed")
        assert worker.stop() == 0
    send(service, 20, 40, partition=1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([TopicPartition(topic, 1, 30)])[TopicPartition(topic, 1)].result()
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait(60) == 0
        assert f"{topic}/1: retention has deleted the offsets from 20 to 29 before the group read them" in successor.log
    assert predicted(service) == ids(10, 20) + ids(30, 40)


@pytest.mark.full  # the client looks for new partitions every half minute
def test_partitions_that_a_topic_gets_are_read_from_their_beginning(tmp_path: Path, kafka: Broker) -> None:
    service = vector_service(tmp_path, kafka, input=INPUT)
    send(service, 0, 10, partition=1)  # the past
    with Worker(service.file) as worker:
        worker.wait_ready()
        wait_until(lambda: len(service.committed()) == 4, 30, "the ends to be committed")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        [topic] = service.inputs
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
        wait_until(
            lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 6, 30, "the partitions"
        )
        send(service, 10, 30, partition=5)
        wait_until(lambda: predicted(service) == ids(10, 30), 120, "the new partition to be read")
        assert worker.stop() == 0
