"""A stream of events at a steady rate, sent from a thread while a test does something to the workers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.load import Load

_PIECE = 0.02  # seconds of events that are sent at once


class Feeder:
    """Sends a load's events in order until it is left or all are sent; a context manager."""

    def __init__(self, bootstrap: str, topic: str, load: Load, rate: int) -> None:
        self._topic = topic
        self._load = load
        self._rate = rate
        self._stop = threading.Event()
        self._failed: list[KafkaError] = []
        # Idempotent, so that an outage neither loses nor doubles events on their way to the workers.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "on_delivery": self._delivered,
                "log_level": 0,  # an outage is no news here
            }
        )
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.sent = 0  # events handed to the client so far; all acknowledged once `stop` has returned

    def stop(self) -> int:
        """Send no more; returns how many were sent, all acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self._failed
        return self.sent

    def wait_for_more(self, events: int) -> None:
        """Wait until so many more were sent."""
        until = self.sent + events
        wait_until(lambda: self.sent >= until, 30, f"{events} more events to be sent")

    def _run(self) -> None:
        started = time.monotonic()
        while self.sent < len(self._load.values) and not self._stop.wait(_PIECE):
            due = min(int((time.monotonic() - started) * self._rate), len(self._load.values))
            for number in range(self.sent, due):
                self._producer.produce(self._topic, self._load.values[number], self._load.keys[number])
            self.sent = due
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()  # where the broker stays away, closing would wait for it
        self._producer.close()
