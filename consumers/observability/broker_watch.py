"""Tells the log and `/ready` that no broker answers, and that one answers again: the clients only say it in many lines.

It also notices that a cluster came back without its data. An idle worker would not: it would wait for events at offsets that
don't exist any more.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, Self

from millstream.consumers.observability.seldom import Kind, SeldomWarnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.observability.health import Health

log = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 2.0  # seconds without an answer after which the broker counts as away, if a client has lost it
QUIET_TIMEOUT: Final = 5.0  # the same, if no client has reported anything: a busy broker is not away
LOOK_INTERVAL: Final = 10.0  # seconds between two looks if no client reports anything: a broker may stand still
RETRY_INTERVAL: Final = 0.5  # seconds between two questions while it is away
SETTLE_TIME: Final = 1.0  # seconds after an outage before the next look: the clients still report its errors
# Seconds after an outage in which errors are still of it. A client reports them when it is polled, and the worker's loop may wait
# for its transaction before it polls again.
LATE_ERRORS: Final = 90.0
LOG_INTERVAL: Final = 60.0  # seconds between two lines about it
LOST_CONNECTIONS: Final = Kind(
    "connection to Kafka failed, while a broker answers", "connections to Kafka failed, while a broker answers"
)


class Probe(Protocol):
    """`topics.broker_probe.BrokerProbe`."""

    def silent(self, timeout: float) -> str | None: ...  # noqa: D102
    def change(self) -> str | None: ...  # noqa: D102


class BrokerWatch:
    """A thread that asks a broker now and then, and once a client has lost it; a context manager, which ends the thread."""

    def __init__(
        self,
        bootstrap: str,
        probe: Probe,
        health: Health,
        *,
        on_change: Callable[[str], object] | None = None,
        every: float = LOOK_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        bootstrap: the brokers' addresses, for messages.
        probe: asks.
        health: gets the outage.
        on_change: called, with sentences, once the cluster has lost data; None: it isn't asked for that.
        every: seconds between two looks if no client reports anything.
        clock: seconds.
        """
        self._bootstrap = bootstrap
        self._probe = probe
        self._on_change = on_change
        self._health = health
        self._every = every
        self._clock = clock
        self._errors: list[str] = []  # that the clients have reported since the last look
        self._suspected = threading.Event()
        self._ended = threading.Event()
        self._warnings = SeldomWarnings(clock)
        self._answered = -LATE_ERRORS  # when the last outage ended
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)

    def suspect(self, error: str) -> None:
        """Note that a client has lost a broker. Any thread may call this."""
        self._errors.append(error)
        self._suspected.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._suspected.wait(self._every)

    def look(self) -> None:
        """Ask now. If no broker answers, report it, and return once one does. Then ask whether the cluster still has its data."""
        since, timeout = self._clock(), ANSWER_TIMEOUT if self._suspected.is_set() else QUIET_TIMEOUT
        self._suspected.clear()
        why = self._probe.silent(timeout)
        if why is not None:
            self._wait(since, why)
            self._ended.wait(SETTLE_TIME)
            self._suspected.clear()
        errors, self._errors = self._errors, []
        if errors or why is not None:
            self._health.connections_lost = True
        if errors and self._clock() - self._answered >= LATE_ERRORS:  # one of several brokers, or a short loss
            self._warnings.warn(LOST_CONNECTIONS, len(errors), errors[0])
        if self._on_change is not None and not self._ended.is_set():
            changed = self._probe.change()
            if changed is not None:
                self._on_change(changed)

    def _wait(self, since: float, why: str | None) -> None:
        """Wait until a broker answers. `since`: when it was first asked in vain."""
        said = self._clock()
        away = f"Kafka at {self._bootstrap} does not answer"
        log.warning("%s; waiting, nothing is lost (%s)", away, why)
        try:
            while why is not None:
                self._health.broker_away = f"{away} ({why})"
                if self._ended.wait(RETRY_INTERVAL):
                    return
                if self._clock() - said >= LOG_INTERVAL:
                    said = self._clock()
                    log.warning("%s since %s; still waiting (%s)", away, duration_text(said - since), why)
                why = self._probe.silent(ANSWER_TIMEOUT)
                self._errors.clear()  # they are of this outage
        finally:
            self._answered = self._clock()
            self._health.broker_answers()
        log.warning("Kafka at %s answers again, after %s", self._bootstrap, duration_text(self._clock() - since))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._suspected.set()
        self._thread.join(ANSWER_TIMEOUT)  # it may be in the middle of a question


def duration_text(seconds: float) -> str:
    """ "42 s", "3 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
