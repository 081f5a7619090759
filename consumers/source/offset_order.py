"""Each partition is read forward: what the client gives again, under one assignment, would be answered twice."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import OffsetsRewound, ReadBelowCommitted
from millstream.consumers.events import Epochs
from millstream.consumers.record_types import Partition


class OffsetOrderCheck:
    """Remembers how far each partition was read under its assignment. One thread calls it.

    An assignment and a rewind begin anew, under a new epoch, at committed offsets or later. Within one, offsets only grow; but a
    client that looks for an offset while it is given another may go back to `auto.offset.reset` half a second later
    (github.com/confluentinc/librdkafka/issues/2256), and one that hands records over in the microsecond in which a rebalance
    pauses it notes that place too late, and gives them again when it goes on.
    """

    def __init__(self, start_offsets: Mapping[Partition, int]) -> None:
        """Args:
        start_offsets: the offset at which a partition was to begin, when it was assigned last; filled by its owner.
        """
        self._start_offsets = start_offsets
        self._read: dict[Partition, tuple[int | None, int]] = {}  # epoch, offset of the last record
        self._floor = 0  # what was read under an epoch up to this one is read again

    def check(
        self,
        partitions: Mapping[int, Partition],
        places: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        epochs: Epochs,
    ) -> None:
        """Take note of records, in the order in which they were read.

        Args:
            partitions: that the records are of, each by the number that stands for it.
            places: that number, of each record.
            offsets: of each record.
            epochs: the assignment under which they were read.

        Raises:
            OffsetsRewound: some were read before; told once, all that was read under these epochs is to be read again.
            ReadBelowCommitted: the first of an assignment lie below where it was to begin: reading again would find the same.
        """
        for place, partition in partitions.items():
            epoch, own = epochs.get(partition), offsets[places == place]
            before, last = self._read.get(partition, (None, -1))
            if epoch is not None and epoch <= self._floor:
                continue
            if epoch is None or epoch != before:
                last = self._start_offsets.get(partition, 0) - 1
                if own[0] <= last:
                    raise ReadBelowCommitted(
                        f"the Kafka client began {partition[0]}/{partition[1]} at offset {own[0]}, though everything below "
                        f"{last + 1} is committed. This worker ends before an event is answered twice; a new one reads on from "
                        f"the committed offsets. Where that repeats itself, the brokers have lost records: "
                        f"docs/runbook.md, MillstreamWorkersRestarting."
                    )
            if own[0] <= last or (own[1:] <= own[:-1]).any():
                self._floor = max(epochs.values(), default=0)
                raise OffsetsRewound(
                    f"the Kafka client gave {partition[0]}/{partition[1]} again from offset {own.min()}, though it was read up "
                    f"to {max(last, int(own.max()))}: it is read again from the committed offset, so that no event is answered "
                    f"twice. If the topic was deleted and created anew, its new events are read from the beginning"
                )
            self._read[partition] = (epoch, int(own[-1]))
