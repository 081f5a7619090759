"""Reports outages: to the log at the start, once a minute and at the end, to the health, and to the metrics."""

import logging
import time

from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import BLOCKED, RETRIES, Metrics
from millstream.consumers.record_types import Position

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0  # seconds between two lines about one outage; from the second on, their level is ERROR
# Seconds after which an outage is told sooner, if the log's last line says that all works again. Shorter ones may come often.
WORTH_A_LINE = 5.0


class Outages:
    """Creates the reports. Threads may share it: if several wait for the same, the log says so once."""

    def __init__(self, health: Health, metrics: Metrics, *, stop_reading: bool = True) -> None:
        """Args:
        health: gets the outages. The worker is not ready during one.
        metrics: where to count.
        stop_reading: whether the worker reads no more events during one. If not, it reads until the in-flight limit is reached.
        """
        self.health = health
        self.stop_reading = stop_reading
        self.metrics = metrics
        self.logged: dict[str, float] = {}  # what is away -> when the log last said so, seconds on the monotonic clock
        self.told_back = set[str]()  # what works again, by the log's last line about it

    def begin(self, what: str) -> "Outage":
        """A new outage, which begins now. `what` is away: executor, schemas, features or models."""
        return Outage(what, self)


class Outage:
    """One wait for something that is away. One thread calls it."""

    def __init__(self, what: str, outages: Outages) -> None:
        self._what = what
        self._outages = outages
        self._since = time.monotonic()
        self._logged_before = outages.logged.get(what)
        self._first: Position | None = None  # the first event that waits

    def note(self, error: Exception, wait: float, first: Position | None) -> None:
        """Report a failed try.

        Args:
            error: why it failed.
            wait: the most seconds until the next try.
            first: the position of the first event that waits; None: it isn't known.
        """
        outages, what, waited = self._outages, self._what, time.monotonic() - self._since
        if self._first != first:  # that event does not wait any more
            self._forget()
        self._first = first
        outages.metrics.count(RETRIES, 1, what)
        place = ""
        if first is not None:
            topic, partition, offset = first
            place = f" The first event that waits is at offset {offset} of {topic}/{partition}."
            outages.metrics.set(BLOCKED, waited, what, *map(str, first))
        outages.health.away(what, str(error), stops_reading=outages.stop_reading)
        now = time.monotonic()
        is_new = what in outages.told_back and waited >= WORTH_A_LINE
        if is_new or now - outages.logged.get(what, -LOG_INTERVAL) >= LOG_INTERVAL:
            outages.logged[what] = now
            outages.told_back.discard(what)
            level = logging.WARNING if waited < LOG_INTERVAL else logging.ERROR
            since = f"waiting for {waited:.0f} s, " if waited >= 1 else ""
            said = str(error).removesuffix(".")
            log.log(level, "%s; %strying again in up to %.1f s.%s", said, since, wait, place)

    def end(self, *, works: bool) -> None:
        """End the report. `works`: whether what was away works again."""
        if works and self._outages.logged.get(self._what) != self._logged_before:
            log.info("%s: works again, after %.0f s", self._what, time.monotonic() - self._since)
            self._outages.told_back.add(self._what)
        self._outages.health.back(self._what)
        self._forget()

    def _forget(self) -> None:
        if self._first is not None:
            self._outages.metrics.forget(BLOCKED, self._what, *map(str, self._first))
