"""Limits how many events a replay reads per second. Pure: times are arguments."""

from __future__ import annotations

MOST_AHEAD = 0.1  # seconds of events that may be read at once after a pause


class Pace:
    """A token bucket of `rate` events per second; None: there is no limit."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._since = now
        self._left = 1.0

    def room(self, limit: int, now: float) -> int:
        """How many events may be read now, at most `limit`."""
        if self._rate is None:
            return limit
        most = max(self._rate * MOST_AHEAD, 1.0)
        self._left = min(self._left + (now - self._since) * self._rate, most)
        self._since = now
        return min(limit, int(self._left))

    def wait(self) -> float:
        """Seconds until the next event may be read."""
        return 0.0 if self._rate is None else max(1 - self._left, 0.0) / self._rate

    def took(self, events: int) -> None:
        """Note events that were read."""
        if self._rate is not None:
            self._left -= events
