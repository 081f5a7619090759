"""Reads a consumer's records: as columns if native parts are used (docs/native.md), else one by one."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError

from millstream.consumers.client_handle import refusal
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.source.fetched import Fetched

log = logging.getLogger(__name__)

_FORBIDDEN = (
    "the broker does not let this user read: {error}. Grant READ and DESCRIBE on the input topics and READ on the group to the "
    "user of `kafka.client` in the pipeline file."
)
FINAL_ERRORS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "input topic {topic} does not exist (any more). Create it: millstream topics create "
    "PIPELINE.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.INVALID_SESSION_TIMEOUT: "the broker refuses the session timeout ({error}). Write a `session.timeout.ms` under "
    "`kafka.client` in the pipeline file that lies between the broker's `group.min.session.timeout.ms` and "
    "`group.max.session.timeout.ms` (6000 and 1800000 where nobody has set them), or leave it out.",
}
"""Errors that a retry can't fix, each with what the user can do."""

UNREADABLE_ERRORS = {KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError.INVALID_MSG}
"""Errors of a batch that the client fetches again and again. It never reads the records behind it."""

OnEvent = Callable[[KafkaError, Partition], object]
"""Takes an event that the client delivers in place of a record: the end of a partition, or an error."""


class Reader(Protocol):
    """Reads a consumer's records. Only the main thread calls it."""

    def consume(self, limit: int, seconds: float) -> Records:
        """Return up to `limit` records; wait up to `seconds` for this many. The consumer's callbacks run inside this call."""


class OneByOne:
    """Reads records as confluent-kafka delivers them: as one object per record."""

    def __init__(self, consumer: Consumer, on_event: OnEvent) -> None:
        self._consumer = consumer
        self._on_event = on_event

    def consume(self, limit: int, seconds: float) -> Records:
        """Return up to `limit` records; wait up to `seconds` for this many. The consumer's callbacks run inside this call."""
        good: list[Any] = []
        for message in self._consumer.consume(limit, seconds):
            if (error := message.error()) is None:
                good.append(message)
            else:
                self._on_event(error, (message.topic() or "", message.partition() or 0))
        return Records.of(good)


def reader_of(consumer: Consumer, error_cb: object, on_event: OnEvent) -> Reader:
    """Return the fastest reader that works with this installation.

    Args:
        consumer: the consumer that joins the group.
        error_cb: the same object that the consumer has as its `error_cb`.
        on_event: takes ends of partitions and errors.
    """
    try:
        return Fetched(consumer, error_cb, on_event)
    except LookupError as unknown:
        if refusal() is None:  # otherwise the worker has logged the reason at its start
            log.info("records are read one by one, which takes more CPU: %s", unknown)
        return OneByOne(consumer, on_event)
