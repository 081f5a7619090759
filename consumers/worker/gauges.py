"""The worker's gauges: the events in flight, and the lag."""

import time

from millstream.consumers.observability import metrics as m
from millstream.consumers.record_types import Partition
from millstream.consumers.worker.event_source import EventSource
from millstream.consumers.worker.shared import Shared

UPDATE_INTERVAL = 1.0  # seconds between two updates


class Gauges:
    """Updates the gauges once a second. Only the main thread calls it."""

    def __init__(self, source: EventSource, shared: Shared) -> None:
        self._source = source
        self._shared = shared
        self._lag_of: set[Partition] = set()  # partitions whose lag is exported
        self._updated = 0.0  # seconds on the monotonic clock

    def update(self) -> None:
        """Update the gauges if a second has passed."""
        now = time.monotonic()
        if now - self._updated < UPDATE_INTERVAL:
            return
        self._updated = now
        shared, metrics = self._shared, self._shared.metrics
        oldest = shared.budget.oldest()
        metrics.set(m.OLDEST_UNCOMMITTED, 0.0 if oldest is None else now - oldest)
        metrics.set(m.IN_FLIGHT_EVENTS, shared.budget.events)
        metrics.set(m.IN_FLIGHT_BYTES, shared.budget.bytes)
        metrics.set(m.WRITE_QUEUE, shared.answers.qsize())
        self._update_lag()

    def _update_lag(self) -> None:
        metrics, lags = self._shared.metrics, self._source.lag(self._shared.assignment.delivered())
        for topic, partition in self._lag_of - lags.keys():
            metrics.forget(m.LAG, topic, str(partition))
        for (topic, partition), lag in lags.items():
            metrics.set(m.LAG, lag, topic, str(partition))
        self._lag_of = set(lags)
