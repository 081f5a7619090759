"""Tells the log and `/ready` that the group assigns nothing, and why: the client retries for good, and reports nothing.

A broker may answer although its coordinator of this group doesn't work. A group may also wait for one of its members.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from millstream.consumers.observability.broker_watch import LOG_INTERVAL, duration_text
from millstream.consumers.observability.health import Health
from millstream.topics.coordinator import UNREADY_ADVICE

log = logging.getLogger(__name__)

WARN_AFTER: Final = 30.0  # seconds without an assignment after which the worker says so
WHAT: Final = "the group's assignment"
OTHER_MEMBER: Final = (
    "its coordinator answers, so another member probably delays the rebalance. The group goes on once that member answers, or "
    "once its `max.poll.interval.ms` is over (a worker's is `limits.drain_timeout` + 45 s). Kafka's "
    "`kafka-consumer-groups --describe --members` lists the members"
)


class AwaitedAssignment:
    """Notes since when the worker waits for an assignment. An empty one counts. Only the main thread calls it."""

    def __init__(
        self, group: str, ask: Callable[[], str | None], health: Health, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        group: the worker's group.
        ask: asks the group's coordinator, because the client doesn't report the errors in its answers. Returns an error or None.
        health: says whether a broker answers, and gets the reason why the worker waits.
        clock: seconds.
        """
        self._group = group
        self._ask = ask
        self._health = health
        self._clock = clock
        self._since: float | None = (
            None  # when the wait began, or the broker's outage ended; None: there is an assignment
        )
        self._next = 0.0  # when to warn
        self._warned = False

    @property
    def lasts(self) -> bool:
        """Whether the worker waits."""
        return self._since is not None

    def begin(self) -> None:
        """Note that the worker joins the group, for the first time or again."""
        self._since = self._clock()
        self._next = self._since + WARN_AFTER

    def lost(self) -> None:
        """Note that the group has removed the worker. It is not ready until the next assignment."""
        self.begin()
        self._health.away(
            WHAT, f"the group {self._group} has removed this worker, which joins again", stops_reading=False
        )

    def look(self) -> None:
        """Warn if it is time to. While no broker answers, the broker watch says so, and the time begins anew."""
        if self._since is None:
            return
        if self._health.broker_away is not None:
            self.begin()
            return
        if (now := self._clock()) < self._next:
            return
        self._next, self._warned = now + LOG_INTERVAL, True
        why = self._reason()
        self._health.away(WHAT, f"the group {self._group} has assigned nothing: {why}", stops_reading=False)
        log.warning("the group %s has assigned nothing for %s: %s", self._group, duration_text(now - self._since), why)

    def _reason(self) -> str:
        if (error := self._ask()) is None:
            return OTHER_MEMBER
        return f"a broker answers, but the group's coordinator does not ({error}). {UNREADY_ADVICE}"

    def end(self) -> None:
        """Note an assignment."""
        if self._warned and self._since is not None:
            log.warning(
                "the group %s has made an assignment, after %s", self._group, duration_text(self._clock() - self._since)
            )
        self._health.back(WHAT)
        self._since, self._warned = None, False
