"""Apache Kafka for the tests, as `millstream broker` runs it. Its jars are kept in the checkout."""

from __future__ import annotations

from pathlib import Path

from millstream.topics.local.kafka import QUICK_START, LocalKafka
from millstream.topics.local.kafka_jars import missing_for_kafka

CACHE = Path(__file__).resolve().parents[2] / ".cache"


class MavenKafka(LocalKafka):
    """A durable broker with data of its own, in a temporary folder; a context manager."""

    java_options = QUICK_START  # tests start brokers again and again, and send few records

    def __init__(self, port: int | None = None, cluster_id: str | None = None) -> None:
        super().__init__(CACHE, port, cluster_id)


def missing_for_maven() -> str | None:
    """What this machine lacks to run `MavenKafka`, as a sentence's end; None when it lacks nothing."""
    return missing_for_kafka(CACHE)
