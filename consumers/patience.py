"""Waiting out what is away: an outage makes lag, and nothing else."""

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeVar

from consumers.errors import Abandoned
from consumers.health import Health
from consumers.metrics import RETRIES, Metrics
from schemas.failures import failure_of

log = logging.getLogger(__name__)

T = TypeVar("T")

BACK_OFF = (0.1, 10.0)  # seconds: the first wait for something that is away, and the longest


class Patience:
    """Calls what may be away, until it answers. Threads may share it."""

    def __init__(self, abandon: threading.Event, health: Health, metrics: Metrics) -> None:
        """Args:
        abandon: set when waiting must end.
        health: told what is away, for as long as it is.
        metrics: where to count.
        """
        self._abandon = abandon
        self._health = health
        self._metrics = metrics
        self.before_waiting: Callable[[], object] = lambda: None  # its owner may give another

    def call(self, what: str, call: Callable[[], T]) -> T:
        """The answer of `call`, whenever it comes.

        Raises:
            Abandoned: told to give up.
            ExecutorLost: only another process can go on.
        """
        try:
            return call()
        except Exception as error:
            if failure_of(error) != "wait":
                raise
            away = error
        return self._call_again(what, call, away)

    def _call_again(self, what: str, call: Callable[[], T], error: Exception) -> T:
        wait, longest = BACK_OFF
        self.before_waiting()
        try:
            while True:
                self._health.away(what, str(error))
                self._metrics.count(RETRIES, 1, what)
                log.warning("%s; trying again in up to %.1f s", error, wait)
                # Jitter, so that workers that lost the same thing don't come back to it at the same moment.
                if self._abandon.wait(random.uniform(wait / 2, wait)):
                    raise Abandoned(f"gave up waiting: {error}") from error
                wait = min(wait * 2, longest)
                try:
                    return call()
                except Exception as again:
                    if failure_of(again) != "wait":
                        raise
                    error = again
        finally:
            self._health.back(what)
