"""The input side of Kafka: one consumer, pause and resume, commits. The only module that reads."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.events import Epochs, FetchedBatch
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability.metrics import ASSIGNED, KAFKA_ERRORS, PAUSED, REBALANCES, Metrics
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.crash_markers import CrashMarkers
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.partition_names import ranges_of
from millstream.consumers.source.reader import FINAL_ERRORS, UNREADABLE_ERRORS, reader_of
from millstream.consumers.source.unreadable import UnreadableBatches
from millstream.topics.records import TRANSIENT_ERRORS

log = logging.getLogger(__name__)

CONSUMER_DEFAULTS = {
    "isolation.level": "read_committed",
    # One that was assigned or resumed waits until the request under way for the others is answered: the client's default is 500.
    "fetch.wait.max.ms": 100,
    # An aborted transaction holds offsets back for some milliseconds more: asked for again so soon at first (default: 100).
    "retry.backoff.ms": 5,
    # A worker that is quicker than it fetches ahead would wait for the rest of the client's second.
    "fetch.queue.backoff.ms": 20,
}
SEEK_TIMEOUT = 15.0  # seconds that a partition assigned this moment has to take a seek
REWIND_TIMEOUT = 2.0  # seconds; an open transaction of a lost worker hides a partition's offset longer: asked for again
WAKE_TIMEOUT = 0.05  # seconds that the client is asked a question for, so that it looks at what it may fetch
LEAVE_TIMEOUT = 5.0  # seconds that leaving the group may take
GROUP_METADATA_INTERVAL = 1.0  # seconds between two questions to the client how the broker knows this member
NO_ASSIGNMENT_AFTER = 6.0  # seconds after which a member without partitions takes it that there are none for it
CLIENT_RETRIED_ERRORS = TRANSIENT_ERRORS | {KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
"""Errors the client mends by itself: an outage makes lag and nothing worse."""
AWAY_ERRORS = CLIENT_RETRIED_ERRORS | {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD}
"""What a question is answered with while the broker is away."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is read, and as which member of a group."""

    group: str
    topics: tuple[str, ...]
    start: str  # earliest or latest, for partitions without a committed offset
    client: Mapping[str, str]  # the client's settings of how it is a member, and of how much it fetches ahead
    until_idle: bool  # follow the partitions' ends, for `idle`


class Source:
    """Reads the pipeline's input topics as a member of its group. One thread calls it; callbacks run inside `poll`."""

    def __init__(
        self,
        client: Mapping[str, Any],
        subscription: Subscription,
        *,
        assignment: Assignment,
        guard: CrashGuard,
        metrics: Metrics,
    ) -> None:
        """Make the consumer; nothing is read before `subscribe`.

        Args:
            client: the pipeline's client settings, `bootstrap.servers` among them.
            subscription: what to read, as whom.
            assignment: told which partitions are this worker's, and up to where they are committed.
            guard: told of the workers that ended at the offsets where this one begins.
            metrics: where to count.
        """
        self._subscription = subscription
        self._assignment = assignment
        self._before_revoke: Callable[[list[Partition]], object] = lambda _gone: None
        self._metrics = metrics
        self._paused: frozenset[str] = frozenset()  # topics
        self._at_end: set[Partition] = set()
        self._fatal: KafkaError | None = None
        self._crashed = False
        self._unreadable = UnreadableBatches(metrics)
        self.assigned_once = False
        self._reassigned = 0.0  # when the assignment last changed
        self._refreshed = 0.0  # when the broker was last asked how it knows this member
        self._sent: dict[Partition, int] = {}  # offsets whose commit was sent and did not fail
        error_cb = self._on_error  # one object: it shows the reader where the client is
        self._consumer = Consumer(
            {
                **CONSUMER_DEFAULTS,
                **subscription.client,
                **client,
                "group.id": subscription.group,
                "auto.offset.reset": subscription.start,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": subscription.until_idle,
                "error_cb": error_cb,
                "on_commit": self._committed,
            },
            logger=logging.getLogger("kafka.consumer"),
        )
        self._reader = reader_of(self._consumer, error_cb, self._note_event)
        self.markers = CrashMarkers(self._consumer, guard, subscription.start)

    @property
    def topics(self) -> frozenset[str]:
        """All that is read."""
        return frozenset(self._subscription.topics)

    @property
    def _epochs(self) -> Epochs:
        return self._assignment.epochs

    def subscribe(self, before_revoke: Callable[[list[Partition]], object]) -> None:
        """Join the group.

        Args:
            before_revoke: called with partitions about to go, while they still are ours: finish and commit what belongs to them.
        """
        self._before_revoke = before_revoke
        self._consumer.subscribe(
            list(self._subscription.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def begin(self) -> None:
        """Let the records of partitions just assigned come, once it is known what became of earlier workers there.

        Not part of `poll`: its caller asks the guard first how many records it may read.
        """
        if self.markers.new:
            self._resume([p for p in self.markers.look() if p.topic not in self._paused])

    def poll(self, limit: int, timeout: float, window: BatchWindow | None = None) -> FetchedBatch | None:
        """Read what is there, up to `limit` records; wait up to `timeout` seconds where nothing is.

        With a window, a first record that had to be waited for waits here for those that come along in it: each poll wakes two
        more threads.

        Raises:
            WorkerError: a topic or the group can't be read at all.
        """
        before = self._epochs
        records, now = self._consume(limit, timeout, window)
        if self._fatal is not None:
            raise WorkerError(f"the Kafka consumer can't go on: {self._fatal.str()}")
        if before is not self._epochs or time.monotonic() - self._refreshed > GROUP_METADATA_INTERVAL:
            self._refresh_metadata()
        if before is not self._epochs:
            # The client joins again a second after the last time at the earliest, and those that left a partition to a member
            # wait for it; an answer about topics lifts that.
            with suppress(KafkaException):
                self._consumer.list_topics(self._subscription.topics[0], timeout=WAKE_TIMEOUT)
        if not records:
            return None
        self._unreadable.passed(records.partitions)
        wall = time.time_ns() // 1_000_000
        if before is not self._epochs:
            # The client itself leaves out what it fetched under an assignment that has ended meanwhile (librdkafka's
            # rd_kafka_purge_outdated_messages); what is left of partitions that went is not for us to answer.
            records = records.where(self._epochs.__contains__)
        if self.markers.unmarked and records:
            self.markers.mark(records)
        return FetchedBatch(records, self._epochs, now, wall) if records else None

    def _consume(self, limit: int, timeout: float, window: BatchWindow | None) -> tuple[Records, float]:
        """What the client gives, and when the first of it was read."""
        records, came = self._reader.consume(limit, 0), time.monotonic()
        if waits := not records:  # for one: for more it would wait until it has all that it may give
            records, came = self._reader.consume(1, timeout), time.monotonic()
        if not records or window is None:
            return records, came
        window.note(came, len(records))
        parts = [records]
        for before, end in pairwise([0.0, *window.company] if waits else []):
            more = self._reader.consume(max(min(limit, window.enough) - sum(map(len, parts)), 0), end - before)
            if more:
                window.note(came + end, len(more))
                parts.append(more)
        return Records.concat(parts), came

    def _note_event(self, error: KafkaError, partition: Partition) -> None:
        """Take what came in a record's place: the end of a partition, or an error."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(partition)
            return
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.code() in FINAL_ERRORS:
            raise WorkerError(FINAL_ERRORS[error.code()].format(topic=partition[0], error=error.str()))
        if error.code() in UNREADABLE_ERRORS:
            at = self._consumer.position([TopicPartition(*partition)])[0].offset
            self._unreadable.note(partition, max(at, self.markers.start_offsets.get(partition, 0)), error.str())
        else:
            log.warning("reading %s: %s", partition[0], error.str())

    @property
    def idle(self) -> bool:
        """Whether every assigned partition was read to where it ended at some time. Only with `until_idle`."""
        if not self._epochs:
            # A member's first assignment may be empty only until the others have given partitions up.
            return self.assigned_once and time.monotonic() - self._reassigned > NO_ASSIGNMENT_AFTER
        return self._epochs.keys() <= self._at_end

    def pause(self, topics: frozenset[str]) -> None:
        """Fetch nothing of these topics, and everything of the others; polling goes on, so that the group keeps this member."""
        if topics == self._paused:
            return
        before, self._paused = self._paused, topics
        counted = [partition for partition in self._epochs if partition not in self.markers.new]
        self._consumer.pause([TopicPartition(*p) for p in counted if p[0] in topics - before])
        self._resume([TopicPartition(*p) for p in counted if p[0] in before - topics])
        self._metrics.set(PAUSED, sum(p[0] in topics for p in self._epochs))

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> bool:
        """Commit offsets (of the next record to read) of partitions that are ours, those that were not sent yet.

        A commit that fails is logged and sent again with the next one; if there is none, the partition's new owner reads again.

        Returns:
            False where `wait` and it failed.
        """
        new = {p: at for p, at in offsets.items() if p in self._epochs and (wait or self._sent.get(p) != at)}
        if not new:
            return True
        self._sent |= new
        positions = [TopicPartition(*partition, offset) for partition, offset in new.items()]
        try:
            if wait:
                self._consumer.commit(offsets=positions, asynchronous=False)
                self._committed(None, positions)  # `on_commit` is called for others only
            else:
                self._consumer.commit(offsets=positions)
        except KafkaException as error:
            self._committed(error.args[0], positions)
            return bool(error.args[0].code() == KafkaError._NO_OFFSET)
        return True

    def _refresh_metadata(self) -> None:
        """Learn anew how the broker knows this member. Only the thread that polls may ask: another was seen to wait for ever."""
        self._refreshed = time.monotonic()
        self._assignment.group_metadata = self._consumer.consumer_group_metadata()

    def rewind(self) -> bool:
        """Read every partition again from its committed offset: what was read since does not count.

        Returns:
            False where the broker does not say from where, for now: nothing may be read until a later call succeeds.

        Raises:
            WorkerError: the offsets can't be had; the worker ends, and its successor reads from them.
        """
        self._assignment.renew()
        self._at_end.clear()
        try:
            # Others begin there by themselves, and a seek would not last (github.com/confluentinc/librdkafka/issues/2256).
            places = self._consumer.position(_positions(self._epochs))
            read = [TopicPartition(p.topic, p.partition) for p in places if p.offset >= 0]
            for position in self._consumer.committed(read, timeout=REWIND_TIMEOUT) if read else []:
                if position.offset < 0:
                    position.offset = self.markers.beginning(position) or 0
                self._seek(position)
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].code() in AWAY_ERRORS:
                log.warning("the committed offsets are not known yet: %s; trying again", error.args[0].str())
                return False
            raise WorkerError(
                f"the committed offsets can't be read after an abort: {error.args[0].str()}. A new worker reads on from them."
            ) from None
        log.info("reading %d partitions again from their committed offsets", len(read))
        return True

    def _seek(self, position: TopicPartition) -> None:
        """Seek; a partition that was assigned this moment takes that only once its fetching has begun. Raises KafkaException."""
        until = time.monotonic() + SEEK_TIMEOUT
        while True:
            try:
                self._consumer.seek(position)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def lag(self, delivered: Mapping[Partition, int]) -> dict[Partition, int]:
        """Records of each assigned partition that have no delivered result, as far as the client knows the partition's end."""
        found: dict[Partition, int] = {}
        for partition in self._epochs:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            begun = max(self.markers.start_offsets.get(partition, -1), self._assignment.committed_offset(partition))
            done = delivered.get(partition, begun)
            if high >= 0 and done >= 0:
                found[partition] = max(high - max(done, low), 0)
        return found

    def close(self, failure: BaseException | None = None) -> None:
        """Leave the group; where the broker is away this is not waited for, and the session's end frees the partitions.

        Args:
            failure: what ended the worker. If an event may have caused it, the crash markers stay, so that the next worker
                counts this one.
        """
        self._crashed = failure is not None and not isinstance(failure, WorkerError | KafkaException)
        # The client's `close` waits for commits under way, and those wait for the broker as long as that is away.
        leaving = threading.Thread(target=self._leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(LEAVE_TIMEOUT)
        if leaving.is_alive():
            log.warning("the group was not left within %g s: the broker is away", LEAVE_TIMEOUT)

    def _leave(self) -> None:
        self._uncount(list(self._epochs))  # before: a client that closes asks the broker for no offsets
        self._consumer.close()

    def _uncount(self, partitions: list[Partition]) -> None:
        if not self._crashed:
            # A transaction that commits the same partitions ends before, or begins afterwards.
            with self._assignment.lock:
                self.markers.uncount(partitions, self._assignment.delivered())

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment.add((p.topic, p.partition) for p in partitions)
        self.assigned_once = True
        self._at_end -= {(p.topic, p.partition) for p in partitions}
        if partitions:
            consumer.incremental_assign(self.markers.places(partitions))
            consumer.pause(partitions)
            self.markers.new |= {(p.topic, p.partition) for p in partitions}
        self._note_assignment("assigned", partitions)

    def _resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch again, now: the client looks once a second at what it may fetch, and when a connection has something to do."""
        self._consumer.resume(partitions)
        until = time.monotonic() + WAKE_TIMEOUT
        for partition in partitions:  # their leaders may be different brokers
            if (left := until - time.monotonic()) > 0:
                with suppress(KafkaException):
                    self._consumer.get_watermark_offsets(partition, timeout=left)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [(p.topic, p.partition) for p in partitions]
        self._before_revoke(gone)
        self._uncount(gone)
        self._drop(consumer, "revoked", partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(consumer, "lost", partitions)

    def _drop(self, consumer: Consumer, kind: str, partitions: list[TopicPartition]) -> None:
        gone = {(p.topic, p.partition) for p in partitions}
        self._assignment.remove(gone)
        self._at_end -= gone
        self._unreadable.passed(gone)
        self.markers.forget(gone)
        self._sent = {partition: offset for partition, offset in self._sent.items() if partition not in gone}
        consumer.incremental_unassign(partitions)
        self._note_assignment(kind, partitions)

    def _note_assignment(self, kind: str, partitions: list[TopicPartition]) -> None:
        self._metrics.count(REBALANCES, 1, kind)
        self._metrics.set(ASSIGNED, len(self._epochs))
        self._metrics.set(PAUSED, sum(p[0] in self._paused for p in self._epochs))
        self._reassigned = time.monotonic()
        log.info(
            "%s %s; now %d partitions", kind, ranges_of((p.topic, p.partition) for p in partitions), len(self._epochs)
        )

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is None:
            offsets = {(p.topic, p.partition): p.offset for p in partitions}
            self._assignment.note_committed(offsets)
            self.markers.note_committed(offsets)
        if error is None or error.code() == KafkaError._NO_OFFSET:
            return
        for position in partitions:
            self._sent.pop((position.topic, position.partition), None)
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        log.warning(
            "offsets of %s were not committed: %s (nothing is lost: the next commit, or the next owner, covers them)",
            ranges_of((p.topic, p.partition) for p in partitions),
            error.str(),
        )

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.fatal():
            self._fatal = error
        log.log(
            logging.WARNING if error.code() in CLIENT_RETRIED_ERRORS else logging.ERROR,
            "Kafka consumer: %s",
            error.str(),
        )


def _positions(epochs: Epochs) -> list[TopicPartition]:
    return [TopicPartition(*partition) for partition in epochs]
