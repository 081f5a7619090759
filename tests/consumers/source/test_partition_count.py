"""The number of partitions that a worker's share is measured by."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.source.partition_count import PartitionCount

if TYPE_CHECKING:
    from tests.broker.choice import Broker


@pytest.mark.durable
def test_topic_that_the_broker_does_not_know_does_not_make_the_share_larger(kafka: Broker, make_topic: Any) -> None:
    known, assignment = make_topic(partitions=4), Assignment()
    client = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"count-{uuid.uuid4()}",
        "allow.auto.create.topics": False,
    }
    consumer = Consumer(client)
    try:
        PartitionCount(consumer, [known], assignment).update(changed=True)
        assert assignment.all_partitions == 4
        assignment.all_partitions = 8
        PartitionCount(consumer, [known, f"deleted-{uuid.uuid4()}"], assignment).update(changed=True)
        assert assignment.all_partitions == 8
    finally:
        consumer.close()
