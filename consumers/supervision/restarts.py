"""Decides when an ended worker is restarted (back-off), and what counts as a crash loop. Pure."""

from collections import deque
from dataclasses import dataclass, field

FIRST, LONGEST = 1.0, 30.0  # seconds of back-off
STEADY = 60.0  # if a worker lived this many seconds, its earlier ends no longer count
LOOP = 4  # this many ends in a row, each within `STEADY` of its start, are a crash loop


@dataclass(slots=True)
class Restarts:
    """The ends of the workers with one number. Times are seconds on a clock that never goes back."""

    _started: float = 0.0
    _ends: deque[float] = field(default_factory=deque)  # the ends since the worker was last steady

    def started(self, now: float) -> None:
        """Note that the worker was started."""
        self._started = now

    def ended(self, now: float) -> float:
        """Note that the worker ended by itself; returns the seconds to wait before its restart."""
        if now - self._started >= STEADY:
            self._ends.clear()
        self._ends.append(now)
        return float(min(FIRST * 2 ** (len(self._ends) - 1), LONGEST))

    @property
    def in_a_row(self) -> int:
        """The number of ends since the worker was last steady."""
        return len(self._ends)

    @property
    def looping(self) -> bool:
        """Whether the worker is in a crash loop."""
        return len(self._ends) >= LOOP

    @property
    def over(self) -> float:
        """Seconds from the first to the last of these ends."""
        return self._ends[-1] - self._ends[0] if self._ends else 0.0
