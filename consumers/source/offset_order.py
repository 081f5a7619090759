"""Finds records that the Kafka client delivers twice under one assignment: their events would get two results."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import OffsetsRewound, ReadBelowCommitted
from millstream.consumers.events import Epochs
from millstream.consumers.record_types import Partition


class OffsetOrderCheck:
    """Remembers how far each partition was read under its assignment. One thread calls it.

    An assignment or a rewind starts a new epoch, at the committed offset or later. Within an epoch, offsets only grow. The
    client breaks this in two known cases:
    - It searches for the start offset while it is given another one. Half a second later, it may go back to the offset of
      `auto.offset.reset` (github.com/confluentinc/librdkafka/issues/2256).
    - It delivers records in the microsecond in which a rebalance pauses the partition. It then stores its position too late, and
      delivers these records again when it resumes.
    """

    def __init__(self, start_offsets: Mapping[Partition, int]) -> None:
        """Args:
        start_offsets: the offset at which each partition had to begin when it was last assigned; its owner fills it.
        """
        self._start_offsets = start_offsets
        self._read: dict[Partition, tuple[int | None, int]] = {}  # epoch, offset of the last record
        self._floor = 0  # records of this epoch and of earlier ones are read again

    def check(
        self,
        partitions: Mapping[int, Partition],
        places: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        epochs: Epochs,
    ) -> None:
        """Take note of records, in the order in which they were read.

        Args:
            partitions: the records' partitions, by the number that `places` uses.
            places: the number of each record's partition.
            offsets: of each record.
            epochs: the assignment under which the records were read.

        Raises:
            OffsetsRewound: some records were read before. It is raised once: all records of these epochs have to be read again.
            ReadBelowCommitted: the first record lies below the start offset. Reading again would not help. The worker then
                looks whether the start offset is past the partition's end.
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
                        f"{last + 1} was committed. This worker ends before an event is answered twice. A new one reads on from "
                        f"the committed offsets, or from the beginning if the topic was deleted and created anew. Where that "
                        f"repeats itself, the brokers have lost offsets: `millstream docs runbook#millstreamworkersrestarting`."
                    )
            if own[0] <= last or (own[1:] <= own[:-1]).any():
                self._floor = max(epochs.values(), default=0)
                raise OffsetsRewound(
                    f"the Kafka client gave {partition[0]}/{partition[1]} again from offset {own.min()}, though it was read up "
                    f"to {max(last, int(own.max()))}: it is read again from the committed offset, so that no event is answered "
                    f"twice. If the topic was deleted and created anew, its new events are read from where `input.start` says"
                )
            self._read[partition] = (epoch, int(own[-1]))
