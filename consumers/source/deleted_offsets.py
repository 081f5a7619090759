"""Finds committed offsets that are gone: Kafka deletes them together with their topic, which may have been created anew.

The client may notice nothing. If the new topic has as many events as the old one, it waits at the end for more of them.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millstream.consumers.errors import ClusterChanged, OffsetsForgotten
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Partition
from millstream.consumers.source.forgotten_offsets import listed

# Seconds without records until the broker is asked for the offsets, and between two questions.
ASK_INTERVAL: Final = 5.0
ANSWER_TIMEOUT: Final = 1.0  # seconds that the main thread waits for an answer
# Seconds without records after which the first ones may be those of a new topic. The next commit would bring the old offset back.
PAUSE: Final = 0.25


class DeletedOffsets:
    """Asks whether the broker still has the committed offsets. Only the main thread calls it."""

    def __init__(
        self,
        consumer: Consumer,
        health: Health,
        group: str,
        *,
        exactly_once: bool,
        committed: Callable[[], Collection[Partition]],
        confirmed: Callable[[], Mapping[Partition, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        consumer: the one to ask.
        health: says whether brokers answer.
        group: the consumer group, for messages.
        exactly_once: whether no event may be predicted twice.
        committed: returns the partitions of which the broker has confirmed a commit since they were assigned.
        confirmed: returns the last offsets that the broker has confirmed, for messages.
        clock: seconds.
        """
        self._consumer = consumer
        self._health = health
        self._group = group
        self._exactly_once = exactly_once
        self._committed = committed
        self._confirmed = confirmed
        self._clock = clock
        self._found: set[Partition] = set()  # had an offset when they were assigned
        self._missed: set[Partition] = set()  # had none at the last question
        self._next = 0.0
        self._came = clock()  # when the last records came, or partitions

    def assigned(self, positions: Iterable[TopicPartition]) -> None:
        """Note what the broker has of partitions when they are assigned; a negative offset: none."""
        self._came = self._clock()
        for position in positions:
            partition = position.topic, position.partition
            if position.offset >= 0:
                self._found.add(partition)
            else:
                self._found.discard(partition)

    def fetched(self, partitions: Collection[Partition]) -> None:
        """Note that records came, before anything of them is committed. Ask if none came for a while.

        Args:
            partitions: those that are assigned.

        Raises:
            ClusterChanged: twice in a row, the broker had no offset of a partition that had one.
            OffsetsForgotten: the same with exactly once. A new worker reads such a partition from its beginning. If the broker
                has only lost the offset, all its events would be predicted twice.
        """
        now = self._clock()
        came, self._came, self._next = self._came, now, now + ASK_INTERVAL
        if now < came + PAUSE:
            return
        self._ask(partitions)
        if self._missed:
            self._ask(partitions)

    def look(self, partitions: Collection[Partition]) -> None:
        """Ask if it is time to. The caller has just polled, and got no record. Raises as `fetched`."""
        if self._clock() < self._next or self._health.broker_away is not None:
            return
        self._next = self._clock() + ASK_INTERVAL
        self._ask(partitions)

    def _ask(self, partitions: Collection[Partition]) -> None:
        missed, before = self._without({*partitions} & {*self._found, *self._committed()}), self._missed
        self._missed = missed
        gone = missed & before
        if gone and self._exactly_once:
            raise OffsetsForgotten(
                f"the broker has no offset of group {self._group} in {ranges_of(gone)} any more, though it had. Either the topic "
                f"was deleted and created anew while this worker ran: then start the workers again, and they read it from where "
                f"`input.start` says. Or the broker has lost committed offsets: then all events would be predicted twice. Stop "
                f"all workers, and set the group to the offsets that were confirmed (`millstream docs "
                f"runbook#offsets-that-a-broker-has-lost`). The broker has confirmed these to this worker, as "
                f"topic,partition,offset; if several workers name a partition, the highest offset counts: "
                f"{listed(self._confirmed())}"
            )
        if gone:
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
