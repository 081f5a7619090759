"""Owns the Kafka producer. With at least once, records are final once acknowledged. See `transactions` for exactly once."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.consumers.errors import Abandoned, DeliveryFailed
from millstream.consumers.events import NextOffsets
from millstream.consumers.observability.metrics import KAFKA_ERRORS, RETRIES, Metrics
from millstream.consumers.observability.seldom import Kind, SeldomWarnings
from millstream.consumers.record_headers import HeaderRows
from millstream.consumers.sink.bulk import Bulk, Watch, bulk_of, log_one_by_one
from millstream.topics.client_log import client_log
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import TRANSIENT_ERRORS

log = logging.getLogger(__name__)

PRODUCER_DEFAULTS = {
    **QUICK_CONNECT,
    # Keys go to the same partitions as with Java's clients, so that topics can be joined.
    "partitioner": "murmur2_random",
    # About as long as a request takes. If records have waited for this time while a request is under way, the client checks in a
    # busy loop whether it may send them. With 1 ms, a worker with a backlog used a quarter more CPU on a busy broker.
    "linger.ms": 5,
    # The topics exist when the worker starts, so a topic that is missing for this long was deleted. The worker must notice this
    # before the transaction's records time out. The client's default is 30 s.
    "topic.metadata.propagation.max.ms": 5000,
    # A transaction waits for a deleted topic without an error: only new metadata shows it. The client's default is 5 minutes.
    "topic.metadata.refresh.interval.ms": 5000,
}
OWN_PROPERTIES = {
    "enable.idempotence": True,
    # Only the broker's limit should count. A dead letter is a little larger than its event.
    "message.max.bytes": 100_000_000,
    # A callback into Python for each success costs a microsecond. A checkpoint instead waits until all are acknowledged.
    "delivery.report.only.error": True,
}
AT_LEAST_ONCE = {
    # An outage of any length only causes lag: a record waits for the broker as long as the worker lives.
    "message.timeout.ms": 0,
}
BEST_EFFORT = {
    "message.timeout.ms": 30_000,
    "queue.buffering.max.kbytes": 16_384,
    "linger.ms": 50,
}
POLL_INTERVAL = 0.2  # seconds between two looks at whether to give up
PUSH_TIMEOUT = 0.01  # seconds in which the broker usually acknowledges records that are sent at once

REFUSED_RECORD = {KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}
"""The topic's settings exclude a record. The client's text names the topic."""
_NO_SUCH_RECORD = (
    "The topic takes no such record. Compare the clocks of this machine and of the broker: the topic's "
    "`message.timestamp.after.max.ms` limits how far a record may be ahead. If the topic's `cleanup.policy` is `compact`, events "
    "without a key have no place in it: set it to `delete`, or give each event a key"
)
FINAL_ERRORS = {
    **dict.fromkeys(REFUSED_RECORD, _NO_SUCH_RECORD),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant WRITE on the output topics to the user of `kafka.client`; "
    "before Kafka 2.8, also IDEMPOTENT_WRITE on the cluster",
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise `max.message.bytes` of {topic}. If the user of `kafka.client` gets "
    "DESCRIBE_CONFIGS on it, too large predictions become dead letters",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE and DESCRIBE on {topic} to the user of `kafka.client`",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create {topic}: millstream topics create PIPELINE",
    KafkaError._UNKNOWN_TOPIC: "Create {topic}: millstream topics create PIPELINE",
    KafkaError._UNKNOWN_PARTITION: "Create {topic}: millstream topics create PIPELINE",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant WRITE on the transactional IDs that begin with the "
    "group's name to the user of `kafka.client`",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant READ on the group to the user of `kafka.client`",
}
"""Errors that a retry can't fix, each with what the user can do."""
DROPPED = Kind("comparison was not written", "comparisons were not written")
_FORGOTTEN = (
    "The broker doesn't have the records before these any more. That happens if the topic is deleted and created anew while "
    "workers run, or if brokers lose data. A new worker goes on; before you create a topic anew, stop the workers"
)
ADVICE = FINAL_ERRORS | {
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: _FORGOTTEN,
    KafkaError.UNKNOWN_PRODUCER_ID: _FORGOTTEN,
}
"""Advice by the code of the error that ends a worker. After a code outside `FINAL_ERRORS`, a transaction is repeated."""


LostBroker = Callable[[str], object]
"""Called with the error when the client loses a broker."""


class Delivery(Protocol):
    """Takes output records, and makes them final together with the input's offsets. One thread calls it."""

    publishes_at_checkpoint: bool  # whether readers see records only after a checkpoint

    def start(self) -> None:
        """Start the producer. May wait for the broker. Raises DeliveryFailed, Abandoned."""

    def produce(
        self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> None:
        """Produce a record. Raises DeliveryFailed, Abandoned, TransactionAborted."""

    def produce_all(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None = None
    ) -> None:
        """Produce records in one call. Raises as `produce`."""

    def push(self) -> None:
        """Send the records at once that wait for a fuller request, because no more come soon. Raises as `checkpoint`."""

    def checkpoint(self, ends: NextOffsets) -> None:
        """Make all records final, together with `ends`: the next offsets of the input.

        Raises:
            DeliveryFailed, Abandoned: the records since the last checkpoint are not final. Do not commit their offsets.
            TransactionAborted: the records since the last checkpoint are dropped. Call `abort`, and read their events again.
        """

    def abort(self) -> None:
        """Take back all records since the last checkpoint. Raises DeliveryFailed, Abandoned."""


class _Outbox:
    """A producer with its callbacks."""

    def __init__(
        self,
        client: Mapping[str, Any],
        own: Mapping[str, Any],
        abandon: threading.Event,
        metrics: Metrics,
        lost_broker: LostBroker,
    ) -> None:
        self._lost_broker = lost_broker
        self._abandon = abandon
        self._metrics = metrics
        self._failure: KafkaError | None = None
        self._failed_topic: str | None = None
        self._error_cb = self._on_error
        self._producer = Producer(
            {
                **PRODUCER_DEFAULTS,
                **client,
                **OWN_PROPERTIES,
                **own,
                "error_cb": self._error_cb,
                "on_delivery": self._undelivered,
            },
            logger=client_log("producer"),
        )

    def serve(self) -> None:
        """Let the client call its callbacks; returns at once. It raises errors here that `error_cb` already has."""
        with suppress(KafkaException, SystemError):
            self._producer.poll(0)

    def _undelivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure, self._failed_topic = error, message.topic()

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.count(KAFKA_ERRORS, 1, error.name())
        if error.fatal() and self._failure is None:
            self._failure = error
        if error.code() in TRANSIENT_ERRORS:
            self._lost_broker(error.str())
        else:
            log.warning("Kafka producer: %s", error.str())


class Counted(_Outbox):
    """A producer that loses no record: it delivers all, or raises."""

    _bulk: Bulk | None = None  # None: records go one by one
    # After an aborted transaction, records go one by one, to learn which one fails.
    _one_by_one = False

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
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None = None
    ) -> None:
        """See `Delivery`."""
        self._begin()
        try:
            if self._bulk is None or self._one_by_one:
                self._produce_each(topic, values, keys, headers)
            else:
                self._produce_in_bulk(self._bulk, topic, values, keys, headers)
        except KafkaException as error:
            raise self._answer(topic, error.args[0]) from None

    def _produce_each(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None
    ) -> None:
        produce = self._producer.produce
        of_each: Iterable[Any] = headers or repeat(None, len(values))
        for value, key, own in zip(values, keys, of_each, strict=True):
            try:
                produce(topic, value, key, headers=own or None)
            except BufferError:
                self._wait_for_room()
                self._enqueue(topic, value, key, own)

    def _produce_in_bulk(
        self, bulk: Bulk, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None
    ) -> None:
        first = bulk.produce(topic, values, keys, headers)
        while first < len(values):
            self._wait_for_room()
            rest = None if headers is None else headers[first:]
            first += bulk.produce(topic, values[first:], keys[first:], rest)

    def _begin(self) -> None:
        """Called before records are produced."""

    def _answer(self, topic: str | None, error: KafkaError) -> Exception:
        """The exception for an error that a retry can't fix."""
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
    """Records are final once the broker has acknowledged them. The main thread commits the offsets afterwards."""

    publishes_at_checkpoint = False

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        abandon: threading.Event,
        metrics: Metrics,
        lost_broker: LostBroker = lambda _error: None,
    ) -> None:
        try:
            self._watch: Watch | None = Watch.of_next_producer()
            client = Watch.plugged(client)
        except LookupError as unknown:
            self._watch = None
            log_one_by_one(unknown)
        super().__init__(client, AT_LEAST_ONCE, abandon, metrics, lost_broker)
        if self._watch is not None and self._watch.attached:
            self._bulk = bulk_of(self._producer, self._error_cb)

    def start(self) -> None:
        """See `Delivery`."""

    def push(self) -> None:
        """See `Delivery`."""
        self._unacknowledged(PUSH_TIMEOUT)

    def checkpoint(self, ends: NextOffsets) -> None:  # noqa: ARG002  (the main thread commits them)
        """See `Delivery`."""
        while self._unacknowledged(POLL_INTERVAL):
            self._check()
        self._check()

    def _unacknowledged(self, timeout: float) -> int:
        """Send all records at once, and wait up to `timeout` seconds. Returns how many the broker has not acknowledged."""
        try:
            return self._producer.flush(timeout)
        except (KafkaException, SystemError) as error:  # the client has failed for good
            self._note_failure()
            cause = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._FATAL)
            raise failed(self._failed_topic, self._failure or cause) from None

    def abort(self) -> None:
        """See `Delivery`. It does nothing: sent records can't be taken back."""

    def _check(self) -> None:
        self._note_failure()
        if self._failure is not None:
            raise failed(self._failed_topic, self._failure)
        super()._check()

    def _note_failure(self) -> None:
        """Take over the failure of a record that was produced in bulk: it has no delivery report."""
        if self._failure is None and self._watch is not None and self._watch.failure is not None:
            self._failure, self._failed_topic = self._watch.failure


class BestEffort(_Outbox):
    """A producer for records that may be lost. It counts those that it can't write."""

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        lost: Callable[[], object],
        metrics: Metrics,
        lost_broker: LostBroker = lambda _error: None,
    ) -> None:
        """Args:
        client: the pipeline's client settings.
        lost: called for each record that was not written.
        metrics: where to count.
        lost_broker: see `LostBroker`.
        """
        self._lost = lost
        self._warnings = SeldomWarnings()
        super().__init__(client, BEST_EFFORT, threading.Event(), metrics, lost_broker)

    def produce(self, topic: str, value: bytes, key: bytes) -> None:
        """Produce a record, or drop it."""
        try:
            self._producer.produce(topic, value, key)
        except BufferError:
            self._lost()
        except KafkaException as error:
            self._drop(topic, error.args[0])

    def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the produced records. The remaining ones are dropped."""
        with suppress(KafkaException, SystemError):
            for _ in range(self._producer.flush(timeout)):
                self._lost()

    def _undelivered(self, error: KafkaError | None, message: Any) -> None:
        self._drop(message.topic(), error)

    def _drop(self, topic: str, error: KafkaError | None) -> None:
        self._lost()
        if error is not None and error.code() in FINAL_ERRORS:  # no retry cures it, so it is said
            self._warnings.warn(DROPPED, 1, f"{topic}: {error.str().removesuffix('.')}. {_advice(topic, error)}")


def _advice(topic: str | None, error: KafkaError) -> str:
    # With records in bulk, the client doesn't say which topic refused one.
    named = f"topic {topic}" if topic else "the topics of predictions and dead letters"
    return ADVICE.get(error.code(), "Look at the broker's log").format(topic=named)


def failed(topic: str | None, error: KafkaError) -> DeliveryFailed:
    """The exception for a record that can't be written."""
    what = f"a record for topic {topic}" if topic else "records"
    return DeliveryFailed(
        f"{what} could not be written: {error.str().removesuffix('.')}. {_advice(topic, error)}; nothing unwritten was "
        f"committed, so a new worker reads the events again that the brokers still have."
    )
