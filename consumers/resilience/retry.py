"""Retries calls during an outage, so that it only causes lag."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from millstream.consumers.errors import Abandoned
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import BLOCKED, RETRIES, Metrics
from millstream.consumers.record_types import Position
from millstream.schemas.failures import failure_of

log = logging.getLogger(__name__)

T = TypeVar("T")

BACK_OFF = (0.1, 10.0)  # seconds: the first wait between two tries, and the longest
LOG_INTERVAL = 60.0  # seconds between two lines about one outage; from the second on, their level is ERROR


class Retry:
    """Repeats a call until the outage is over. Threads may share it."""

    def __init__(
        self,
        abandon: threading.Event,
        health: Health,
        metrics: Metrics,
        before_waiting: Callable[[], object] | None = None,
    ) -> None:
        """Args:
        abandon: set when the worker must not wait any longer.
        health: gets the outage.
        metrics: where to count.
        before_waiting: called before the first wait, so that existing results are not held back during the outage.
        """
        self._abandon = abandon
        self._health = health
        self._metrics = metrics
        self._before_waiting = before_waiting
        self._said: dict[str, float] = {}  # what is away -> when the log last said so, seconds on the monotonic clock

    def call(self, what: str, call: Callable[[], T], position: Callable[[Exception], Position] | None = None) -> T:
        """Return what `call` returns, after as many tries as it needs.

        Args:
            what: executor or schemas.
            call: the call that may fail.
            position: returns the position of the first record that waits; gets the exception of `call`.

        Raises:
            Abandoned: the worker must not wait any longer.
            ExecutorLost: only a new process can go on.
        """
        try:
            return call()
        except Exception as error:
            if failure_of(error) != "wait":
                raise
            away = error
        return self._call_again(what, call, away, position)

    def _call_again(
        self, what: str, call: Callable[[], T], error: Exception, position: Callable[[Exception], Position] | None
    ) -> T:
        wait, longest = BACK_OFF
        since = time.monotonic()
        said_before = self._said.get(what)
        first: Position | None = None
        if self._before_waiting is not None:
            self._before_waiting()
        try:
            while True:
                before, first = first, position(error) if position else None
                if before is not None and before != first:  # that record does not wait any more
                    self._metrics.forget(BLOCKED, what, *map(str, before))
                self._note_waiting(what, error, time.monotonic() - since, wait, first)
                # Jitter, so that all workers don't retry at the same moment.
                if self._abandon.wait(random.uniform(wait / 2, wait)):
                    raise Abandoned(f"gave up waiting: {error}") from error
                wait = min(wait * 2, longest)
                try:
                    result = call()
                except Exception as again:
                    if failure_of(again) != "wait":
                        raise
                    error = again
                    continue
                if self._said.get(what) != said_before:
                    log.warning("%s: works again, after %.0f s", what, time.monotonic() - since)
                return result
        finally:
            self._health.back(what)
            if first is not None:
                self._metrics.forget(BLOCKED, what, *map(str, first))

    def _note_waiting(self, what: str, error: Exception, waited: float, wait: float, position: Position | None) -> None:
        self._metrics.count(RETRIES, 1, what)
        first = ""
        if position is not None:
            topic, partition, offset = position
            first = f" The first event that waits is at offset {offset} of {topic}/{partition}."
            self._metrics.set(BLOCKED, waited, what, *map(str, position))
        self._health.away(what, str(error))
        now = time.monotonic()
        if now - self._said.get(what, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._said[what] = now
            level = logging.WARNING if waited < LOG_INTERVAL else logging.ERROR
            log.log(level, "%s; waiting for %.0f s, trying again in up to %.1f s.%s", error, waited, wait, first)
