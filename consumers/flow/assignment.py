"""The assigned partitions, and how far each is processed. Source and writer update it; all threads may read it."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from millstream.consumers.events import Epochs, MicroBatch, NextOffsets
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.record_types import Partition


class Assignment:
    """The assigned partitions, each with its delivered and committed offset.

    Each partition has the epoch of its assignment, a number that grows. A partition that is revoked and assigned again has a new
    epoch. So records from before and after can be distinguished.

    A partition that is about to be revoked stays assigned until the results of the batches that have started are final. Batches
    that start meanwhile leave its events out, and its new owner reads them (`leave`, `admit`).
    """

    def __init__(self) -> None:
        # Held while the assignment changes (except for lost partitions), while a transaction commits, and while crash markers are
        # taken back.
        self.lock = threading.Lock()
        # Sent with a transaction's offsets, so that the broker refuses those of a former member (KIP-447).
        self.group_metadata: Any = None
        self.rewind_wanted = threading.Event()  # set: go back to the committed offsets
        self.all_partitions = 0  # of the input topics, whoever has them; 0: not known, or not needed
        self._epochs: Epochs = {}
        self._lost: frozenset[Partition] = frozenset()  # those that went last time because the group ended this session
        self._epoch = 0  # of the latest assignment
        self._delivered: NextOffsets = {}
        self._delivered_lock = threading.Lock()
        self._committed: NextOffsets = {}
        self._floor = 0  # records of this epoch and of earlier ones are read again
        self._starting = threading.Lock()  # held while batches start, and while it changes which events may start
        self._startable: Epochs = {}  # the partitions whose events may start
        self._started = -1  # the highest number of a batch that has started
        self._whole = -1  # batches up to this number had started when the last partitions were about to be revoked
        self._final = 0  # the results of all batches below this number are final
        self._left = threading.Event()  # set once that is true of all up to `_whole`

    @property
    def share(self) -> float:
        """This worker's share of all partitions of the input topics, from 0 to 1; 0 while their number isn't known."""
        return min(len(self._epochs) / self.all_partitions, 1.0) if self.all_partitions else 0.0

    @property
    def epochs(self) -> Epochs:
        """The partitions with their epochs. The object never changes: each rebalance creates a new one."""
        return self._epochs

    def add(self, partitions: Iterable[Partition]) -> None:
        """Add assigned partitions."""
        with self.lock:
            self._epoch += 1
            self._set({**self._epochs, **dict.fromkeys(partitions, self._epoch)})

    def remove(self, partitions: Iterable[Partition], *, lost: bool = False) -> None:
        """Remove partitions that were revoked, or `lost`: the group has ended this member's session.

        A transaction that commits meanwhile doesn't delay the removal of lost partitions, for it may wait for a broker that is
        away. If the group has ended the session, the broker refuses the transaction's offsets: they name the membership.
        """
        gone = set(partitions)
        with nullcontext() if lost else self.lock:
            self._lost = self._lost | gone if lost else self._lost - gone
            self._set(_without(self._epochs, gone))

    def is_lost(self, partitions: Iterable[Partition]) -> bool:
        """Whether partitions are gone because the group has ended this worker's session; else it moved them as usual."""
        return self._lost.issuperset(partitions)

    def why_gone(self, partitions: Iterable[Partition]) -> str:
        """Why partitions are no longer assigned as they were, as a sentence."""
        gone = set(partitions)
        if self.is_lost(gone):
            return (
                f"the group ended this worker's session, and so its hold on {ranges_of(gone)}, because the broker was away or "
                f"this process stood still. The worker joins again by itself"
            )
        return f"{ranges_of(gone)} went to another worker before the transaction's end"

    def renew(self) -> None:
        """Start a new epoch for all partitions, because they are read again from their committed offsets."""
        with self.lock:
            self._epoch += 1
            self._set(dict.fromkeys(self._epochs, self._epoch))

    def _set(self, epochs: Epochs) -> None:
        self._epochs = self._startable = epochs

    def leave(self, partitions: Iterable[Partition]) -> threading.Event:
        """Let no more events of these partitions start, because they are about to be revoked.

        Returns:
            an event that is set once the results of all batches that have started are final.
        """
        gone = set(partitions)
        with self._starting:
            self._startable = _without(self._epochs, gone)
            self._whole = self._started
            self._left = threading.Event()
            self._note_left()
            return self._left

    def admit(self, number: int, batch: MicroBatch) -> MicroBatch:
        """The batch as it starts: without the events of partitions that were revoked, or are about to be. Any thread calls it.

        Threads take batches in the order of their numbers, but may start them in another one. A batch with a lower number than
        one that has started is not cut: the other one may bring its partition to an offset behind the events left out.
        """
        with self._starting:
            self._started = max(self._started, number)
            if number <= self._whole:
                return batch
            startable = self._startable
        return batch.under(startable)

    def note_final(self, number: int) -> None:
        """Note that the results of all batches below this number are final."""
        with self._starting:
            self._final = number
            self._note_left()

    def _note_left(self) -> None:
        if self._final > self._whole:
            self._left.set()

    def drop_read(self) -> None:
        """Drop the results of all records read so far, because they are read again."""
        self._floor = max(self.epochs.values(), default=self._floor)

    def kept(self, ends: NextOffsets) -> NextOffsets:
        """Leave out partitions whose records are read again."""
        return {partition: (epoch, end) for partition, (epoch, end) in ends.items() if epoch > self._floor}

    def current(self, read_under: Epochs) -> set[Partition] | None:
        """The partitions whose results are still to be written; None: all, which is the usual case and the fastest.

        Args:
            read_under: the epochs under which records were read.
        """
        epochs = self.epochs
        if read_under is epochs and min(epochs.values(), default=0) > self._floor:
            return None
        return {p for p, epoch in read_under.items() if epochs.get(p) == epoch and epoch > self._floor}

    def is_outdated(self, batch: MicroBatch) -> bool:
        """Whether no result of the batch is still to be written: its partitions were revoked, or are read again."""
        for part in batch.parts:  # called for each batch: a generator would take longer than the rest
            current = self.current(part.block.epochs)
            if current is None or current:
                return False
        return True

    def note_delivered(self, ends: NextOffsets) -> None:
        """Note offsets up to which the broker has all results."""
        with self._delivered_lock:
            self._delivered |= ends

    def delivered(self) -> dict[Partition, int]:
        """For each assigned partition, the offset up to which the broker has all results.

        Only results of the partition's current epoch count.
        """
        with self._delivered_lock:
            delivered = dict(self._delivered)
        epochs = self._epochs
        return {partition: end for partition, (epoch, end) in delivered.items() if epochs.get(partition) == epoch}

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note offsets that the broker has confirmed as committed."""
        epochs = self._epochs
        self._committed |= {p: (epochs[p], offset) for p, offset in offsets.items() if p in epochs}

    def committed_offset(self, partition: Partition) -> int:
        """The partition's last offset that this worker knows to be committed; -1 if it knows none."""
        return self._committed.get(partition, (0, -1))[1]

    def committed_now(self) -> set[Partition]:
        """The partitions of which the broker has confirmed a commit under their present assignment."""
        epochs = self._epochs
        return {partition for partition, (epoch, _) in self._committed.items() if epochs.get(partition) == epoch}

    def committed_offsets(self) -> dict[Partition, int]:
        """The last offset of each partition that this worker knows to be committed, also of those that it had before."""
        return {partition: offset for partition, (_, offset) in self._committed.items()}

    def is_committed(self, ends: NextOffsets) -> bool | None:
        """Whether these offsets are committed; None if this worker can't commit them any more."""
        for partition, (epoch, end) in ends.items():
            if self._epochs.get(partition) != epoch:
                return None
            committed = self._committed.get(partition)
            if committed is None or committed[0] != epoch or committed[1] < end:
                return False
        return True


def _without(epochs: Epochs, gone: set[Partition]) -> Epochs:
    return {partition: epoch for partition, epoch in epochs.items() if partition not in gone}
