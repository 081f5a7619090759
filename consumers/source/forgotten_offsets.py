"""Finds partitions whose committed offset the broker has forgotten: it gives an older one than it has confirmed."""

from collections.abc import Callable, Iterable

from confluent_kafka import TopicPartition

from millstream.consumers.errors import OffsetsForgotten
from millstream.consumers.record_types import Partition


def refuse_forgotten(positions: Iterable[TopicPartition], confirmed: Callable[[Partition], int], group: str) -> None:
    """Compare the broker's answers with what it has confirmed to this worker.

    Args:
        positions: with the committed offsets as the broker gives them; a negative one: there is none.
        confirmed: the last offset of a partition that the broker has confirmed to this worker; -1: none.
        group: the consumer group, for the message.

    Raises:
        OffsetsForgotten: it gives an older offset.
    """
    for position in positions:
        known = confirmed((position.topic, position.partition))
        if 0 <= position.offset < known:
            raise OffsetsForgotten(
                f"the broker says that group {group} is at offset {position.offset} of {position.topic}/{position.partition}, "
                f"but it has confirmed {known} before. So it has lost committed offsets, or somebody has set them back. From "
                f"there, events would be predicted twice, so the worker ends. Stop all workers. To read on: "
                f"kafka-consumer-groups.sh --bootstrap-server ... --group {group} --topic {position.topic}:{position.partition} "
                f"--reset-offsets --to-offset {known} --execute, and the same for the other partitions (`millstream docs "
                f"runbook#millstreamworkersrestarting`). Then start the workers again."
            )
