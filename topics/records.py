"""Reads and writes records without a consumer group, for the command line and the demo. Workers have their own clients."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Self, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.topics.answer_watch import AnswerWatch
from millstream.topics.client_log import client_log
from millstream.topics.errors import RecordTooLargeError, TopicError
from millstream.topics.partitions import partitions_of
from millstream.topics.unreachable import LEADERLESS_ERRORS, cause_of, unreachable

ANSWER_TIMEOUT = 10.0  # seconds
DELIVERY_TIMEOUT = 30.0  # seconds
TRANSIENT_ERRORS = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
}
"""Errors after which the client recovers by itself, once the broker is back."""
PASSING_ERRORS = TRANSIENT_ERRORS | LEADERLESS_ERRORS | {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""Errors after which a client that reads without a group goes on. It asks for the coordinator of the group that its settings must
name, though it never joins it. So it needs no permission for that group."""
FENCED_ERRORS = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
"""The broker has ended the producer's transaction: it was open for too long, or a newer producer has its transactional ID."""
PURGED_ERRORS = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
"""Errors of records whose transaction the client has given up. Another error says why."""
RETRY_INTERVAL = 0.1  # seconds between two tries
LOOK_INTERVAL = 0.5  # seconds between two looks at whether a broker answers

# If a header's name is not UTF-8, confluent-kafka 2.16 sets an error and still returns a list, with null pointers in it. A call
# that Python has specialised ignores the error, and whoever reads the list crashes. A methodcaller always checks for the error.
_call_headers = methodcaller("headers")

Headers = tuple[tuple[str, bytes | None], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record in its topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms since the epoch; -1: it has none
    key: bytes | None
    value: bytes | None
    headers: Headers | None  # None: a header's name is not UTF-8, so the client can't read the headers


class RecordReader:
    """Reads all partitions of some topics without a group: it commits nothing, and disturbs no worker."""

    def __init__(self, client: Mapping[str, Any], topics: Sequence[str], *, from_beginning: bool) -> None:
        """Read where the partitions begin and end. All records written after this call will be read.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: a topic does not exist.
        """
        self.away = False  # whether no broker has answered in `read` since the last record
        self.existing = dict.fromkeys(
            topics, 0
        )  # offsets of each topic that were there at the start: no fewer than records
        self._consumer = Consumer(
            {
                **client,
                "group.id": "millstream-reader",  # required by the client, which never joins it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "error_cb": self._on_error,
            },
            logger=client_log("reader"),
        )
        try:
            places = []
            for topic in topics:
                for number in partitions_of(self._consumer, topic, ANSWER_TIMEOUT):
                    # Requested here, because the client itself would look for the end later.
                    low, high = bounds(self._consumer, topic, number)
                    self.existing[topic] += high - low
                    places.append(TopicPartition(topic, number, low if from_beginning else high))
            self._consumer.assign(places)
        except KafkaException as error:
            self._consumer.close()
            raise unreachable(str(client["bootstrap.servers"]), error.args[0]) from None
        except TopicError:
            self._consumer.close()
            raise

    def read(self, limit: int, timeout: float) -> list[ReadRecord]:
        """Read up to `limit` records. If there are none, wait up to `timeout` seconds.

        Raises:
            TopicError: a topic can't be read (any more).
        """
        # `consume` waits until it has all records that it may return, so `poll` waits for the first one.
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        records = []
        for message in [first, *self._consumer.consume(limit - 1, 0)]:
            error = message.error()
            if error is None:
                self.away = False
                records.append(_record(message))
            elif error.code() not in PASSING_ERRORS:
                raise unreadable(message.topic(), error)
        return records

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_error(self, error: KafkaError) -> None:
        self.away |= error.code() == KafkaError._ALL_BROKERS_DOWN


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """A partition's first offset, and the one after its last. Waits for a leader. Raises KafkaException."""
    return asked_again(lambda: _bounds(consumer, topic, partition), LEADERLESS_ERRORS)


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        # The client says this also of a partition that has no leader.
        if partition not in consumer.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic].partitions:
            raise
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None
    return low, high


def asked_again(ask: Callable[[], T], passing: Collection[int]) -> T:
    """Repeat a request while the broker returns one of these errors. Other errors are raised (KafkaException)."""
    until = time.monotonic() + ANSWER_TIMEOUT
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() >= until:
                raise
        time.sleep(RETRY_INTERVAL)


class RecordWriter:
    """Writes records to a topic. Each is stored once, in the order of the calls, or there is an error."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, say: Callable[[str], object] = lambda _text: None
    ) -> None:
        """Check that the topic exists.

        Args:
            client: the settings of the Kafka client.
            topic: where to write.
            say: tells a person who waits that no broker answers, and that one answers again.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic does not exist.
        """
        self._topic = topic
        self._watch = AnswerWatch(str(client["bootstrap.servers"]), say)
        self._next_look = 0.0  # when, on the monotonic clock
        self._errors: list[KafkaError] = []  # that the client has reported since a broker last answered
        self._failure: KafkaError | None = None
        self.delivered = 0  # records that the broker has acknowledged
        self._written = 0  # records given to the client
        self._pending = dict[int, float]()  # number -> time of those that the broker has not acknowledged, in order
        self._producer = Producer(
            {
                # Keys go to the same partitions as with Java's clients and with Millstream's workers.
                "partitioner": "murmur2_random",
                **client,
                "enable.idempotence": True,
                "message.timeout.ms": int(DELIVERY_TIMEOUT * 1000),
                "message.max.bytes": 100_000_000,  # only the broker's limit should count
                "error_cb": self._errors.append,
            },
            logger=client_log("writer"),
        )
        try:
            self._find_topic()
        except KafkaException as error:
            raise unreachable(str(client["bootstrap.servers"]), error.args[0], self._errors) from None

    def write(self, value: bytes, key: bytes | None) -> None:
        """Give a record to the client, which sends it soon.

        Raises:
            TopicError: this or an earlier record can't be written.
        """
        self._pending[self._written] = time.monotonic()  # before the client has it, so that Ctrl-C can't come between
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=partial(self._on_delivery, self._written))
                break
            except BufferError:  # the client's queue is full: wait for the broker
                self._producer.poll(0.1)
                self._look()
            except KafkaException as error:
                del self._pending[self._written]
                raise self._undelivered(error.args[0]) from None
        self._written += 1
        self._producer.poll(0)
        self._look()

    def write_alone(self, value: bytes, key: bytes | None) -> None:
        """Write a record that may be too large, and wait until the broker has acknowledged it.

        The broker refuses whole batches of records, so this one shares its batch with no other.

        Raises:
            RecordTooLargeError: the topic doesn't take it. It counts as not written, and others can be written after it.
            TopicError: this or an earlier record can't be written.
        """
        self.flush()
        number = self._written
        try:
            self.write(value, key)
            self.flush()
        except RecordTooLargeError:
            self._failure, self._written = None, number
            self._pending.clear()
            raise

    @property
    def delivered_in_order(self) -> int:
        """How many of the first records the broker has acknowledged without a gap; `delivered` also counts those behind a gap."""
        return next(iter(self._pending), self._written)

    @property
    def unacknowledged(self) -> int:
        """Records given to the client that the broker has not acknowledged (yet)."""
        return len(self._pending)

    def flush(self) -> None:
        """Wait until the broker has acknowledged all records, or they have failed.

        Raises:
            TopicError: a record could not be delivered.
        """
        until = time.monotonic() + DELIVERY_TIMEOUT + ANSWER_TIMEOUT
        try:
            while self._producer.flush(0.2) and time.monotonic() < until:  # in short steps, so that Ctrl-C works
                self._look()
        except KafkaException as error:  # the client can't write at all
            raise self._undelivered(error.args[0]) from None
        self._check()

    def _on_delivery(self, number: int, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.delivered += 1
            del self._pending[number]
            self._errors.clear()
            self._watch.answered(time.monotonic())
        elif self._failure is None:
            self._failure = error

    def _find_topic(self) -> None:
        """Wait until a broker has told the topic's partitions. Raises KafkaException, TopicError."""
        began = time.monotonic()
        while True:
            try:
                partitions_of(self._producer, self._topic, min(LOOK_INTERVAL, ANSWER_TIMEOUT))
            except KafkaException:
                if (now := time.monotonic()) - began >= ANSWER_TIMEOUT:
                    raise
                self._producer.poll(0)  # takes what the client reports
                self._watch.waits(began, now, ANSWER_TIMEOUT, self._why())
            else:
                self._watch.answered(time.monotonic())
                return

    def _look(self) -> None:
        """Say if no broker answers. Raises TopicError if a record can't be written."""
        self._check()
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_INTERVAL
            oldest = next(iter(self._pending.values()), now)  # takes a while if many before it were acknowledged
            self._watch.waits(oldest, now, DELIVERY_TIMEOUT, self._why())

    def _why(self) -> str:
        return cause_of(self._errors[-1], self._errors) if self._errors else ""

    def _check(self) -> None:
        if self._failure is not None:
            raise self._undelivered(self._failure)

    def _undelivered(self, error: KafkaError) -> TopicError:
        grant = "Grant WRITE on the topic to the user of `kafka.client` in the pipeline file."
        advice = {
            KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's `max.message.bytes`.",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: grant,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED: grant,  # of a user who may write to no topic
            KafkaError._MSG_TIMED_OUT: f"The broker did not store it within {DELIVERY_TIMEOUT:g} s: is it still there?",
        }.get(error.code(), "Look at the broker's log.")
        kind = RecordTooLargeError if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else TopicError
        return kind(f"a record could not be written to topic {self._topic}: {error.str()}. {advice}")


def unreadable(topic: str | None, error: KafkaError) -> TopicError:
    """The error of a topic whose records don't come."""
    forbidden = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    advice = " Grant READ on it to the user of `kafka.client` in the pipeline file." if forbidden else ""
    return TopicError(f"topic {topic} can't be read: {error.str().removesuffix('.')}.{advice}")


def headers_of(message: Any) -> Headers | None:
    """A message's headers; None if a header's name is not UTF-8, because confluent-kafka then returns none of them."""
    try:
        return tuple(_call_headers(message) or ())
    except (SystemError, UnicodeDecodeError):  # confluent-kafka 2.16 raises these
        return None


def _record(message: Any) -> ReadRecord:
    kind, timestamp = message.timestamp()
    return ReadRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
    )
