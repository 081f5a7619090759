"""Retries calls during an outage, so that it only causes lag."""

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from millstream.consumers.errors import Abandoned
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_types import Position
from millstream.consumers.resilience.outage import Outages
from millstream.schemas.failures import failure_of

T = TypeVar("T")

BACK_OFF = (0.1, 10.0)  # seconds: the first wait between two tries, and the longest


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
        self._outages = Outages(health, metrics)
        self._before_waiting = before_waiting

    def call(self, what: str, call: Callable[[], T], position: Callable[[Exception], Position] | None = None) -> T:
        """Return what `call` returns, after as many tries as it needs.

        Args:
            what: is needed, as the metrics name it: executor, schemas, features or models.
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
        outage, works = self._outages.begin(what), False
        if self._before_waiting is not None:
            self._before_waiting()
        try:
            while True:
                outage.note(error, wait, position(error) if position else None)
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
                works = True
                return result
        finally:
            outage.end(works=works)
