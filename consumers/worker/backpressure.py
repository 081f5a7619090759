"""Reads only while there is room, and pauses partitions where there is none for long."""

import time

from millstream.consumers.source.kafka_source import Source
from millstream.consumers.worker.shared import Shared

POLL_INTERVAL = 0.1  # seconds that the loop waits for room before it turns again
PAUSE_AFTER = 0.5  # seconds without room; a shorter wait is cheaper than a pause, which drops what was fetched ahead
NO_TOPICS: frozenset[str] = frozenset()


class Backpressure:
    """Says whether to poll. The thread that polls calls it."""

    def __init__(self, source: Source, shared: Shared) -> None:
        self._source = source
        self._budget = shared.budget
        self._quotas = shared.quotas
        self._health = shared.health
        self._stopping = shared.ending.stopping
        self._full_since: float | None = None
        self._paused = False

    def may_poll(self) -> bool:
        """Whether there is room; or there is none for long, and paused partitions are polled to stay a member.

        Waits a little for room.
        """
        wait = 0 if self._paused else POLL_INTERVAL
        if self._health.outage is None and self._budget.wait_for_room(wait, paused=self._paused):
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
        """Fetch nothing."""
        self._paused = True
        self._source.pause(self._source.topics)

    def resume(self) -> None:
        """Fetch of all partitions, whatever is held."""
        self._paused = False
        self._source.pause(NO_TOPICS)
