"""The Kafka producer, and when its records count: with their acknowledgement (at least once). By transaction: `transactions`."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.consumers.errors import Abandoned, DeliveryFailed
from millstream.consumers.events import NextOffsets
from millstream.consumers.observability.metrics import KAFKA_ERRORS, RETRIES, Metrics
from millstream.consumers.record_types import HeaderColumns
from millstream.consumers.sink.client_log import producer_log

log = logging.getLogger(__name__)

DEFAULTS = {
    # The same key goes to the same partition as with Java's clients, so that topics can be joined.
    "partitioner": "murmur2_random",
    # About as long as a request takes: until a partition's last one is answered, the client looks without a pause whether it may
    # send more that has waited so long. At 1 ms that took a quarter more CPU of a worker with a backlog, on a busy broker.
    "linger.ms": 5,
    # The topics are there when the worker starts: one that is gone for this long was deleted. It has to be noticed while the
    # records of a transaction still wait for it; the client's default is 30 s.
    "topic.metadata.propagation.max.ms": 5000,
    # A transaction waits without a word for a topic that is gone: only looking tells. The client's default is 5 minutes.
    "topic.metadata.refresh.interval.ms": 5000,
}
OWNED = {
    "enable.idempotence": True,
    # The broker's limit is the one that counts; a dead letter is its event and a little more.
    "message.max.bytes": 100_000_000,
    # A call back into Python for each success costs a microsecond; a checkpoint asks whether all are acknowledged instead.
    "delivery.report.only.error": True,
}
AT_LEAST_ONCE = {
    # An outage of any length makes lag: a record waits for the broker's return as long as the worker lives.
    "message.timeout.ms": 0,
}
BEST_EFFORT = {
    "message.timeout.ms": 30_000,
    "queue.buffering.max.kbytes": 16_384,
    "linger.ms": 50,
}
POLL_INTERVAL = 0.2  # seconds between two looks at whether to give up
PUSHED = 0.01  # seconds in which records that wait for no others are with the broker, usually

FINAL = {
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise `max.message.bytes` of topic {topic}",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE and DESCRIBE on topic {topic} to the user of `kafka.client`",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create topic {topic}: millstream topics create PIPELINE",
    KafkaError._UNKNOWN_TOPIC: "Create topic {topic}: millstream topics create PIPELINE",
    KafkaError._UNKNOWN_PARTITION: "Create topic {topic}: millstream topics create PIPELINE",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant WRITE and DESCRIBE on the transactional ids prefixed by the group",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant READ on the group to the user of `kafka.client`",
}
"""Failures that no repetition mends, and what does."""
_FORGOTTEN = (
    "The broker doesn't have the records before these any more. That happens if the topic is deleted and created anew while "
    "workers run, or if brokers lose data. A new worker goes on; before you create a topic anew, stop the workers"
)
ADVICE = FINAL | {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: _FORGOTTEN, KafkaError.UNKNOWN_PRODUCER_ID: _FORGOTTEN}
"""By the code of the failure that ends a worker. A transaction that fails by one that isn't in `FINAL` is repeated instead."""


class Delivery(Protocol):
    """Takes output records, and makes them count together with the input's offsets. One thread calls it."""

    publishes_at_checkpoint: bool  # whether readers see records at a checkpoint only, and not at once

    def start(self) -> None:
        """Get ready to write; may wait for the broker. Raises DeliveryFailed, Abandoned."""

    def produce(
        self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> None:
        """Hand a record over. Raises DeliveryFailed, Abandoned, TransactionAborted."""

    def produce_all(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderColumns = ()
    ) -> None:
        """Hand records over that have the same headers by name, one call for all. Raises as `produce`."""

    def push(self) -> None:
        """Send at once what waits for company in its request: none will come soon. Raises as `checkpoint`."""

    def checkpoint(self, ends: NextOffsets) -> None:
        """Wait until all records count; `ends` are the offsets up to which they answer the input.

        Raises:
            DeliveryFailed, Abandoned: nothing since the last checkpoint may be committed.
            TransactionAborted: nothing since the last checkpoint counts; call `abort`, and answer those events again.
        """

    def abort(self) -> None:
        """Take back all since the last checkpoint. Raises DeliveryFailed, Abandoned."""


class _Outbox:
    """A producer, and what it reports."""

    def __init__(
        self, client: Mapping[str, Any], own: Mapping[str, Any], abandon: threading.Event, metrics: Metrics
    ) -> None:
        self._abandon = abandon
        self._metrics = metrics
        self._failure: KafkaError | None = None
        self._failed_topic: str | None = None
        self._error_cb = self._on_error
        self._producer = Producer(
            {**DEFAULTS, **client, **OWNED, **own, "error_cb": self._error_cb, "on_delivery": self._undelivered},
            logger=producer_log(),
        )

    def serve(self) -> None:
        """Let the client report failures; returns at once. It raises here what it has told `error_cb` already."""
        with suppress(KafkaException, SystemError):
            self._producer.poll(0)

    def _undelivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure, self._failed_topic = error, message.topic()

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.fatal() and self._failure is None:
            self._failure = error
        log.warning("Kafka producer: %s", error.str())


class Counted(_Outbox):
    """Its records are to count: none is left out."""

    def produce(
        self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> None:
        """See `Delivery`."""
        self._begin()
        try:
            self._enqueue(topic, value, key, headers)
        except KafkaException as error:
            raise self._answer(topic, error.args[0]) from None

    def produce_all(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderColumns = ()
    ) -> None:
        """See `Delivery`."""
        self._begin()
        names = [name for name, _ in headers]
        headers_of = (
            list(zip(names, row, strict=True)) for row in zip(*(column for _, column in headers), strict=True)
        )
        produce = self._producer.produce
        try:
            for value, key in zip(values, keys, strict=True):
                own = next(headers_of, None)
                try:
                    produce(topic, value, key, headers=own)
                except BufferError:
                    self._wait_for_room()
                    self._enqueue(topic, value, key, own)
        except KafkaException as error:
            raise self._answer(topic, error.args[0]) from None

    def _begin(self) -> None:
        """Get ready for a record."""

    def _answer(self, topic: str | None, error: KafkaError) -> Exception:
        """What an error that no repetition mends leads to."""
        return failed(topic, error)

    def _enqueue(self, topic: str, value: bytes, key: bytes | None, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers or None)
                return
            except BufferError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._metrics.count(RETRIES, 1, "producer_queue")
        self._producer.poll(POLL_INTERVAL)
        self._check()

    def _check(self) -> None:
        if self._abandon.is_set():
            raise Abandoned(f"{len(self._producer)} output records were not acknowledged in time")


class AtLeastOnce(Counted):
    """Records count when the broker has acknowledged them; the consumer commits the offsets afterwards."""

    publishes_at_checkpoint = False

    def __init__(self, client: Mapping[str, Any], *, abandon: threading.Event, metrics: Metrics) -> None:
        super().__init__(client, AT_LEAST_ONCE, abandon, metrics)

    def start(self) -> None:
        """See `Delivery`."""

    def push(self) -> None:
        """See `Delivery`."""
        self._unacknowledged(PUSHED)

    def checkpoint(self, ends: NextOffsets) -> None:  # noqa: ARG002  (the consumer commits them)
        """See `Delivery`."""
        while self._unacknowledged(POLL_INTERVAL):
            self._check()
        self._check()

    def _unacknowledged(self, timeout: float) -> int:
        """Records that the broker has not acknowledged yet, after waiting so many seconds for it; none waits for company then."""
        try:
            return self._producer.flush(timeout)
        except (KafkaException, SystemError) as error:  # the client has failed for good
            cause = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._FATAL)
            raise failed(self._failed_topic, self._failure or cause) from None

    def abort(self) -> None:
        """See `Delivery`; there is nothing to take back."""

    def _check(self) -> None:
        if self._failure is not None:
            raise failed(self._failed_topic, self._failure)
        super()._check()


class BestEffort(_Outbox):
    """Records that nothing waits for: what can't be written is left out, and counted."""

    def __init__(self, client: Mapping[str, Any], *, lost: Callable[[], object], metrics: Metrics) -> None:
        """Args:
        client: the pipeline's client settings.
        lost: called for each record that was not written.
        metrics: where to count.
        """
        self._lost = lost
        super().__init__(client, BEST_EFFORT, threading.Event(), metrics)

    def produce(self, topic: str, value: bytes, key: bytes) -> None:
        """Hand a record over, or leave it out."""
        try:
            self._producer.produce(topic, value, key)
        except (BufferError, KafkaException):
            self._lost()

    def close(self, timeout: float) -> None:
        """Wait for the records handed over, up to `timeout` seconds; the others are left out."""
        with suppress(KafkaException, SystemError):
            for _ in range(self._producer.flush(timeout)):
                self._lost()

    def _undelivered(self, error: KafkaError | None, message: Any) -> None:  # noqa: ARG002
        self._lost()


def failed(topic: str | None, error: KafkaError) -> DeliveryFailed:
    """The error for a record that can't be written for good."""
    advice = ADVICE.get(error.code(), "Look at the broker's log").format(topic=topic)
    what = f"a record for topic {topic}" if topic else "records"
    return DeliveryFailed(
        f"{what} could not be written: {error.str()}. {advice}; nothing unwritten was committed, so a new worker writes it again."
    )
