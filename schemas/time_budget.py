"""A time budget for fruitless work: a share of elapsed time, plus a burst. Pure."""


class TimeBudget:
    """A token bucket of seconds: it refills at `share` seconds per second, up to `burst`; `spend` takes from it.

    Not thread-safe: threads that share it need a lock.
    """

    def __init__(self, share: float, burst: float, *, least: float = 0.0) -> None:
        """Args:
        share: of elapsed time that may be spent in the long run, 0 to 1.
        burst: seconds that may be spent at once, at the start or after an idle period.
        least: minimum charge of each call, seconds.
        """
        self._share = share
        self._burst = burst
        self._least = least
        self._left = burst  # negative after a call that overran the budget
        self._looked: float | None = None  # time of the last refill

    def allows(self, now: float) -> bool:
        """Whether any budget is left. `now` is in seconds and never goes back."""
        self._grow(now)
        return self._left > 0

    def spend(self, now: float, seconds: float) -> None:
        """Charge a call that took so many seconds and ended now."""
        self._grow(now)
        self._left -= max(seconds, self._least)

    def _grow(self, now: float) -> None:
        if self._looked is not None:
            self._left = min(self._burst, self._left + self._share * (now - self._looked))
        self._looked = now
