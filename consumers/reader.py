"""How a consumer's records are read: as columns where that was compiled, else one by one."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError

from consumers.events import Partition
from consumers.fetched import Fetched
from consumers.records import Records

log = logging.getLogger(__name__)

OnEvent = Callable[[KafkaError, Partition], object]
"""Takes what comes in a record's place: the end of a partition, or an error."""


class Reader(Protocol):
    """Reads a consumer's records, and lets the consumer call back. The thread that polls calls it."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """These were assigned, and are about to be resumed."""

    def consume(self, limit: int, seconds: float) -> Records:
        """What is there, up to `limit` records; waits up to `seconds` for as many."""

    def wait(self, seconds: float) -> Records:
        """The first record to come; none where something else comes, or nothing within `seconds`."""

    def close(self) -> None:
        """Before the consumer is closed."""


class OneByOne:
    """Reads them as confluent-kafka gives them: an object each."""

    def __init__(self, consumer: Consumer, on_event: OnEvent) -> None:
        self._consumer = consumer
        self._on_event = on_event

    def follow(self, partitions: Iterable[Partition]) -> None:
        """All come here."""

    def consume(self, limit: int, seconds: float) -> Records:
        """What is there, up to `limit` records; waits up to `seconds` for as many."""
        return self._taken(self._consumer.consume(limit, seconds))

    def wait(self, seconds: float) -> Records:
        """The first record to come; none where something else comes, or nothing within `seconds`."""
        message = self._consumer.poll(seconds)
        return self._taken([] if message is None else [message])

    def close(self) -> None:
        """Nothing of it is ours."""

    def _taken(self, messages: list[Any]) -> Records:
        for message in messages:
            if (error := message.error()) is not None:
                self._on_event(error, (message.topic() or "", message.partition() or 0))
        return Records.of([message for message in messages if message.error() is None])


def reader_of(consumer: Consumer, error_cb: object, on_event: OnEvent) -> Reader:
    """The quicker one that works here.

    Args:
        consumer: that joins the group.
        error_cb: the very object that the consumer was told under this name.
        on_event: takes what is no record.
    """
    try:
        return Fetched(consumer, error_cb, on_event)
    except LookupError as unknown:
        log.info("records are read one by one, which takes more CPU: %s", unknown)
        return OneByOne(consumer, on_event)
