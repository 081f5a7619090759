"""Commits offsets to the group, as at-least-once delivery needs it."""

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.metrics import KAFKA_ERRORS, Metrics
from millstream.consumers.observability.seldom import Kind, SeldomWarnings
from millstream.consumers.record_types import Partition
from millstream.consumers.source.crash_markers import CrashMarkers

log = logging.getLogger(__name__)

# A broker that is away lets each commit fail that was sent meanwhile.
HARMLESS = "(nothing is lost: the next commit covers them, or the partition's next owner reads again)"
OF_A_REBALANCE = {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""Errors of commits that were on their way when workers joined or left the group."""
FAILED = Kind(f"commit of offsets failed {HARMLESS}", f"commits of offsets failed {HARMLESS}")


class OffsetCommits:
    """Commits offsets, and takes note of what the broker says. The thread that polls calls it."""

    def __init__(self, consumer: Consumer, assignment: Assignment, markers: CrashMarkers, metrics: Metrics) -> None:
        """Args:
        consumer: commits.
        assignment: told up to where partitions are committed.
        markers: told the same.
        metrics: where to count errors.
        """
        self._consumer = consumer
        self._assignment = assignment
        self._markers = markers
        self._metrics = metrics
        self._warnings = SeldomWarnings()
        self._sent: dict[Partition, int] = {}  # offsets whose commit was sent and has not failed

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> bool:
        """Commit the offsets (of the next record to read) of assigned partitions, if they were not sent yet.

        A commit that fails is logged. The next commit includes its offsets; if there is none, the partition's new owner reads the
        records again.

        Returns:
            False if the commit failed; only with `wait` is that known.
        """
        new = {p: at for p, at in offsets.items() if p in self._assignment.epochs and (wait or self._sent.get(p) != at)}
        if not new:
            return True
        self._sent |= new
        positions = [TopicPartition(*partition, offset) for partition, offset in new.items()]
        try:
            if wait:
                self._consumer.commit(offsets=positions, asynchronous=False)
                self.note(None, positions)  # the client calls `on_commit` only for asynchronous commits
            else:
                self._consumer.commit(offsets=positions)
        except KafkaException as error:
            self.note(error.args[0], positions)
            return bool(error.args[0].code() == KafkaError._NO_OFFSET)
        return True

    def note(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take note of a commit's end: the client's `on_commit`."""
        if error is None:
            offsets = {(p.topic, p.partition): p.offset for p in partitions}
            self._assignment.note_committed(offsets)
            self._markers.note_committed(offsets)
        if error is None or error.code() == KafkaError._NO_OFFSET:
            return
        for position in partitions:
            self._sent.pop((position.topic, position.partition), None)
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        places = ranges_of((p.topic, p.partition) for p in partitions)
        if error.code() in OF_A_REBALANCE:
            log.info("%s: a commit of offsets came too late for a rebalance %s", places, HARMLESS)
        else:
            self._warnings.warn(FAILED, 1, f"{places}: {error.str()}")

    def forget(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that are revoked or lost."""
        self._sent = {partition: offset for partition, offset in self._sent.items() if partition not in partitions}
