"""Writes the demo's events when they are due, but limits the number of events without a result."""

import math
import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from millstream.consumers.demo.stream import DemoEvent, FlightStream
from millstream.topics.records import RecordWriter

MAX_UNANSWERED_EVENTS = 4000  # events without a result: the embedded broker keeps only 5 MB per partition
CHUNK_EVENTS = 200  # events encoded at once
POLL_INTERVAL = 0.002  # seconds between two checks of which events are due


Seconds = npt.NDArray[np.float64]


class Feeder(threading.Thread):
    """Sends in an open loop: each event has a due time, which doesn't depend on earlier results.

    If too many events (`window`) have no result yet, the feeder waits.
    """

    def __init__(
        self,
        stream: FlightStream,
        writer: RecordWriter,
        *,
        due: Callable[[float], float],
        answered: Callable[[], int],
        sent_at: Seconds,
        window: float = MAX_UNANSWERED_EVENTS,
    ) -> None:
        """Args:
        stream: the events.
        writer: writes to the input topic.
        due: returns how many events are due this many seconds after the start; see `steady`.
        answered: returns how many events have a result so far.
        sent_at: the feeder stores here when it wrote each event, seconds on the monotonic clock.
        window: most events without a result.
        """
        super().__init__(name="feeder", daemon=True)
        self._stream = stream
        self._writer = writer
        self._due = due
        self._window = window
        self._answered = answered
        self._sent_at = sent_at
        self._stopping = threading.Event()
        self._encoded: list[DemoEvent] = []
        self._first = 0  # event number of `_encoded[0]`
        self.sent = 0
        self.held_back = 0.0  # seconds during which due events waited, because too many had no result
        self.seconds = 0.0  # from the first event to the last
        self.failure: Exception | None = None

    @property
    def events(self) -> int:
        """How many events there are to send."""
        return len(self._stream)

    def run(self) -> None:
        """Write all events, or stop early if `stop` is called. An error ends the thread and is stored in `failure`."""
        started = time.monotonic()
        try:
            while self.sent < len(self._stream) and not self._stopping.is_set():
                self._write_due(started)
                self.seconds = time.monotonic() - started
            self._writer.flush()
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Write no more events."""
        self._stopping.set()

    def _write_due(self, started: float) -> None:
        now = time.monotonic()
        due = int(min(self._due(now - started), len(self._stream)))
        limit = int(min(due, self._answered() + self._window))
        if self.sent >= limit:
            self._stopping.wait(POLL_INTERVAL)
            if due > self.sent:
                self.held_back += time.monotonic() - now
            return
        for event in self._next(limit - self.sent):
            number = self.sent
            self.sent += 1  # before the write: the result may arrive at once
            self._sent_at[number] = time.monotonic()
            self._writer.write(event.value, event.key)

    def _next(self, most: int) -> list[DemoEvent]:
        if self.sent == self._first + len(self._encoded):
            self._first = self.sent
            self._encoded = self._stream.events(self.sent, min(self.sent + CHUNK_EVENTS, len(self._stream)))
        start = self.sent - self._first
        return self._encoded[start : start + most]


def steady(rate: float) -> Callable[[float], float]:
    """`due` for a constant rate, in events per second. With 0, all events are due at once, and only `window` limits the rate."""
    return lambda seconds: math.inf if not rate else seconds * rate + 1
