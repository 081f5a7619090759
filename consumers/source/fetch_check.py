"""Finds a client that fetches nothing more, though its brokers have records for it; the worker then ends.

The known case is an input topic that was deleted and created anew. Its partitions begin again with low leader epochs. The client
takes such metadata for outdated, and never learns the new leaders (librdkafka's rd_kafka_toppar_leader_update). A partition's
epoch grows with each restart of its leader, so this shows itself only on clusters of some age.
"""

import time
from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Partition

ASK_INTERVAL: Final = 10.0  # seconds without records until brokers are asked for the ends, and between two questions
ANSWER_TIMEOUT: Final = 1.0  # seconds that the main thread waits for an answer
# Seconds for which the client must not have fetched what is there. A healthy one needs `fetch.wait.max.ms`, or as long as a quota
# of the brokers holds its answers back.
PATIENCE: Final = 30.0


class FetchCheck:
    """Compares the partitions' ends with those that the client has learned by fetching. Only the main thread calls it."""

    def __init__(self, consumer: Consumer, health: Health, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        consumer: the one to ask.
        health: says whether brokers answer another client.
        clock: seconds.
        """
        self._consumer = consumer
        self._health = health
        self._clock = clock
        self._next = 0.0
        # By partition: the end that the client knows, and since when it is wrong.
        self._since: dict[Partition, tuple[int, float]] = {}

    def fetched(self) -> None:
        """Note that records came: the client fetches."""
        self._since.clear()
        self._next = self._clock() + ASK_INTERVAL

    def look(self, partitions: Collection[Partition], paused: Collection[str]) -> None:
        """Ask if it is time to. The caller has just polled, and got no record.

        Args:
            partitions: those from which the client may give records.
            paused: topics; their partitions are left out.

        Raises:
            WorkerError: for `PATIENCE` seconds, the client has not fetched what is there.
        """
        now = self._clock()
        if now < self._next:
            return
        self._next = now + ASK_INTERVAL
        known = self._unfetched([partition for partition in partitions if partition[0] not in paused])
        self._since = {
            partition: before if (before := self._since.get(partition, (0, now)))[0] == end else (end, now)
            for partition, end in known.items()
        }
        stuck = [partition for partition, (_, since) in self._since.items() if now - since >= PATIENCE]
        if stuck:
            raise WorkerError(
                f"this worker's Kafka client has fetched nothing from {ranges_of(stuck)} for {PATIENCE:.0f} s, though there is "
                "something to fetch. That happens if a topic is deleted and created anew while workers run. A new worker reads "
                "on from the committed offsets or, where there are none, from where `input.start` says. `millstream run` starts "
                "one, as any supervisor does."
            )

    def _unfetched(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The end that the client knows of each partition that has another one. Empty if brokers don't say it."""
        if not partitions or self._health.broker_away is not None:
            return {}
        try:
            ends = self._consumer.offsets_for_times(
                [TopicPartition(*partition, OFFSET_END) for partition in partitions], timeout=ANSWER_TIMEOUT
            )
        except KafkaException:
            return {}
        found: dict[Partition, int] = {}
        for end, place in zip(ends, self._consumer.position(ends), strict=True):
            _, known = self._consumer.get_watermark_offsets(end, cached=True)
            if end.error is None and not place.offset <= end.offset <= known:
                found[end.topic, end.partition] = known
        return found
