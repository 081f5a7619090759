"""Each partition is read forward: what the client gives again, under one assignment, would be answered twice."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from consumers.errors import WentBack
from consumers.events import Epochs, Partition

log = logging.getLogger(__name__)


class Forward:
    """Remembers how far each partition was read under its assignment. One thread calls it.

    An assignment and a rewind begin anew, under a new epoch, at committed offsets or later. Within one, offsets only grow; but a
    client that looks for an offset while it is given another may go back to `auto.offset.reset` half a second later
    (github.com/confluentinc/librdkafka/issues/2256).
    """

    def __init__(self, begins: Mapping[Partition, int]) -> None:
        """Args:
        begins: the offset at which a partition was to begin, when it was assigned last; filled by its owner.
        """
        self._begins = begins
        self._read: dict[Partition, tuple[int | None, int]] = {}  # epoch, offset of the last record

    def check(self, partitions: Sequence[Partition], offsets: Sequence[int], epochs: Epochs) -> None:
        """Take note of records, in the order in which they were read; equal partitions are one object.

        Raises:
            WentBack: some were read before.
        """
        numbers, places = np.array(offsets, np.int64), np.fromiter(map(id, partitions), np.int64, len(partitions))
        for at in np.unique(places, return_index=True)[1].tolist():
            partition = partitions[at]
            epoch, own = epochs.get(partition), numbers[places == places[at]]
            before, last = self._read.get(partition, (None, -1))
            if epoch is None or epoch != before:
                last = self._begins.get(partition, 0) - 1
            if own[0] <= last or (own[1:] <= own[:-1]).any():
                log.warning(
                    "%s/%d: records %s, under assignment %s; before, up to %d, under %s; begun at %s",
                    *(*partition, own[:20].tolist(), epoch, last, before, self._begins.get(partition)),
                )
                raise WentBack(
                    f"the Kafka client read {partition[0]}/{partition[1]} again from offset {own.min()}, though it was read up "
                    f"to {max(last, int(own.max()))}. This worker ends before an event is answered twice; a new one reads on "
                    f"from the committed offsets."
                )
            self._read[partition] = (epoch, int(own[-1]))
