"""Which versions predictions name, and waiting until workers answer with the wanted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from millstream.topics.records import bounds
from tests.broker.clients import wait_until
from tests.consumers.service import prediction_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.consumers.service import Service


def named(row: dict[str, Any]) -> dict[str, int]:
    """The versions that a prediction names, by the names of their models."""
    told = row["outputs"].get("models", f"{row['model']}:{row['version']}")
    return {name: int(version) for name, _, version in (each.partition(":") for each in told.split())}


def wait_answered(service: Service, versions: Mapping[str, int]) -> None:
    """Wait until each partition has new predictions of just these versions. So all workers serve them."""
    consumer = Consumer(
        {"bootstrap.servers": service.bootstrap, "group.id": "asking", "isolation.level": "read_committed"}
    )
    try:
        places = [
            TopicPartition(service.output, each)
            for each in consumer.list_topics(service.output).topics[service.output].partitions
        ]
        for place in places:
            place.offset = bounds(consumer, service.output, place.partition)[1]
        consumer.assign(places)
        newest: dict[tuple[int | None, str], int] = {}

        def answered() -> bool:
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None
                for name, version in named(prediction_of(message)).items():
                    newest[message.partition(), name] = version
            return newest == {
                (place.partition, name): version for place in places for name, version in versions.items()
            }

        wait_until(answered, 60, f"answers of the versions {versions} in all partitions")
    finally:
        consumer.close()
