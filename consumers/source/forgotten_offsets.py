"""Finds partitions whose committed offset the broker has forgotten: it gives an older one than it has confirmed."""

from collections.abc import Iterable, Mapping

from confluent_kafka import TopicPartition

from millstream.consumers.errors import OffsetsForgotten
from millstream.consumers.record_types import Partition


def refuse_forgotten(positions: Iterable[TopicPartition], confirmed: Mapping[Partition, int], group: str) -> None:
    """Compare the broker's answers with what it has confirmed to this worker.

    Args:
        positions: with the committed offsets as the broker gives them; a negative one: there is none.
        confirmed: the last offset of each partition that the broker has confirmed to this worker.
        group: the consumer group, for the message.

    Raises:
        OffsetsForgotten: it gives an older offset.
    """
    for position in positions:
        known = confirmed.get((position.topic, position.partition), -1)
        if 0 <= position.offset < known:
            raise OffsetsForgotten(
                f"the broker says that group {group} is at offset {position.offset} of {position.topic}/{position.partition}, "
                f"but it has confirmed {known} before. So it has lost committed offsets, or somebody has set them back. From "
                f"there, events would be predicted twice, so the worker ends. Stop all workers, and set the group to the offsets "
                f"that were confirmed (`millstream docs runbook#offsets-that-a-broker-has-lost`). The broker has confirmed these "
                f"to this worker, as topic,partition,offset; if several workers name a partition, the highest offset counts: "
                f"{listed(confirmed)}"
            )


def listed(offsets: Mapping[Partition, int]) -> str:
    """Offsets as the lines of a file for kafka-consumer-groups.sh, but on one line."""
    known = sorted((partition, offset) for partition, offset in offsets.items() if offset >= 0)
    return " ".join(f"{topic},{number},{offset}" for (topic, number), offset in known)
