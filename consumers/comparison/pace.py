"""Finds out whether the job keeps up. If it doesn't: which share of the comparisons it could process. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

CHECKS_UNTIL_BEHIND = 3  # consecutive checks with a growing lag, after which the job counts as falling behind
TARGET_UTILISATION = 0.8  # share of the measured rate that the job should be given


@dataclass(slots=True)
class Pace:
    """Compares, from time to time, how many comparisons were written and how many were processed."""

    _last: tuple[float, int, int] | None = None  # time, comparisons processed, lag
    # Arrived and processed comparisons per second, at each check in a row that found a growing lag.
    _growing: list[tuple[float, float]] = field(default_factory=list)

    def look(self, now: float, done: int, lag: int) -> float | None:
        """Which share of the arriving comparisons the job could process, if it falls behind; else None.

        Args:
            now: seconds on a clock that never goes back.
            done: comparisons processed so far.
            lag: comparisons written and not yet processed.
        """
        last, self._last = self._last, (now, done, lag)
        if last is None or now <= last[0] or done < last[1]:
            self._growing.clear()
            return None
        seconds, processed, growth = now - last[0], done - last[1], lag - last[2]
        if growth <= 0 or lag <= processed:  # it catches up, or the lag is less than it processes between two looks
            self._growing.clear()
            return None
        self._growing.append(((processed + growth) / seconds, processed / seconds))
        if len(self._growing) < CHECKS_UNTIL_BEHIND:
            return None
        arrived, managed = (sum(rates) for rates in zip(*self._growing[-CHECKS_UNTIL_BEHIND:], strict=True))
        return float(TARGET_UTILISATION * managed / arrived)
