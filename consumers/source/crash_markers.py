"""What offsets' metadata say of the workers that began there: counted at their first record, cleared by who gets on or leaves."""

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.crashes import Attempts, CrashGuard
from millstream.consumers.source.partition_names import ranges_of

log = logging.getLogger(__name__)

# Seconds, the first time and at most: the offsets of a partition with an open transaction are not to be had, and asked for again;
# a broker that is far away needs longer to answer at all.
COMMITTED_TIMEOUTS = (0.05, 2.0)
ANSWER_TIMEOUT = 15.0  # seconds
LOGGED_ATTEMPTS = {10, 100, 1000, 10_000}  # how often they were asked for: about ten seconds, then minutes


class CrashMarkers:
    """Keeps count in committed offsets' metadata. The thread that polls calls it."""

    def __init__(self, consumer: Consumer, guard: CrashGuard, start: str) -> None:
        """Args:
        consumer: commits and asks for offsets.
        guard: told what was found.
        start: earliest or latest, for partitions without an offset.
        """
        self._consumer = consumer
        self._guard = guard
        self._start = start
        self.new: set[Partition] = set()  # assigned, and not looked at yet: nothing of them may run
        self.start_offsets: dict[
            Partition, int
        ] = {}  # offset below which nothing may come: it was committed when we looked
        self.unmarked: dict[Partition, TopicPartition] = {}  # what to commit when their first record is read
        self._patience = COMMITTED_TIMEOUTS[0]
        self._refused = 0  # how often offsets were not told, one after the other
        # What was committed to count this start, until a later offset is known to be committed.
        self._counted: dict[Partition, TopicPartition] = {}

    def places(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions with the offsets where they begin, to be assigned so; as they are where these are not known at once.

        A client that has to look for the beginning by itself, and is told to pause meanwhile, may go back there half a second
        later, whatever was read by then (github.com/confluentinc/librdkafka/issues/2256).
        """
        if self._start == "latest":  # the end moves on until they are looked at
            return partitions
        try:
            found = self._consumer.committed(partitions, timeout=self._patience)
            if any(p.error for p in found):
                return partitions
            return [p if p.offset >= 0 else self._first(p) for p in found]
        except KafkaException as error:
            log.debug("the beginnings of %d partitions are not known yet: %s", len(partitions), error.args[0].str())
            return partitions

    def _first(self, position: TopicPartition) -> TopicPartition:
        low, _ = self._consumer.get_watermark_offsets(position, timeout=COMMITTED_TIMEOUTS[1])
        return TopicPartition(position.topic, position.partition, low)

    def look(self) -> list[TopicPartition]:
        """Look at the new partitions' offsets; returns those whose records may come now.

        Where the broker does not answer in time, nothing is known, and the next turn asks again.
        """
        new = [TopicPartition(*partition) for partition in self.new]
        try:
            positions = self._consumer.committed(new, timeout=self._patience)
            begun = {(p.topic, p.partition): self.beginning(p) for p in positions}
            offsets = {partition: offset for partition, offset in begun.items() if offset is not None}
            found = {(p.topic, p.partition): Attempts.read(p.metadata) for p in positions}
            noted = self._guard.assigned({partition: found[partition] for partition in offsets})
            pinned = [p for p in positions if p.offset < 0 and self._start == "latest"]
            if pinned:  # a rewind, or the next worker, would begin later otherwise
                places = [TopicPartition(p.topic, p.partition, offsets[p.topic, p.partition]) for p in pinned]
                self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            self._note_unknown(error.args[0])
            return []
        self._patience = COMMITTED_TIMEOUTS[0]
        self._refused = 0
        self.unmarked |= {p: TopicPartition(*p, offsets[p], attempts.metadata()) for p, attempts in noted.items()}
        self.start_offsets |= offsets
        self.new.clear()
        return new

    def _note_unknown(self, error: KafkaError) -> None:
        """Offsets were not told: usual while a lost worker's transaction is open, and worth a word where it goes on."""
        self._refused += 1
        self._patience = min(2 * self._patience, COMMITTED_TIMEOUTS[1])
        log.log(
            logging.WARNING if self._refused in LOGGED_ATTEMPTS else logging.DEBUG,
            "the broker does not tell the committed offsets of %s: %s; asked %d times, and goes on asking. A transaction may "
            "be open there: a lost worker's for 10 s at most, one that the broker forgot until it is ended (docs/guarantees.md)",
            *(ranges_of(self.new), error.str(), self._refused),
        )

    def mark(self, records: Records) -> None:
        """Count that a worker begins, at the offsets of partitions whose first records these are, before they run.

        Not at the assignment: a worker that ends before it has come to a partition has not failed there.
        """
        begun = self.unmarked.keys() & set(records.partitions)
        if not begun:
            return
        marks = {partition: self.unmarked.pop(partition) for partition in begun}
        self._counted |= marks  # also where no answer comes: the broker may have it nevertheless
        try:
            self._consumer.commit(offsets=list(marks.values()), asynchronous=False)
        except KafkaException as error:
            log.debug("the start of %d partitions is not counted: %s", len(marks), error.args[0].str())

    def beginning(self, position: TopicPartition) -> int | None:
        """Where the partition is begun; None for an empty one without an offset, where nobody can have ended."""
        if position.offset >= 0:
            return int(position.offset)
        low, high = self._consumer.get_watermark_offsets(position, timeout=ANSWER_TIMEOUT)
        if self._start == "latest":
            return int(high)
        return int(low) if low < high else None

    def note_running(self, records: Records) -> None:
        """Leave word at the offsets of the first of these that they run now, where their partitions are under suspicion.

        Where that can't be written, a partition is on its way to another worker, or the events run without it.
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
        """The broker has confirmed these offsets: earlier ones, with what their metadata said, are gone.

        The answer to a commit from before a mark may come after it, and says nothing about it.
        """
        for partition, offset in offsets.items():
            self.unmarked.pop(partition, None)
            if partition in self._counted and offset > self._counted[partition].offset:
                del self._counted[partition]

    def uncount(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int]) -> None:
        """This worker leaves in peace: its start does not count against the events that it did not come to.

        The broker is asked first. Where it has something else than our mark, later offsets are committed already, though this
        worker has not heard of it: what is committed here would take them back. The caller sees to it that no transaction commits
        meanwhile.

        Args:
            partitions: that it leaves.
            delivered: up to where the broker has all results, for partitions with any. Commits that are under way go no further.
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
        """These partitions went."""
        self.new -= partitions
        for partition in partitions:
            self.unmarked.pop(partition, None)
            self._counted.pop(partition, None)
            self.start_offsets.pop(partition, None)
            self._guard.gone(partition)
