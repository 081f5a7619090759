"""Lets the worker poll only while there is room, and pauses the partitions if there is none for some time."""

import time

from millstream.consumers.worker.event_source import EventSource
from millstream.consumers.worker.shared import Shared

POLL_INTERVAL = 0.1  # seconds that one turn of the loop waits for room
# Seconds without room, after which the partitions are paused. A pause drops the records that were fetched ahead, so a short wait
# is cheaper.
PAUSE_AFTER = 0.5
NO_TOPICS: frozenset[str] = frozenset()


class Backpressure:
    """Decides whether to poll. Only the main thread calls it."""

    def __init__(self, source: EventSource, shared: Shared) -> None:
        self._source = source
        self._budget = shared.budget
        self._quotas = shared.quotas
        self._health = shared.health
        self._stopping = shared.ending.stopping
        self._full_since: float | None = None
        self._paused = False

    def may_poll(self) -> bool:
        """Return whether to poll now. Waits briefly for room.

        While a thread of the worker waits for an outage to end, there is no room. Once all partitions are paused, the worker
        polls without room too: such a poll returns no records, and keeps the worker in its group.
        """
        wait = 0 if self._paused else POLL_INTERVAL
        if not self._health.stops_reading and self._budget.wait_for_room(wait, paused=self._paused):
            self._full_since = None
            self._paused = False
            self._source.pause(self._quotas.full if self._quotas is not None else NO_TOPICS)
            return True
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since >= PAUSE_AFTER:
            self.pause()
        else:
            self._stopping.wait(POLL_INTERVAL)
        return self._paused

    def pause(self) -> None:
        """Pause all partitions."""
        self._paused = True
        self._source.pause(self._source.topics)

    def resume(self) -> None:
        """Resume all partitions, even without room."""
        self._paused = False
        self._source.pause(NO_TOPICS)
