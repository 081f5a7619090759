"""Reminds a consumer of its brokers that has forgotten all of them; where that isn't possible, the worker ends.

A broker that has just come back may answer that its cluster has no brokers yet. The client then forgets the brokers that it knew,
and never asks again (github.com/confluentinc/librdkafka/issues/5301). The worker would stay without partitions for good.
"""

import ctypes
import logging
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, cimpl

from millstream.consumers.client_handle import handle_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.health import Health

log = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 1.0  # seconds that the main thread waits for an answer
ASK_INTERVAL: Final = 1.0  # seconds between two questions
REMIND_AFTER: Final = 5.0  # seconds without an answer, while brokers answer another client; and between two reminders
GIVE_UP_AFTER: Final = 30.0  # the same; then the worker ends


class LostBrokers:
    """Asks, after connections were lost, whether the consumer still finds a broker. Only the main thread calls it."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        health: Health,
        remind: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        consumer: the one to ask.
        topic: any that it reads.
        remind: tells the consumer's client where brokers are.
        health: says whether connections were lost, and whether brokers answer another client.
        clock: seconds.
        """
        self._consumer = consumer
        self._topic = topic
        self._health = health
        self._remind = remind
        self._clock = clock
        # When the consumer was first asked in vain, while brokers answered another client.
        self._since: float | None = None
        self._next = self._remind_at = 0.0

    def look(self) -> None:
        """Ask if it is time to. Raises WorkerError if the consumer has not found a broker for too long."""
        if not self._health.connections_lost:
            return
        now = self._clock()
        if now < self._next:
            return
        self._next = now + ASK_INTERVAL
        if self._health.broker_away is not None:
            self._since = None
            return
        if self._since is None:
            self._since, self._remind_at = now, now + REMIND_AFTER
        try:
            self._consumer.list_topics(self._topic, timeout=ANSWER_TIMEOUT)
        except KafkaException as error:
            if now >= self._remind_at:
                self._remind_at = now + REMIND_AFTER
                self._remind()
            if now - self._since >= GIVE_UP_AFTER:
                raise WorkerError(
                    f"Kafka answers again, but this worker's Kafka client has not found it for {GIVE_UP_AFTER:.0f} s "
                    f"({error.args[0].str()}). Nothing is lost: a new worker reads on from the committed offsets. "
                    "`millstream run` starts one, as any supervisor does."
                ) from None
            return
        self._since = None
        self._health.connections_lost = False


def reminder(consumer: Consumer, error_cb: object, bootstrap: str) -> Callable[[], object]:
    """Return a function that gives the client the addresses of its first brokers once more.

    It does nothing where native parts are not used: confluent-kafka does not offer this function of librdkafka.

    Args:
        consumer: whose client it is.
        error_cb: the same object that the consumer got as its setting `error_cb`.
        bootstrap: the addresses, `HOST:PORT,...`.
    """
    try:
        handle = handle_of(consumer, error_cb)
        add = ctypes.CDLL(cimpl.__file__)["rd_kafka_brokers_add"]
    except (LookupError, AttributeError):
        return lambda: None
    add.argtypes = ctypes.c_void_p, ctypes.c_char_p

    def remind() -> None:
        if handle[0]:  # the client is not closed
            add(handle[0], bootstrap.encode())
            log.info(
                "the Kafka client finds no broker, though one answered another client: it is told %s again", bootstrap
            )

    return remind
