"""Three brokers, each killed once under load, including those that coordinate the group and the transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.broker.cluster import NODES, KafkaCluster
from tests.broker.maven import missing_for_maven
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(missing_for_maven() is not None, reason="starts brokers of its own, which needs Java and Maven"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as kafka:
        yield kafka


def test_three_brokers_killed_one_after_the_other(cluster: KafkaCluster, tmp_path: Path) -> None:
    kafka = Broker(cluster.bootstrap, durable=True, kind="maven")
    with under_load(tmp_path, kafka, seed=1001, rate=500) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        fleet.wait_committed(500)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        victims = [
            ("__transaction_state", _place_of(f"{service.group}-w0")),
            ("__consumer_offsets", _place_of(service.group)),
            (service.output, 0),
        ]
        killed = set()
        for topic, partition in victims:
            node = _leader(admin, topic, partition)
            _kill_and_bring_back(cluster, admin, node, lambda: fleet.wait_committed(1500, revive=True))
            killed.add(node)
        for node in set(NODES) - killed:
            _kill_and_bring_back(cluster, admin, node, lambda: fleet.wait_committed(1500, revive=True))
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def _kill_and_bring_back(cluster: KafkaCluster, admin: AdminClient, node: int, meanwhile: Callable[[], None]) -> None:
    """Kill a broker, check that the work continues with two, and restart it. At the end, all replicas are in sync again."""
    cluster.nodes[node].kill()
    meanwhile()
    cluster.nodes[node].start()
    wait_until(lambda: _all_in_step(admin), 120, "all copies to be in step")


def _all_in_step(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=10).topics.values()
    return all(len(place.isrs) == len(NODES) for topic in topics for place in topic.partitions.values())


def _leader(admin: AdminClient, topic: str, partition: int) -> int:
    """The node that leads a partition. For an internal topic, this node coordinates the groups or transactions stored there."""
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


def _place_of(name: str) -> int:
    """The partition of an internal topic where Kafka stores a group or a transactional ID: Java's hash modulo 4 partitions."""
    known = 0
    for letter in name:
        known = (31 * known + ord(letter)) & 0xFFFFFFFF
    return (known & 0x7FFFFFFF) % 4
