"""Owns the Kafka consumer: it polls, pauses and resumes, and handles rebalances."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.events import Epochs, FetchedBatch
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import ASSIGNED, KAFKA_ERRORS, PAUSED, REBALANCES, Metrics
from millstream.consumers.observability.seldom import SeldomWarnings
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.awaited_assignment import AwaitedAssignment
from millstream.consumers.source.crash_markers import CrashMarkers
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.deleted_offsets import DeletedOffsets
from millstream.consumers.source.fetch_check import FetchCheck
from millstream.consumers.source.forgotten_offsets import refuse_forgotten
from millstream.consumers.source.lost_brokers import LostBrokers, reminder
from millstream.consumers.source.offset_commits import OffsetCommits
from millstream.consumers.source.partition_count import PartitionCount
from millstream.consumers.source.past_end import PastEnd, refuse_past_end
from millstream.consumers.source.reader import FINAL_ERRORS, UNREADABLE_ERRORS, reader_of
from millstream.consumers.source.rewind import CLIENT_RETRIED_ERRORS, COMMITTED_TIMEOUT, seek_committed
from millstream.consumers.source.unreadable import UnreadableBatches
from millstream.topics.client_log import client_log
from millstream.topics.coordinator import coordinator_error
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import TRANSIENT_ERRORS

log = logging.getLogger(__name__)

CONSUMER_DEFAULTS = {
    **QUICK_CONNECT,
    "isolation.level": "read_committed",
    # A newly assigned or resumed partition waits until the fetch under way is answered. The client's default is 500.
    "fetch.wait.max.ms": 100,
    # After an abort, the broker holds offsets back for some milliseconds. The client retries after this time (default: 100).
    "retry.backoff.ms": 5,
    # After its queue was full, the client waits this long before it fetches again. The default is a second.
    "fetch.queue.backoff.ms": 20,
    # The client fetches ahead while it holds fewer records than this. Each takes about 400 bytes besides its own. With the
    # default of 100,000, a backlog of small records took 40 MiB more, and was not processed faster.
    "queued.min.messages": 16_000,
    # How soon the group reads partitions that a topic gets while workers run. The client's default is 5 minutes.
    "topic.metadata.refresh.interval.ms": 30_000,
}
WAKE_TIMEOUT = 0.05  # seconds for requests whose only purpose is that the client looks at what it may fetch
# Seconds that a poll may wait before the group has assigned anything. A call to the client in which the assignment comes goes on
# waiting for a record until its timeout, in vain, because the new partitions are paused.
JOIN_TIMEOUT = 0.01
LEAVE_TIMEOUT = 5.0  # seconds that leaving the group may take
GROUP_METADATA_INTERVAL = 1.0  # seconds between two requests for this member's group metadata
NO_ASSIGNMENT_AFTER = 6.0  # seconds after which a member without partitions concludes that it gets none


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics to read, and the membership in the group."""

    group: str
    topics: tuple[str, ...]
    start: str  # earliest or latest, for partitions without a committed offset
    client: Mapping[str, str]  # the client's settings for its membership, and for how much it fetches ahead
    until_idle: bool  # whether `idle` is needed, for which the client reports the ends of partitions
    exactly_once: bool = False  # whether a committed offset that the broker has forgotten ends the worker
    counts_partitions: bool = False  # whether `Assignment.share` is needed


LOST = (
    ": the group has removed this worker, because its brokers or this process stood still, or the group began anew. Events in "
    "flight are read again by whoever gets the partitions. A worker that doesn't end joins again"
)


class Source:
    """Reads the pipeline's input topics as a member of its group. Only the main thread calls it; callbacks run inside `poll`."""

    def __init__(
        self,
        client: Mapping[str, Any],
        subscription: Subscription,
        *,
        assignment: Assignment,
        guard: CrashGuard,
        health: Health,
        metrics: Metrics,
        lost_broker: Callable[[str], object] = lambda _error: None,
    ) -> None:
        """Create the consumer. It reads nothing before `subscribe`.

        Args:
            client: the pipeline's client settings, with `bootstrap.servers`.
            subscription: the topics and the membership.
            assignment: gets this worker's partitions and their committed offsets.
            guard: gets the number of workers that ended where this one begins.
            health: says whether connections to brokers were lost, and gets the reason for a missing assignment.
            metrics: where to count.
            lost_broker: called with the error when the client loses a broker.
        """
        self._lost_broker = lost_broker
        self._subscription = subscription
        self._assignment = assignment
        self._before_revoke: Callable[[list[Partition]], object] = lambda _gone: None
        self._health = health
        self._metrics = metrics
        self._paused: frozenset[str] = frozenset()  # topics
        self._at_end: set[Partition] = set()
        self._fatal: KafkaError | None = None
        self._crashed = False
        self._unreadable = UnreadableBatches(metrics)
        self._failed_requests = SeldomWarnings()  # for the committed offsets
        self._past_end = PastEnd(subscription.group, health)
        self.assigned_once = False
        self.lost_uncommitted = (
            0  # records read of partitions that were lost since the last assignment, and not committed
        )
        self._reassigned = 0.0  # when the assignment last changed
        self._refreshed = 0.0  # when the group metadata was last requested
        error_cb = self._on_error  # always the same object: the reader uses it to find the client's handle
        self._consumer = Consumer(
            {
                **CONSUMER_DEFAULTS,
                **subscription.client,
                **client,
                "group.id": subscription.group,
                # Each partition begins at an offset of `CrashMarkers`. The client only needs this if retention has deleted that.
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": subscription.until_idle,
                "error_cb": error_cb,
                "on_commit": self._on_commit,
            },
            logger=client_log("consumer"),
        )
        # This request changes nothing, but with it the client connects to the group's coordinator at once, while the worker
        # starts its other parts. Without a request, it would do so only after `subscribe`.
        self._consumer.consumer_group_metadata()
        self._reader = reader_of(self._consumer, error_cb, self._note_event)
        self.markers = CrashMarkers(self._consumer, guard, subscription.start, self._refuse_forgotten)
        self.commits = OffsetCommits(self._consumer, assignment, self.markers, metrics)
        self._lost_brokers = LostBrokers(
            self._consumer,
            subscription.topics[0],
            health,
            reminder(self._consumer, error_cb, str(client.get("bootstrap.servers", ""))),
        )
        self._awaited = AwaitedAssignment(
            subscription.group, lambda: coordinator_error(client, subscription.group, subscription.topics[0]), health
        )
        self._fetch_check = FetchCheck(self._consumer, health)
        self._deleted = DeletedOffsets(
            self._consumer,
            health,
            subscription.group,
            exactly_once=subscription.exactly_once,
            committed=assignment.committed_now,
            confirmed=self._confirmed,
        )
        self._count = PartitionCount(self._consumer, subscription.topics, assignment)

    @property
    def topics(self) -> frozenset[str]:
        """The input topics."""
        return frozenset(self._subscription.topics)

    @property
    def _epochs(self) -> Epochs:
        return self._assignment.epochs

    def subscribe(self, before_revoke: Callable[[list[Partition]], object]) -> None:
        """Join the group.

        Args:
            before_revoke: called with partitions before they are revoked, to finish and commit their events.
        """
        self._before_revoke = before_revoke
        self._awaited.begin()
        self._consumer.subscribe(
            list(self._subscription.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def begin(self) -> None:
        """Resume newly assigned partitions, once the offsets' metadata has shown what happened to earlier workers there.

        It is not a part of `poll`, because the caller must know from the guard how many records it may poll.
        """
        if self.markers.new:
            begun = self.markers.look()
            self._resume([p for p in begun if p.topic not in self._paused])
            self.markers.warn_of_deleted(begun)

    def poll(self, limit: int, timeout: float, window: BatchWindow | None = None) -> FetchedBatch | None:
        """Read up to `limit` records. If there are none, wait up to `timeout` seconds for one.

        With a window, records wait here for the next ones, unless they fill a batch. This saves CPU, because each poll with
        records wakes two other threads.

        Raises:
            WorkerError: a topic or the group can't be read at all, or the client finds no broker or fetches nothing any more.
        """
        self._lost_brokers.look()
        self._awaited.look()
        before = self._epochs
        records, now = self._consume(limit, timeout if self.assigned_once else min(timeout, JOIN_TIMEOUT), window)
        if self._subscription.counts_partitions:
            self._count.update(changed=before is not self._epochs)
        if self._fatal is not None:
            raise WorkerError(f"the Kafka consumer can't go on: {self._fatal.str()}")
        if before is not self._epochs or time.monotonic() - self._refreshed > GROUP_METADATA_INTERVAL:
            self._refresh_metadata()
        if before is not self._epochs:
            # The client joins the group again after a second at the earliest, and meanwhile the other members wait. A metadata
            # response makes it join at once.
            with suppress(KafkaException):
                self._consumer.list_topics(self._subscription.topics[0], timeout=WAKE_TIMEOUT)
        own = self._epochs.keys() - self.markers.new
        if not records:
            self._fetch_check.look(own, self._paused)
            self._deleted.look(own)
            return None
        self._fetch_check.fetched()
        self._deleted.fetched(own)
        self._unreadable.passed(records.partitions)
        wall = time.time_ns() // 1_000_000
        if before is not self._epochs:
            # The client itself drops records that it fetched under an earlier assignment (librdkafka's
            # rd_kafka_purge_outdated_messages). This drops the remaining records of revoked partitions.
            records = records.where(self._epochs.__contains__)
        if self.markers.unmarked and records:
            self.markers.mark(records)
        return FetchedBatch(records, self._epochs, now, wall) if records else None

    def _consume(self, limit: int, timeout: float, window: BatchWindow | None) -> tuple[Records, float]:
        """Read records from the client. Returns them, and when the first was read."""
        records, came = self._reader.consume(limit, 0), time.monotonic()
        if not records:  # wait for one record: for more, the client would wait until it has all of them
            records, came = self._reader.consume(1, timeout), time.monotonic()
        if not records or window is None:
            return records, came
        window.note(came, len(records))
        parts, enough = [records], min(limit, window.enough)
        if len(records) >= enough:
            return records, came
        for end in window.lingers(came):
            left = max(enough - sum(map(len, parts)), 0)
            more = self._reader.consume(left, max(came + end - time.monotonic(), 0))
            if more:
                window.note(came + end, len(more))
                parts.append(more)
        have = sum(map(len, parts))
        # A full batch waits for no more records. Those that are there join it, because two polls cost more than one.
        if enough <= have < limit and (more := self._reader.consume(limit - have, 0)):
            parts.append(more)
        return Records.concat(parts), came

    def _note_event(self, error: KafkaError, partition: Partition) -> None:
        """Handle the end of a partition, or an error."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(partition)
            return
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.code() == KafkaError._FATAL:  # such as a static member that another process has fenced
            self._fatal = error
            return
        if error.code() in FINAL_ERRORS:
            raise WorkerError(
                FINAL_ERRORS[error.code()].format(topic=partition[0], error=error.str().removesuffix("."))
            )
        if error.code() in UNREADABLE_ERRORS:
            at = self._consumer.position([TopicPartition(*partition)])[0].offset
            self._unreadable.note(partition, max(at, self.markers.start_offsets.get(partition, 0)), error.str())
        elif error.code() in TRANSIENT_ERRORS:
            self._lost_broker(error.str())  # it says that, and once a minute
        else:
            log.warning("%s: %s", f"reading {partition[0]}" if partition[0] else "Kafka consumer", error.str())

    @property
    def idle(self) -> bool:
        """Whether the client has reached the end of every assigned partition at least once. Only with `until_idle`.

        A partition that ends below the group's offset isn't read to its end: `lag` ends the worker, if that lasts.
        """
        if not self._epochs:
            # A member's first assignment may be empty until the other members have given up partitions.
            return not self._is_joining
        return self._epochs.keys() <= self._at_end and not any(map(self._is_past_end, self._epochs))

    def _is_past_end(self, partition: Partition) -> bool:
        _, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return 0 <= high < self._begun(partition)

    @property
    def _is_joining(self) -> bool:
        """Whether the group may assign partitions soon, for the first time or after an assignment of nothing."""
        return self._awaited.lasts or time.monotonic() - self._reassigned <= NO_ASSIGNMENT_AFTER

    def pause(self, topics: frozenset[str]) -> None:
        """Pause these topics and resume all others. The worker goes on polling, to stay in the group."""
        if topics == self._paused:
            return
        before, self._paused = self._paused, topics
        counted = [partition for partition in self._epochs if partition not in self.markers.new]
        self._consumer.pause([TopicPartition(*p) for p in counted if p[0] in topics - before])
        self._resume([TopicPartition(*p) for p in counted if p[0] in before - topics])
        self._metrics.set(PAUSED, sum(p[0] in topics for p in self._epochs))

    def _refresh_metadata(self) -> None:
        """Request the group metadata. Only the main thread may do so: the call was seen to hang in another thread."""
        self._refreshed = time.monotonic()
        self._assignment.group_metadata = self._consumer.consumer_group_metadata()

    @property
    def start_offsets(self) -> dict[Partition, int]:
        """Where the assigned partitions begin: no record below it may come."""
        return self.markers.start_offsets

    def note_running(self, records: Records) -> None:
        """Note which events run next, in case they crash the process."""
        self.markers.note_running(records)

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note offsets that a transaction has committed."""
        self.markers.note_committed(offsets)

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> bool:
        """Commit offsets. Returns False if that failed; only with `wait` is that known."""
        return self.commits.commit(offsets, wait=wait)

    def rewind(self) -> bool:
        """Go back to the committed offset of every partition. Results of the records read since are dropped.

        Returns and raises: see `seek_committed`.
        """
        self._assignment.renew()
        self._at_end.clear()
        # If the topic was created anew, the broker has deleted the offsets that were sent, and the new ones may be the same.
        self.commits.forget(self._epochs)
        return seek_committed(
            self._consumer, self._epochs, self.markers.beginning, self._refuse_forgotten, self._failed_requests
        )

    def _refuse_forgotten(self, positions: Iterable[TopicPartition]) -> None:
        """Compare the committed offsets that the broker gives with what it has confirmed. Raises OffsetsForgotten."""
        self._deleted.assigned(positions)
        if self._subscription.exactly_once:
            refuse_forgotten(positions, self._confirmed(), self._subscription.group)

    def _confirmed(self) -> dict[Partition, int]:
        """The last offset of each partition that the broker has confirmed to this worker, also of those that it had before."""
        confirmed = self._assignment.committed_offsets()
        for partition, offset in self.markers.start_offsets.items():
            confirmed[partition] = max(offset, confirmed.get(partition, -1))
        return confirmed

    def lag(self, delivered: Mapping[Partition, int]) -> dict[Partition, int]:
        """The number of records without a delivered result, for each assigned partition whose end the client knows.

        Raises:
            OffsetsPastEnd: for a while, some partitions have ended below what is delivered or committed.
        """
        found: dict[Partition, int] = {}
        past: dict[Partition, tuple[int, int]] = {}
        for partition in self._epochs:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            done = delivered.get(partition, self._begun(partition))
            if high >= 0 and done >= 0:
                found[partition] = max(high - max(done, low), 0)
                if done > high:
                    past[partition] = done, high
        self._past_end.note(past)
        return found

    def _begun(self, partition: Partition) -> int:
        """The last offset that is known to be committed; -1: none is."""
        return max(self.markers.start_offsets.get(partition, -1), self._assignment.committed_offset(partition))

    def refuse_past_end(self) -> None:
        """Look why records below the start offsets came. The client resets to the beginning where a partition ends earlier.

        The broker is asked for the group's offsets: if they were deleted with their topic, a new worker can go on.

        Raises:
            OffsetsPastEnd: a partition ends below the group's offset.
        """
        past: dict[Partition, tuple[int, int]] = {}
        with suppress(KafkaException):  # a new worker looks again
            asked = [TopicPartition(*partition) for partition in self._epochs]
            for place in self._consumer.committed(asked, timeout=COMMITTED_TIMEOUT) if asked else []:
                # The fetch that brought the records has also brought the end.
                _, end = self._consumer.get_watermark_offsets(place, cached=True)
                partition = place.topic, place.partition
                seen = self._past_end.seen.get(partition, (-1, -1))
                if place.error is None and 0 <= end < place.offset:
                    past[partition] = place.offset, end
                elif place.error is None and seen[0] == place.offset:
                    past[partition] = seen
        refuse_past_end(self._subscription.group, past)

    def undelivered(self, partitions: Sequence[Partition]) -> int:
        """The number of records of these partitions that were read, and have no delivered result."""
        return self._read_beyond(partitions, self._assignment.delivered())

    def _read_beyond(self, partitions: Sequence[Partition], offsets: Mapping[Partition, int]) -> int:
        """The number of records of these partitions that were read, from these offsets on or from where the partition began."""
        begun = self.markers.start_offsets
        places = self._consumer.position([TopicPartition(*partition) for partition in partitions])
        first = [offsets.get(partition, begun.get(partition, 0)) for partition in partitions]
        return sum(max(place.offset - offset, 0) for place, offset in zip(places, first, strict=True))

    def close(self, failure: BaseException | None = None, may_wait: Callable[[], bool] = lambda: True) -> None:
        """Leave the group. If the broker is away, this gives up after 5 s, and the partitions are free when the session ends.

        Args:
            failure: the error that ended the worker. If an event may have caused it, the crash markers stay, so that the next
                worker counts this one.
            may_wait: whether there is time to wait for an assignment that comes soon.
        """
        self._crashed = failure is not None and not isinstance(failure, WorkerError | KafkaException)
        if failure is None:
            self._join_first(may_wait)
        # The client's `close` waits for commits under way, and these wait as long as the broker is away.
        leaving = threading.Thread(target=self._leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(LEAVE_TIMEOUT)
        if leaving.is_alive():
            log.warning(
                "the group was not left within %g s, because the broker is away, or the group moves partitions: it takes this "
                "worker for there until its session ends",
                LEAVE_TIMEOUT,
            )

    def _join_first(self, may_wait: Callable[[], bool]) -> None:
        """Wait until the group has assigned partitions, if it is about to.

        Until then, the broker has a request of this member to join, and reads no other one on its connection. A request to leave
        would be lost, and the whole group would wait for this member until its session ends.
        """
        until = time.monotonic() + NO_ASSIGNMENT_AFTER
        while not self._epochs and self._is_joining and may_wait() and time.monotonic() < until:
            if self._health.broker_away is not None:
                return
            self._reader.consume(1, JOIN_TIMEOUT)

    def _leave(self) -> None:
        self._uncount(list(self._epochs))  # first, because a closing client can't request offsets
        self._consumer.close()

    def _uncount(self, partitions: list[Partition]) -> None:
        if not self._crashed:
            # No transaction may commit these partitions meanwhile: it holds the same lock.
            with self._assignment.lock:
                self.markers.uncount(partitions, self._assignment.delivered())

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._awaited.end()
        self.lost_uncommitted = 0  # whoever has these partitions now reads the records again
        self._assignment.add((p.topic, p.partition) for p in partitions)
        self.assigned_once = True
        self._at_end -= {(p.topic, p.partition) for p in partitions}
        if partitions:
            consumer.incremental_assign(self.markers.places(partitions))
            consumer.pause(partitions)
            self.markers.new |= {(p.topic, p.partition) for p in partitions}
        self._note_assignment("assigned", partitions)

    def _resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions at once. An idle client looks only once a second at what it may fetch.

        A request to each partition's leader wakes it. One call sends them all.
        """
        self._consumer.resume(partitions)
        if partitions:
            ends = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
            with suppress(KafkaException):
                self._consumer.offsets_for_times(ends, timeout=WAKE_TIMEOUT)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [(p.topic, p.partition) for p in partitions]
        self._before_revoke(gone)
        self._uncount(gone)
        self._drop(consumer, "revoked", partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [(p.topic, p.partition) for p in partitions]
        # What is known to be committed may date from an earlier assignment. Meanwhile, others may have committed more.
        begun, committed = self.markers.start_offsets, self._assignment.committed_offset
        done = {partition: max(begun.get(partition, 0), committed(partition)) for partition in gone}
        self.lost_uncommitted += self._read_beyond(gone, done)
        self._drop(consumer, "lost", partitions)
        self._awaited.lost()

    def _drop(self, consumer: Consumer, kind: str, partitions: list[TopicPartition]) -> None:
        gone = {(p.topic, p.partition) for p in partitions}
        self._assignment.remove(gone, lost=kind == "lost")
        self._at_end -= gone
        self._unreadable.passed(gone)
        self.markers.forget(gone)
        self.commits.forget(gone)
        consumer.incremental_unassign(partitions)
        self._note_assignment(kind, partitions)

    def _note_assignment(self, kind: str, partitions: list[TopicPartition]) -> None:
        self._metrics.count(REBALANCES, 1, kind)
        self._metrics.set(ASSIGNED, len(self._epochs))
        self._metrics.set(PAUSED, sum(p[0] in self._paused for p in self._epochs))
        self._reassigned = time.monotonic()
        places = ranges_of((p.topic, p.partition) for p in partitions)
        # The group's protocol ends a rebalance in which this worker only gave partitions away by assignments of nothing.
        level = logging.INFO if partitions or not self._epochs else logging.DEBUG
        lost = LOST if kind == "lost" else ""
        have = "1 partition" if len(self._epochs) == 1 else f"{len(self._epochs)} partitions"
        log.log(level, "%s %s; now %s%s", kind, places, have, lost)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.commits.note(error, partitions)

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.fatal():
            self._fatal = error
        if error.code() in TRANSIENT_ERRORS:
            self._lost_broker(error.str())
            return
        level = logging.WARNING if error.code() in CLIENT_RETRIED_ERRORS else logging.ERROR
        log.log(level, "Kafka consumer: %s", error.str())
