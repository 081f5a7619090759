"""Measures end-to-end latency at a fixed rate: from an event's due time until a reader has its prediction.

The load is an open loop: the clock decides when events are due, whether or not earlier ones have predictions. The latency counts
from the due time, so there is no coordinated omission. The reader only reads committed records.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.load import Load

WARM_UP_SECONDS = 3.0  # seconds at the start that don't count
PATIENCE = 20.0  # seconds to wait for the last predictions


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    events: int
    p50: float
    p95: float
    p99: float
    most: float


def measure(
    bootstrap: str,
    topics: tuple[str, str],
    load: Load,
    rate: float,
    event_id: Callable[[Message], str],
    ids: Sequence[str],
) -> Latency:
    """Send `load` at `rate` events per second to the first topic, and read the predictions from the second.

    Args:
        bootstrap: the broker.
        topics: the input topic and the output topic.
        load: the events.
        rate: events per second.
        event_id: returns the event ID of a prediction.
        ids: the events' IDs, all different.

    Raises:
        TimeoutError: predictions are missing.
    """
    reader = _reader(bootstrap, topics[1])
    due: dict[str, float] = {}
    sender = threading.Thread(target=_send, args=(bootstrap, topics[0], load, rate, ids, due), daemon=True)
    sender.start()
    arrived: dict[str, float] = {}
    until = time.monotonic() + len(ids) / rate + PATIENCE
    while len(arrived) < len(ids):
        if time.monotonic() > until:
            raise TimeoutError(f"{len(ids) - len(arrived)} of {len(ids)} predictions did not come")
        for message in _read(reader):
            arrived.setdefault(event_id(message), time.monotonic())
    sender.join()
    reader.close()
    start = min(due.values())
    waits = np.array([arrived[one] - due[one] for one in ids if due[one] >= start + WARM_UP_SECONDS]) * 1000
    p50, p95, p99 = (round(float(value), 1) for value in np.percentile(waits, [50, 95, 99]))
    return Latency(len(waits), p50, p95, p99, round(float(waits.max()), 1))


def _send(bootstrap: str, topic: str, load: Load, rate: float, ids: Sequence[str], due: dict[str, float]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.list_topics(topic)  # connects before the clock starts
    start = time.monotonic() + 0.5
    due.update({one: start + number / rate for number, one in enumerate(ids)})
    assert all(earlier < later for earlier, later in pairwise(due.values()))
    for one, key, value in zip(ids, load.keys, load.values, strict=True):
        wait = due[one] - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, value, key, headers=load.headers or [])
        producer.poll(0)
    producer.flush()


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latency",  # the client needs one, but never joins it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 100,
        }
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    ends = [TopicPartition(topic, number) for number in partitions]
    for end in ends:
        end.offset = consumer.get_watermark_offsets(end)[1]
    consumer.assign(ends)
    return consumer


def _read(consumer: Consumer) -> Iterator[Message]:
    first = consumer.poll(0.1)
    for message in [] if first is None else [first, *consumer.consume(1000, 0)]:
        error = message.error()
        if error is None:
            yield message
        elif error.code() != KafkaError._PARTITION_EOF:
            raise RuntimeError(error.str())
