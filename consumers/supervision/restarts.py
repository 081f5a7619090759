"""When a worker that has ended is started again: back-off, and what counts as a crash loop. Pure."""

from collections import deque
from dataclasses import dataclass, field

FIRST, LONGEST = 1.0, 30.0  # seconds of back-off
STEADY = 60.0  # seconds of life after which earlier ends are forgotten
LOOP = 4  # ends, each within `STEADY` of its start, from which on it is a crash loop


@dataclass(slots=True)
class Restarts:
    """The ends of the workers that had one number; times are seconds on a clock that only grows."""

    _started: float = 0.0
    _ends: deque[float] = field(default_factory=deque)  # in a row, since it last was steady

    def started(self, now: float) -> None:
        """It was started."""
        self._started = now

    def ended(self, now: float) -> float:
        """It ended by itself; returns the seconds until it may be started again."""
        if now - self._started >= STEADY:
            self._ends.clear()
        self._ends.append(now)
        return float(min(FIRST * 2 ** (len(self._ends) - 1), LONGEST))

    @property
    def in_a_row(self) -> int:
        """Ends since it last was steady."""
        return len(self._ends)

    @property
    def looping(self) -> bool:
        """Whether it is in a crash loop."""
        return len(self._ends) >= LOOP

    @property
    def over(self) -> float:
        """Seconds from the first to the last of the ends in a row."""
        return self._ends[-1] - self._ends[0] if self._ends else 0.0
