"""A seeded, endless load. A thread sends it at a steady rate, and stores which events the broker acknowledged, and where."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.load import vector_events
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.broker.clients import read_all, wait_until
from tests.faults.checker import Sent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

KEYS = 97  # few keys, so that each has many events, whose order is checked
SMALL = 2000  # bytes
LARGE = 990_000  # bytes: a producer's default limit is 1,000,000, including the key
NOT_A_NUMBER, DEADLY = 13, 666  # values of an event at which the model returns NaN, or ends the process
_PIECE = 0.02  # the events of this many seconds are sent at once


class Event(NamedTuple):
    """An event to send."""

    id: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, str | bytes | None], ...] = ()


def vectors(seed: int) -> Iterator[Event]:
    """Endless events for `vector_service`."""
    values = vector_events(2000, seed).values
    keys = random.Random(seed)
    number = 0
    while True:
        value, event_id = values[number % len(values)], f"event-{number:010d}"
        # The ID (16 characters) follows the head and a length.
        yield Event(event_id, b"key-%d" % keys.randrange(KEYS), value[:6] + event_id.encode() + value[22:])
        number += 1


def places(seed: int) -> Iterator[Event]:
    """Endless JSON events for the model `tests.inference.models.looking_up`. Of 40 events, one is poison, one can't be decoded,
    and one has an ID that makes its prediction too large for a topic of `SMALL` bytes."""
    chance = random.Random(seed)
    number = 0
    while True:
        event_id, kind = f"event-{number:010d}", chance.randrange(40)
        event_id += "-" * SMALL if kind == 2 else ""
        good = json.dumps({"id": event_id, "place": 9 if kind == 0 else chance.randrange(3)}).encode()
        yield Event(event_id, b"key-%d" % chance.randrange(KEYS), good[:-5] if kind == 1 else good)
        number += 1


def numbers(seed: int, deadly: int | None) -> Iterator[Event]:
    """Endless JSON events for `tests.consumers.python_service`. One in 40 is NOT_A_NUMBER, and event `deadly` is DEADLY."""
    chance = random.Random(seed)
    number = 0
    while True:
        x = DEADLY if number == deadly else NOT_A_NUMBER if chance.randrange(40) == 0 else chance.randrange(10)
        event_id = f"event-{number:010d}"
        # With a deadly event, all events go to one partition: those of other partitions would run one by one, too, all that time.
        key = b"key-%d" % (chance.randrange(KEYS) if deadly is None else 0)
        yield Event(event_id, key, json.dumps({"id": event_id, "x": x}).encode())
        number += 1


def owned(seed: int) -> Iterator[Event]:
    """Endless JSON events, each of an owner (`who`) and with a number (`x`), which `owner_of` and `x_of` find in its ID."""
    chance = random.Random(seed)
    number = 0
    while True:
        event_id = f"event-{number:010d}"
        value = {"id": event_id, "who": owner_of(event_id), "x": x_of(event_id)}
        yield Event(event_id, b"key-%d" % chance.randrange(KEYS), json.dumps(value).encode())
        number += 1


def owner_of(event_id: str) -> str:
    """`who` of an event of `owned`."""
    return "abcd"[int(event_id[-10:]) % 4]


def x_of(event_id: str) -> int:
    """`x` of an event of `owned`."""
    return int(event_id[-10:]) % 7


def damaged(seed: int) -> Iterator[Event]:
    """Endless events without IDs for `vector_service`. Of 40 events, one is cut off, one has a flipped bit, one is random bytes,
    and one has an unknown schema ID. Of 500 events, one is nearly as large as a topic accepts."""
    chance = random.Random(seed)
    for event in vectors(seed):
        value = event.value
        match chance.randrange(40):
            case 0:
                value = value[: chance.randrange(len(value))]
            case 1:
                at = chance.randrange(len(value))
                value = value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
            case 2:
                value = chance.randbytes(chance.randrange(1, 400))
            case 3:
                value = frame(77) + value[HEAD_BYTES:]
            case _ if chance.randrange(500) == 0:
                value = value[:HEAD_BYTES] + chance.randbytes(LARGE + chance.randrange(1_000_000 - LARGE - 100))
        yield event._replace(value=value)


class Stream:
    """Sends events until it is stopped; a context manager."""

    def __init__(self, bootstrap: str, topic: str, events: Iterator[Event], rate: int) -> None:
        """Args:
        bootstrap: of the broker.
        topic: to send to.
        events: what to send.
        rate: events a second.
        """
        self._bootstrap = bootstrap
        self._topic = topic
        self._events = events
        self._rate = rate
        self._stop = threading.Event()
        self._failed: list[KafkaError] = []
        # Events that the broker reports as already written, because a response was lost. It doesn't report their offsets.
        self._somewhere: dict[bytes, tuple[Event, int]] = {}
        self._of_key: Counter[bytes] = Counter()
        # Idempotent, with long timeouts, so that an outage neither loses, doubles nor reorders events on their way to the topic.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "log_level": 0,
                # The topic's limit is for the compressed size. The decompressed size may be much larger.
                "compression.type": "lz4",
                "message.max.bytes": 20_000_000,
                "batch.size": 500_000,
            }
        )
        self._thread = threading.Thread(target=self._run, name="stream")
        self.acknowledged: list[Sent] = []

    def stop(self) -> list[Sent]:
        """Stop sending, and wait for all acknowledgements; returns the events sent."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self._failed, f"events were not written: {self._failed[:3]}"
        if self._somewhere:
            self._find()
        return self.acknowledged

    def _find(self) -> None:
        """Find the offsets of the events for which the broker reported none."""
        for message in read_all(self._bootstrap, self._topic):
            value, partition, offset = message.value(), message.partition(), message.offset()
            if value in self._somewhere and partition is not None and offset is not None:
                event, seq = self._somewhere.pop(value)
                self.acknowledged.append(Sent(event.id, event.key, seq, partition, offset))
        assert not self._somewhere, f"acknowledged, and not there: {self._somewhere}"

    def wait_for_more(self, events: int) -> None:
        """Wait until this many more events are acknowledged."""
        until = len(self.acknowledged) + events
        wait_until(lambda: len(self.acknowledged) >= until, 60, f"{events} more events to be acknowledged")

    def _run(self) -> None:
        started = time.monotonic()
        sent = 0
        while not self._stop.wait(_PIECE):
            due = int((time.monotonic() - started) * self._rate)
            for _ in range(due - sent):
                self._send(next(self._events))
            sent = due
            self._producer.poll(0)

    def _send(self, event: Event) -> None:
        seq = self._of_key[event.key]
        self._of_key[event.key] += 1
        delivered = partial(self._delivered, event, seq)
        headers = list(event.headers)
        self._producer.produce(self._topic, event.value, event.key, headers=headers, on_delivery=delivered)

    def _delivered(self, event: Event, seq: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self._failed.append(error)
        elif partition is None or offset is None:
            self._somewhere[event.value] = event, seq
        else:
            self.acknowledged.append(Sent(event.id, event.key, seq, partition, offset))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()  # otherwise closing would wait for a broker that is down
        self._producer.close()
