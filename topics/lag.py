"""Lag: how far a group is behind its topics, asked of the broker, with or without workers alive."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from topics.errors import BrokerUnreachableError, TopicError

ANSWER_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition."""

    topic: str
    partition: int
    committed: int | None  # offset of the next record the group reads; None: nothing committed yet
    end: int  # offset after the last readable record
    messages: int  # from the committed offset (or the oldest record still there) to the end
    seconds: float | None  # age of the oldest unprocessed record, by its timestamp; None where it can't be read in time


class LagReader:
    """Reads a group's lag again and again over one connection."""

    def __init__(self, client: Mapping[str, Any], group: str, topics: Sequence[str]) -> None:
        self._bootstrap = str(client["bootstrap.servers"])
        self._topics = topics
        # A consumer that never subscribes is no member of the group: it only asks, and reads single records by assignment.
        self._consumer = Consumer(
            {
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            },
            logger=logging.getLogger("kafka.lag"),
        )

    def read(self) -> list[PartitionLag]:
        """The lag of every partition, by topic and number.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: a topic does not exist.
        """
        try:
            partitions = [TopicPartition(topic, number) for topic in self._topics for number in self._numbers(topic)]
            committed = self._consumer.committed(partitions, timeout=ANSWER_TIMEOUT)
            bounds = [self._consumer.get_watermark_offsets(p, timeout=ANSWER_TIMEOUT) for p in partitions]
            # A negative offset says that nothing is committed; records deleted by retention are nobody's lag.
            starts = [max(p.offset, low) for p, (low, _) in zip(committed, bounds, strict=True)]
            ages = self._ages(
                [
                    TopicPartition(p.topic, p.partition, start)
                    for p, start, (_, high) in zip(partitions, starts, bounds, strict=True)
                    if start < high
                ]
            )
        except KafkaException as error:
            raise BrokerUnreachableError(
                f"the lag can't be read from {self._bootstrap}: {error.args[0].str()}. Check that the broker runs and that this "
                f"user may describe the topics and the group."
            ) from None
        return [
            PartitionLag(
                topic=p.topic,
                partition=p.partition,
                committed=p.offset if p.offset >= 0 else None,
                end=high,
                messages=max(high - start, 0),
                seconds=ages.get((p.topic, p.partition)) if start < high else 0.0,
            )
            for p, start, (_, high) in zip(committed, starts, bounds, strict=True)
        ]

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _numbers(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic]
        if found.error is not None:
            raise TopicError(
                f"topic {topic} can't be read: {found.error.str()}. Create it: millstream topics create PIPELINE"
            )
        return sorted(found.partitions)

    def _ages(self, starts: list[TopicPartition]) -> dict[tuple[str, int], float]:
        """Age in seconds of the record at each position."""
        if not starts:
            return {}
        self._consumer.assign(starts)
        ages: dict[tuple[str, int], float] = {}
        until = time.monotonic() + ANSWER_TIMEOUT / 2
        while len(ages) < len(starts) and time.monotonic() < until:
            record = self._consumer.poll(0.1)
            if record is None or record.error() is not None:
                continue
            topic, partition = record.topic(), record.partition()
            if topic is not None and partition is not None and (topic, partition) not in ages:
                ages[topic, partition] = max(time.time() - record.timestamp()[1] / 1000, 0.0)
                self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._consumer.unassign()
        return ages
