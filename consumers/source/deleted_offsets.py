"""Finds input topics that were deleted and created anew: Kafka has deleted the group's offsets together with them.

The client may notice nothing. If the new topic has as many events as the old one, it waits at the end for more of them.
"""

import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millstream.consumers.errors import ClusterChanged
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Partition

ASK_INTERVAL: Final = (
    5.0  # seconds without records until the broker is asked for the offsets, and between two questions
)
ANSWER_TIMEOUT: Final = 1.0  # seconds that the main thread waits for an answer


class DeletedOffsets:
    """Asks whether the broker still has the committed offsets. Only the main thread calls it."""

    def __init__(
        self, consumer: Consumer, health: Health, group: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        consumer: the one to ask.
        health: says whether brokers answer.
        group: the consumer group, for messages.
        clock: seconds.
        """
        self._consumer = consumer
        self._health = health
        self._group = group
        self._clock = clock
        self._found: set[Partition] = set()  # had an offset when they were assigned
        self._missed: set[Partition] = set()  # had none at the last question
        self._next = 0.0

    def assigned(self, positions: Iterable[TopicPartition]) -> None:
        """Note what the broker has of partitions when they are assigned; a negative offset: none."""
        for position in positions:
            (self._found.add if position.offset >= 0 else self._found.discard)((position.topic, position.partition))

    def fetched(self) -> None:
        """Note that records came."""
        self._next = self._clock() + ASK_INTERVAL

    def look(self, partitions: Collection[Partition], confirmed: Collection[Partition]) -> None:
        """Ask if it is time to. The caller has just polled, and got no record.

        Args:
            partitions: those that are assigned.
            confirmed: those of which the broker has confirmed a commit since they were assigned.

        Raises:
            ClusterChanged: twice in a row, the broker had no offset of a partition that had one.
        """
        if self._clock() < self._next or self._health.broker_away is not None:
            return
        self._next = self._clock() + ASK_INTERVAL
        missed, before = self._without({*partitions} & {*self._found, *confirmed}), self._missed
        self._missed = missed
        if gone := missed & before:
            raise ClusterChanged(
                f"the offsets of group {self._group} in {ranges_of(gone)} are gone: the topic was deleted and created anew while "
                f"this worker ran. The worker ends before it passes by events of the new topic. A new worker reads it from where "
                f"`input.start` says. Before you create a topic anew, stop the workers."
            )

    def _without(self, partitions: Collection[Partition]) -> set[Partition]:
        """The partitions of which the broker has no offset; empty if it doesn't answer."""
        if not partitions:
            return set()
        try:
            found = self._consumer.committed([TopicPartition(*p) for p in partitions], timeout=ANSWER_TIMEOUT)
        except KafkaException:
            return set()
        return {(p.topic, p.partition) for p in found if p.error is None and p.offset < 0}
