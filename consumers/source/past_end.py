"""Finds partitions that end below the group's offsets: their brokers lost records. An idle worker would notice nothing."""

import time
from collections.abc import Mapping

from millstream.consumers.errors import OffsetsPastEnd
from millstream.consumers.record_types import Partition

# Seconds for which a partition must end too early. A new leader may tell an earlier end until its followers have answered.
PATIENCE = 10.0


class PastEnd:
    """Remembers since when partitions end too early. Only the main thread calls it."""

    def __init__(self, group: str) -> None:
        """Args:
        group: the consumer group, for messages.
        """
        self._group = group
        self._since: dict[Partition, float] = {}

    def note(self, past: Mapping[Partition, tuple[int, int]]) -> None:
        """Note the partitions that end too early now: the offset of the next event to read, and the partition's end.

        Raises:
            OffsetsPastEnd: one of them has ended too early for `PATIENCE` seconds.
        """
        now = time.monotonic()
        self._since = {partition: self._since.get(partition, now) for partition in past}
        for partition, since in self._since.items():
            if now - since >= PATIENCE:
                raise OffsetsPastEnd(self._message(partition, *past[partition]))

    def _message(self, partition: Partition, offset: int, end: int) -> str:
        topic, number = partition
        return (
            f"group {self._group} was at offset {offset} of {topic}/{number}, but the partition ends at {end}: the brokers lost "
            f"records, or the topic was deleted and created anew. New events below {offset} would not be predicted, so the "
            f"worker ends. Stop all workers. To read all that is there: kafka-consumer-groups.sh --bootstrap-server ... --group "
            f"{self._group} --topic {topic} --reset-offsets --to-earliest --execute; with --to-latest, only what comes from now "
            f"on. Then start the workers again."
        )
