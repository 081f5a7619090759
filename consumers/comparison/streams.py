"""The Faust app's topics and tables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.partitioner import murmur2

from millstream.consumers.comparison.credentials import broker_settings
from millstream.consumers.comparison.names import app_name
from millstream.consumers.comparison.transport import FOLDED_RECORDS, FoldingApp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.consumers.comparison.job import Write
    from millstream.pipeline.pipeline import Pipeline

BUFFERED_MESSAGES = 8  # messages that may wait for an agent; a folded message holds up to FOLDED_RECORDS records
SESSION_TIMEOUT = 10.0  # seconds after which the partitions of a crashed process move to another one
METADATA_AGE = 30  # seconds after which the job looks whether the label topic has got partitions


class Streams:
    """The Faust app, its topics and tables. The internal topics and the tables are partitioned like the comparison topic."""

    def __init__(self, pipeline: Pipeline, *, partitions: int, replication: int, folder: Path) -> None:
        """Args:
            pipeline: a pipeline with shadows.
            partitions: number of partitions of the comparison topic.
            replication: replication factor of the job's own topics.
            folder: a temporary folder for Faust. The job needs nothing from it after a restart.

        Raises:
            ComparisonError: Faust doesn't support the broker settings in the pipeline file.
        """
        name = app_name(pipeline)
        self.partitions = partitions
        self.faust = FoldingApp(
            name,
            **broker_settings(pipeline.client_config()),
            store="memory://",
            datadir=folder,
            web_enabled=False,
            topic_disable_leader=True,
            topic_partitions=partitions,
            topic_replication_factor=replication,
            consumer_auto_offset_reset="earliest",
            broker_max_poll_records=FOLDED_RECORDS,
            broker_session_timeout=SESSION_TIMEOUT,
            broker_heartbeat_interval=SESSION_TIMEOUT / 4,
            broker_commit_interval=1.0,
            consumer_metadata_max_age_ms=METADATA_AGE * 1000,
            stream_buffer_maxsize=BUFFERED_MESSAGES,
            stream_wait_empty=False,  # a shutdown that waits for records in progress may never end; they are read again
        )
        self.comparisons = self._topic(pipeline.comparison.topic)
        self.evaluations = self._topic(pipeline.comparison.evaluations)
        self.labels = None if pipeline.labels is None else self._topic(pipeline.labels.topic)
        self.by_event = self._topic(f"{name}-labels", internal=True)
        self.by_pair = self._topic(f"{name}-parts", internal=True, folded=True)
        self.chunks = self._table("chunks")
        self.parts = self._table("parts")
        folded = [self.comparisons, self.by_pair, *([] if self.labels is None else [self.labels])]
        self.faust.folded_topics = frozenset(topic.get_topic_name() for topic in folded)

    def _topic(self, name: str, *, internal: bool = False, folded: bool = False) -> Any:
        return self.faust.topic(
            name,
            key_type=bytes,
            value_type=bytes if internal and not folded else None,
            key_serializer="raw",
            value_serializer="raw",
            internal=internal,
            partitions=self.partitions if internal else None,
        )

    def _table(self, name: str) -> Any:
        return self.faust.Table(name, partitions=self.partitions, key_type=bytes, value_type=bytes)

    def partition_of(self, event_id: str) -> int:
        """The partition of the event's comparison: its key is the event ID, and Java's default partitioner places it."""
        return int((murmur2(event_id.encode()) & 0x7FFFFFFF) % self.partitions)

    def assigned(self, topic: Any) -> list[int]:
        """Which of the topic's partitions this process has, ascending."""
        name = topic.get_topic_name()
        return sorted(place.partition for place in self.faust.consumer.assignment() if place.topic == name)


async def write(table: Any, partition: int, writes: Iterable[Write]) -> None:
    """Write to a table and its changelog, and wait until Kafka has acknowledged the writes.

    Faust's own `table[key] = value` only works in a stream, and Faust doesn't wait long enough for writes before it commits.
    """
    sent = []
    for key, value in writes:
        if value is None:
            table.data.pop(key, None)
            sent.append(table.send_changelog(partition, key, None, value_serializer="raw"))
        else:
            table.data[key] = value
            sent.append(table.send_changelog(partition, key, value))
    if sent:
        await asyncio.gather(*sent)
