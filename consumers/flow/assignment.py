"""Which partitions are this worker's, and how far each is. Source and writer note it; all may read it."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.consumers.events import Epochs, NextOffsets
from millstream.consumers.record_types import Partition


class Assignment:
    """The assigned partitions, and how far each is delivered and committed.

    Each partition has the epoch of its assignment: a number that grows. A partition that goes and comes back has another one, so
    what was read before can be told from what was read after.
    """

    def __init__(self) -> None:
        # Held while the assignment changes, while a transaction commits, and while a start is uncounted.
        self.lock = threading.Lock()
        self.group_metadata: Any = (
            None  # goes with a transaction's offsets: the broker refuses a former member's (KIP-447)
        )
        self.rewind_wanted = threading.Event()  # what was read since the last commit is to be read again
        self._epochs: Epochs = {}
        self._epoch = 0  # of the latest assignment
        self._delivered: NextOffsets = {}
        self._delivered_lock = threading.Lock()
        self._committed: NextOffsets = {}

    @property
    def epochs(self) -> Epochs:
        """The partitions with their epochs; an object that never changes, another one after each rebalance."""
        return self._epochs

    def add(self, partitions: Iterable[Partition]) -> None:
        """These were assigned."""
        with self.lock:
            self._epoch += 1
            self._epochs = {**self._epochs, **dict.fromkeys(partitions, self._epoch)}

    def remove(self, partitions: Iterable[Partition]) -> None:
        """These went."""
        gone = set(partitions)
        with self.lock:
            self._epochs = {partition: epoch for partition, epoch in self._epochs.items() if partition not in gone}

    def renew(self) -> None:
        """All are read again from their committed offsets: what was read before must not be written."""
        with self.lock:
            self._epoch += 1
            self._epochs = dict.fromkeys(self._epochs, self._epoch)

    def note_delivered(self, ends: NextOffsets) -> None:
        """The broker has all results up to these offsets."""
        with self._delivered_lock:
            self._delivered |= ends

    def delivered(self) -> dict[Partition, int]:
        """Of each partition that is ours, the offset up to which the broker has all results.

        A partition that went and came back starts anew: what was delivered under its earlier epoch is its past.
        """
        with self._delivered_lock:
            delivered = dict(self._delivered)
        epochs = self._epochs
        return {partition: end for partition, (epoch, end) in delivered.items() if epochs.get(partition) == epoch}

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has confirmed these offsets."""
        epochs = self._epochs
        self._committed |= {p: (epochs[p], offset) for p, offset in offsets.items() if p in epochs}

    def committed_offset(self, partition: Partition) -> int:
        """The last offset of the partition that this worker knows to be committed; -1 where it knows none."""
        return self._committed.get(partition, (0, -1))[1]

    def is_committed(self, ends: NextOffsets) -> bool | None:
        """Whether these ends are committed; None where they never will be, by this worker."""
        for partition, (epoch, end) in ends.items():
            if self._epochs.get(partition) != epoch:
                return None
            committed = self._committed.get(partition)
            if committed is None or committed[0] != epoch or committed[1] < end:
                return False
        return True
