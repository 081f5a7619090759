"""Tells the log and `/ready` that no broker answers, and that one answers again: the clients only say it in many lines."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, Self

from millstream.consumers.observability.seldom import SeldomWarnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.observability.health import Health

log = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 2.0  # seconds without an answer after which the broker counts as away
RETRY_INTERVAL: Final = 0.5  # seconds between two questions while it is away
SETTLE_TIME: Final = 1.0  # seconds after an outage in which the clients still report its errors
LOG_INTERVAL: Final = 60.0  # seconds between two lines about it


class Probe(Protocol):
    """`topics.broker_probe.BrokerProbe`."""

    def silent(self, timeout: float) -> str | None: ...  # noqa: D102


class BrokerWatch:
    """A thread that asks a broker once a client has lost it; a context manager, which ends the thread."""

    def __init__(
        self,
        bootstrap: str,
        open_probe: Callable[[], Probe],
        health: Health,
        *,
        every: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        bootstrap: the brokers' addresses, for messages.
        open_probe: makes what asks.
        health: gets the outage.
        every: seconds after which it also asks if no client has reported anything; None: never.
        clock: seconds.
        """
        self._bootstrap = bootstrap
        self._open_probe = open_probe
        self._health = health
        self._every = every
        self._clock = clock
        self._errors: list[str] = []  # that the clients have reported since the last look
        self._suspected = threading.Event()
        self._ended = threading.Event()
        self._warnings = SeldomWarnings(clock)
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)

    def suspect(self, error: str) -> None:
        """Note that a client has lost a broker. Any thread may call this."""
        self._errors.append(error)
        self._suspected.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._suspected.wait(self._every)
            if self._ended.is_set():
                return
            self.look()

    def look(self) -> None:
        """Ask now. If no broker answers, report it, and return once one does."""
        self._suspected.clear()
        probe = self._open_probe()
        why = probe.silent(ANSWER_TIMEOUT)
        if why is not None:
            self._wait(probe, why)
            self._ended.wait(SETTLE_TIME)
            self._suspected.clear()
        errors, self._errors = self._errors, []
        if errors and why is None:  # one of several brokers, or a short loss
            self._warnings.warn("connections to Kafka were lost, and a broker answers", len(errors), errors[0])

    def _wait(self, probe: Probe, why: str | None) -> None:
        since = said = self._clock()
        away = f"Kafka at {self._bootstrap} does not answer"
        log.warning("%s; waiting, nothing is lost (%s)", away, why)
        try:
            while why is not None:
                self._health.broker_away = f"{away} ({why})"
                if self._ended.wait(RETRY_INTERVAL):
                    return
                if self._clock() - said >= LOG_INTERVAL:
                    said = self._clock()
                    log.warning("%s since %s; still waiting (%s)", away, _duration(said - since), why)
                why = probe.silent(ANSWER_TIMEOUT)
                self._errors.clear()  # they are of this outage
        finally:
            self._health.broker_away = None
        log.warning("Kafka at %s answers again, after %s", self._bootstrap, _duration(self._clock() - since))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._suspected.set()
        self._thread.join(ANSWER_TIMEOUT)  # it may be in the middle of a question


def _duration(seconds: float) -> str:
    """ "42 s", "3 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
