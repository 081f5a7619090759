"""Counts the partitions of the input topics, so that each worker of a group knows its share of them."""

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException

from millstream.consumers.flow.assignment import Assignment

COUNT_INTERVAL = 60.0  # seconds between two counts without a rebalance
RETRY_INTERVAL = 1.0  # seconds between two counts while the broker doesn't answer
COUNT_TIMEOUT = 0.5  # seconds that the broker's answer may take


class PartitionCount:
    """Keeps `Assignment.all_partitions` up to date. Only the main thread calls it."""

    def __init__(self, consumer: Consumer, topics: Sequence[str], assignment: Assignment) -> None:
        """Args:
        consumer: asks the broker for the topics' metadata.
        topics: the input topics.
        assignment: gets the number.
        """
        self._consumer = consumer
        self._topics = topics
        self._assignment = assignment
        self._next = 0.0  # when to count again, seconds on the monotonic clock

    def update(self, *, changed: bool) -> None:
        """Count if it is time, or if a rebalance `changed` the assignment. If the broker doesn't know it now, it stays."""
        if not changed and time.monotonic() < self._next:
            return
        try:
            found = [self._consumer.list_topics(topic, timeout=COUNT_TIMEOUT).topics[topic] for topic in self._topics]
        except KafkaException:
            found = []
        if not found or any(topic.error is not None for topic in found):  # such a topic's partitions are not known
            self._next = time.monotonic() + RETRY_INTERVAL
            return
        self._next = time.monotonic() + COUNT_INTERVAL
        self._assignment.all_partitions = sum(len(topic.partitions) for topic in found)
