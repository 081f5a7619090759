"""Stores in the metadata of committed offsets how often workers began there.

A worker is counted when it reads the first record of a partition. The count ends with the next committed offset, or when the
worker leaves in order.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.crashes import Attempts, CrashGuard
from millstream.topics.partitions import partitions_of

log = logging.getLogger(__name__)

# Seconds for a request of committed offsets: the first time, and at most. The broker does not return the offset of a partition
# with an open transaction, so the request is repeated. The limit grows, because a distant broker needs longer to answer.
COMMITTED_TIMEOUTS = (0.05, 2.0)
ANSWER_TIMEOUT = 15.0  # seconds
LOGGED_ATTEMPTS = {10, 100, 1000, 10_000}  # requests in vain after which a warning is logged: ten seconds, then minutes


class CrashMarkers:
    """Counts worker starts in the metadata of committed offsets. Only the main thread calls it."""

    def __init__(
        self, consumer: Consumer, guard: CrashGuard, start: str, check: Callable[[Iterable[TopicPartition]], object]
    ) -> None:
        """Args:
        consumer: commits and requests offsets.
        guard: gets the attempts found.
        start: earliest or latest, for partitions without a committed offset.
        check: gets the committed offsets of new partitions, and raises OffsetsForgotten.
        """
        self._check = check
        self._consumer = consumer
        self._guard = guard
        self._start = start
        self.new: set[Partition] = set()  # assigned, but their offsets are not known yet: none of their events may run
        self._unplaced: set[Partition] = (
            set()
        )  # of the new ones, those that were assigned without the offset where they begin
        self.start_offsets: dict[Partition, int] = {}  # the committed offset: no record below it may come
        self.unmarked: dict[Partition, TopicPartition] = {}  # the offset and metadata to commit with their first record
        self._patience = COMMITTED_TIMEOUTS[0]
        self._refused = 0  # requests in vain, in a row
        # By topic, the number of partitions that it had when this worker first had one of them. Only where it starts at the end.
        self._partitions: dict[str, int] = {}
        # The markers committed for this start, until a later offset is known to be committed.
        self._counted: dict[Partition, TopicPartition] = {}

    def places(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Add to the partitions the offsets where they begin. If the broker doesn't return these at once, return them unchanged.

        If the client has to find the start offset itself and is paused meanwhile, it may go back to that offset half a second
        later, whatever was read by then (github.com/confluentinc/librdkafka/issues/2256).
        """
        known = self._places(partitions)
        if known is None:
            self._unplaced |= {(p.topic, p.partition) for p in partitions}
        return known or partitions

    def _places(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        if self._start == "latest":  # the end moves until `look` reads it
            return None
        try:
            found = self._consumer.committed(partitions, timeout=self._patience)
            new = [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in found if p.offset < 0]
            firsts = self._consumer.offsets_for_times(new, timeout=COMMITTED_TIMEOUTS[1]) if new else []
            places = [p for p in found if p.offset >= 0] + firsts
            return None if any(p.error for p in (*found, *firsts)) else places
        except KafkaException as error:
            log.debug("the beginnings of %d partitions are not known yet: %s", len(partitions), error.args[0].str())
            return None

    def look(self) -> list[TopicPartition]:
        """Request the offsets of the new partitions. Returns the partitions whose records may come now.

        Those that were assigned without an offset are assigned again with it. If the broker does not answer in time, it returns
        none, and the next turn of the loop tries again.
        """
        new = [TopicPartition(*partition) for partition in self.new]
        try:
            positions = self._consumer.committed(new, timeout=self._patience)
            self._check(positions)
            if self._start == "latest":
                self._count_partitions({p.topic for p in positions})
            begun = {(p.topic, p.partition): self.beginning(p) for p in positions}
            offsets = {partition: offset for partition, offset in begun.items() if offset is not None}
            found = {(p.topic, p.partition): Attempts.read(p.metadata) for p in positions}
            noted = self._guard.assigned({partition: found[partition] for partition in offsets})
            if self._start == "latest":
                self._pin(positions, offsets)
            self._place(offsets)
        except KafkaException as error:
            self._note_unknown(error.args[0])
            return []
        self._patience = COMMITTED_TIMEOUTS[0]
        self._refused = 0
        self.unmarked |= {p: TopicPartition(*p, offsets[p], attempts.metadata()) for p, attempts in noted.items()}
        self.start_offsets |= offsets
        self.new.clear()
        return new

    def warn_of_deleted(self, partitions: list[TopicPartition]) -> None:
        """Say which records retention has deleted before the group read them, if the broker tells where partitions begin.

        Args:
            partitions: those that `look` has returned.
        """
        begun = {(p.topic, p.partition): self.start_offsets.get((p.topic, p.partition)) for p in partitions}
        asked = [TopicPartition(*partition, OFFSET_BEGINNING) for partition, at in begun.items() if at is not None]
        try:
            firsts = self._consumer.offsets_for_times(asked, timeout=COMMITTED_TIMEOUTS[1]) if asked else []
        except KafkaException:
            return
        for first in firsts:
            at = begun[first.topic, first.partition]
            if at is not None and first.error is None and first.offset > at:
                log.warning(
                    "%s/%d: retention has deleted the offsets from %d to %d before the group read them. Their events get no "
                    "prediction (`millstream docs runbook#millstreameventsdeletedunread`)",
                    *(first.topic, first.partition, at, first.offset - 1),
                )

    def _count_partitions(self, topics: set[str]) -> None:
        for topic in topics - self._partitions.keys():
            self._partitions[topic] = len(partitions_of(self._consumer, topic, ANSWER_TIMEOUT))

    def _pin(self, positions: list[TopicPartition], begun: Mapping[Partition, int]) -> None:
        """Commit where partitions without an offset begin. Else, a rewind or the next worker would begin at a later end."""
        places = [
            TopicPartition(*p, begun[p]) for p in ((own.topic, own.partition) for own in positions if own.offset < 0)
        ]
        if places:
            self._consumer.commit(offsets=places, asynchronous=False)

    def _place(self, offsets: Mapping[Partition, int]) -> None:
        """Assign partitions again that were assigned without an offset. They are paused, so none of their records was read.

        The client would ask for these offsets itself. But if a broker that has just come back answers that it is not the
        coordinator, the client does not ask again, and never reads these partitions. Raises KafkaException.
        """
        if not self._unplaced:
            return
        places = [TopicPartition(*p, offsets.get(p, OFFSET_BEGINNING)) for p in self._unplaced]
        self._consumer.incremental_unassign(places)
        self._consumer.incremental_assign(places)
        self._consumer.pause(places)
        self._unplaced.clear()

    def _note_unknown(self, error: KafkaError) -> None:
        """Note a request in vain. One is usual while a lost worker's transaction is open, so only many in a row are logged."""
        self._refused += 1
        self._patience = min(2 * self._patience, COMMITTED_TIMEOUTS[1])
        log.log(
            logging.WARNING if self._refused in LOGGED_ATTEMPTS else logging.DEBUG,
            "the broker does not tell the committed offsets of %s: %s; asked %d times, and goes on asking. A transaction may "
            "be open there: a lost worker's for 10 s at most, one that the broker forgot until it is ended "
            "(`millstream docs guarantees`)",
            *(ranges_of(self.new), error.str(), self._refused),
        )

    def mark(self, records: Records) -> None:
        """Count this worker's start in the partitions of which these are the first records, before they run.

        It is not counted at the assignment: a worker that ends before it reads a partition has not failed there. Nor is it
        counted where the first record lies below the offset at which the partition began. If the topic was deleted and created
        anew, the broker has forgotten this offset, and a commit would bring it back: nobody would read the new events below it.
        """
        begun = self.unmarked.keys() & set(records.partitions)
        if not begun:
            return
        firsts = records.firsts()
        marks = {p: mark for p in begun if (mark := self.unmarked.pop(p)).offset <= firsts[p]}
        if not marks:
            return
        self._counted |= marks  # also if the commit fails: the broker may have stored it
        try:
            self._consumer.commit(offsets=list(marks.values()), asynchronous=False)
        except KafkaException as error:
            log.debug("the start of %d partitions is not counted: %s", len(marks), error.args[0].str())

    def beginning(self, position: TopicPartition) -> int | None:
        """The offset where reading begins; None for an empty partition without an offset, where no worker can have crashed."""
        if position.offset >= 0:
            return int(position.offset)
        low, high = self._consumer.get_watermark_offsets(position, timeout=ANSWER_TIMEOUT)
        if self._start != "latest":
            return int(low) if low < high else None
        # A partition that its topic got while this worker ran has no past: all its events came since.
        is_new = position.partition >= self._partitions.get(position.topic, position.partition + 1)
        return int(low if is_new else high)

    def note_running(self, records: Records) -> None:
        """Commit a note that these records run now, in suspected partitions.

        If the commit fails, the events run without the note; or the partition is about to move to another worker.
        """
        counts, firsts = records.counts(), records.firsts()
        noted = {p: attempts for p, count in counts.items() if (attempts := self._guard.note(p, count)) is not None}
        if not noted:
            return
        notes = {p: TopicPartition(*p, firsts[p], attempts.metadata()) for p, attempts in noted.items()}
        try:
            self._consumer.commit(offsets=list(notes.values()), asynchronous=False)
        except KafkaException as error:
            log.warning("the note of what runs now was not written: %s", error.args[0].str())
            return
        self._counted |= notes

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note offsets that the broker has confirmed. They replace earlier ones together with their markers.

        The confirmation of a commit that was sent before a marker may come after it. Its offset is not later than the marker's,
        so the marker stays.
        """
        for partition, offset in offsets.items():
            self.unmarked.pop(partition, None)
            if partition in self._counted and offset > self._counted[partition].offset:
                del self._counted[partition]

    def uncount(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int]) -> None:
        """Take this worker's start out of the count, because it leaves in order.

        It first requests the committed offsets. If the broker has something else than our marker, a later offset is committed
        already, though this worker has no confirmation yet: a commit here would undo it. The caller makes sure that no
        transaction commits meanwhile.

        Args:
            partitions: the partitions that it leaves.
            delivered: for partitions with results, the offset up to which the broker has all of them. Commits under way are not
                beyond it.
        """
        marks = {p: self._counted.pop(p) for p in partitions if p in self._counted}
        if not marks:
            return
        try:
            found = self._consumer.committed([TopicPartition(*p) for p in marks], timeout=COMMITTED_TIMEOUTS[1])
            at = {(p.topic, p.partition): (p.offset, p.metadata) for p in found}
            left = [
                TopicPartition(*p, max(mark.offset, delivered.get(p, 0)))
                for p, mark in marks.items()
                if at[p] == (mark.offset, mark.metadata)
            ]
            if left:
                self._consumer.commit(offsets=left, asynchronous=False)
        except KafkaException as error:
            log.debug("a start is still counted: %s", error.args[0].str())

    def forget(self, partitions: set[Partition]) -> None:
        """Forget partitions that were revoked or lost."""
        self.new -= partitions
        self._unplaced -= partitions
        for partition in partitions:
            self.unmarked.pop(partition, None)
            self._counted.pop(partition, None)
            self.start_offsets.pop(partition, None)
            self._guard.gone(partition)
