"""How much time may go into something that leads to nothing: a share of all time, and a burst after a quiet while. Pure."""


class TimeBudget:
    """Grows by a share of the time that passes, up to the burst; what is spent is taken from it.

    For one thread at a time: threads that share it need a lock.
    """

    def __init__(self, share: float, burst: float, *, least: float = 0.0) -> None:
        """Args:
        share: of all time, 0 to 1.
        burst: seconds that may be spent after a quiet while, and at the start.
        least: seconds that spending costs however quick it was.
        """
        self._share = share
        self._burst = burst
        self._least = least
        self._left = burst  # below 0 where the last one took longer than what was left
        self._looked: float | None = None  # when

    def allows(self, now: float) -> bool:
        """Whether something is left. `now` is in seconds and never goes back."""
        self._grow(now)
        return self._left > 0

    def spend(self, now: float, seconds: float) -> None:
        """Take time that was spent up to now."""
        self._grow(now)
        self._left -= max(seconds, self._least)

    def _grow(self, now: float) -> None:
        if self._looked is not None:
            self._left = min(self._burst, self._left + self._share * (now - self._looked))
        self._looked = now
