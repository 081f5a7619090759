"""Takes the consumer back to the committed offsets, after an aborted transaction or repeated records."""

import logging
import time
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.errors import WorkerError
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.seldom import Kind, SeldomWarnings
from millstream.consumers.record_types import Partition
from millstream.topics.coordinator import UNREADY_ERRORS
from millstream.topics.partitions import PERMISSIONS
from millstream.topics.records import TRANSIENT_ERRORS

log = logging.getLogger(__name__)
_FAILURE = Kind(
    "request for the committed offsets failed; trying again", "requests for the committed offsets failed; trying again"
)

SEEK_TIMEOUT = 15.0  # seconds, within which a newly assigned partition has to accept a seek
# Seconds to request the committed offsets. An open transaction of a lost worker can hide them for longer.
COMMITTED_TIMEOUT = 2.0
CLIENT_RETRIED_ERRORS = TRANSIENT_ERRORS | UNREADY_ERRORS
"""Errors after which the client retries by itself: an outage only causes lag."""
_FORBIDDEN = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
AWAY_ERRORS = CLIENT_RETRIED_ERRORS | {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD}
"""Errors of requests while the broker is away."""


def seek_committed(
    consumer: Consumer,
    partitions: Iterable[Partition],
    beginning: Callable[[TopicPartition], int | None],
    check: Callable[[Iterable[TopicPartition]], object],
    failures: SeldomWarnings,
) -> bool:
    """Seek to the committed offsets of the partitions.

    Args:
        consumer: that has the partitions.
        partitions: all that are assigned.
        beginning: where a partition without a committed offset begins.
        check: gets the committed offsets, and raises OffsetsForgotten.
        failures: says now and then that the broker doesn't return the offsets.

    Returns:
        False if the broker does not return the offsets now. The caller must not read records until a later call succeeds.

    Raises:
        WorkerError: the offsets can't be read. The worker ends, and the next one starts from them.
    """
    try:
        # Unread partitions start there anyway, and a seek would be undone (github.com/confluentinc/librdkafka/issues/2256).
        places = consumer.position([TopicPartition(*partition) for partition in partitions])
        read = [TopicPartition(p.topic, p.partition) for p in places if p.offset >= 0]
        positions = consumer.committed(read, timeout=COMMITTED_TIMEOUT) if read else []
        check(positions)
        for position in positions:
            if position.offset < 0:
                position.offset = beginning(position) or 0
            _seek(consumer, position)
    except KafkaException as error:
        if error.args[0].retriable() or error.args[0].code() in AWAY_ERRORS:
            failures.warn(_FAILURE, 1, error.args[0].str())
            return False
        topics = ", ".join(sorted({topic for topic, _ in partitions}))
        advice = "If the topic is gone, create it: millstream topics create PIPELINE. Otherwise, a new worker reads on from them."
        if error.args[0].code() in _FORBIDDEN:
            advice = f"Grant READ on the topics and on the group to the user of `kafka.client` ({PERMISSIONS})."
        said = error.args[0].str()
        raise WorkerError(f"the committed offsets of {topics} can't be read after an abort: {said}. {advice}") from None
    failures.say_all()
    if read:
        log.info("reading %s again from the committed offsets", ranges_of((p.topic, p.partition) for p in read))
    return True


def _seek(consumer: Consumer, position: TopicPartition) -> None:
    """Seek, with retries: a newly assigned partition refuses it until its fetcher has started. Raises KafkaException."""
    until = time.monotonic() + SEEK_TIMEOUT
    while True:
        try:
            consumer.seek(position)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE or time.monotonic() > until:
                raise
            time.sleep(0.05)
