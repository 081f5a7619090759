"""Raw Kafka clients for tests, with nothing of Millstream's in them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Headers = list[tuple[str, str | bytes | None]]
Row = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers]  # key, value, headers


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """As `create_topics`, for one topic."""
    create_topics(bootstrap, {topic: (partitions, config)})


def create_topics(bootstrap: str, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Create topics with one request, each with its partitions and settings and as many replicas as the broker likes.

    Waits until they are there. Raises KafkaException. Records stay, whatever their timestamps: by default, the broker looks every
    five minutes for those to delete by their age.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [
        NewTopic(topic, num_partitions=partitions, replication_factor=-1, config={"retention.ms": "-1", **config})
        for topic, (partitions, config) in topics.items()
    ]
    for created in admin.create_topics(new, request_timeout=30).values():
        created.result()
    # Created is not yet known: the broker's own view follows the controller's.
    for topic, (partitions, _) in topics.items():
        wait_until(partial(_has_partitions, admin, topic, partitions), 10, f"topic {topic} to appear")


def ensure_topic(bootstrap: str, topic: str) -> None:
    """Make a topic appear on the embedded mock, which makes those that an admin client asks for."""
    _partitions(AdminClient({"bootstrap.servers": bootstrap}), topic)


def produce(bootstrap: str, topic: str, rows: Iterable[Row], *, partition: int = -1, timeout: float = 30) -> None:
    """Write rows and wait until the broker has acknowledged all. Raises KafkaException for the first that failed."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    # Not idempotent: getting a producer id takes half a second.
    producer = Producer({"bootstrap.servers": bootstrap, "on_delivery": delivered})
    for key, value, *headers in rows:
        while True:
            try:
                producer.produce(topic, value, key, partition, headers=headers[0] if headers else None)
                break
            except BufferError:  # the queue is full: let some out
                producer.poll(0.1)
    left = producer.flush(timeout)
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise TimeoutError(f"{left} rows for {topic} were not acknowledged within {timeout} s.")


def read_all(
    bootstrap: str,
    topic: str,
    count: int | None = None,
    timeout: float = 30,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> list[Message]:
    """All messages of a topic, those of one partition in their order.

    With `count` it waits until that many are there; what is more than `count` is returned too, so a test sees
    doubles. Raises TimeoutError, saying how many there were.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",  # needed by the client, never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,  # the end of a partition is told after this wait
        }
    )
    try:
        partitions = _partitions(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return _read_to_the_ends(consumer, topic, set(partitions), count or 0, timeout)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The group's committed offset of each partition that has one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in _partitions(consumer, topic)]
        return {found.partition: found.offset for found in consumer.committed(asked, timeout=10) if found.offset >= 0}
    finally:
        consumer.close()


def wait_until(condition: Callable[[], bool], timeout: float, message: str) -> None:
    """Ask every 20 ms until the condition holds; TimeoutError with what was waited for."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {timeout} s for {message}.")
        time.sleep(0.02)


def _read_to_the_ends(consumer: Consumer, topic: str, open_: set[int], count: int, timeout: float) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + timeout
    while open_ or len(messages) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Read {len(messages)} messages of {topic} in {timeout} s, expected {count or 'its end'}."
            )
        for message in consumer.consume(1000, 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_.discard(_partition(message))
            elif not error.retriable():
                raise KafkaException(error)
    return messages


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def _has_partitions(admin: AdminClient, topic: str, count: int) -> bool:
    return len(_partitions(admin, topic)) == count


def _partitions(client: Consumer | AdminClient, topic: str) -> Sequence[int]:
    found = client.list_topics(topic, timeout=10).topics[topic]
    return sorted(found.partitions)
