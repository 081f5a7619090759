"""Whether the job keeps up, and which share of the events it could take if not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

CHECKS_UNTIL_BEHIND = 3  # in a row that find more left to do, before the job is said to fall behind
TARGET_UTILISATION = 0.8  # of what it manages, that it should be given


@dataclass(slots=True)
class Pace:
    """Looks at read and written comparisons from time to time."""

    _last: tuple[float, int, int] | None = None  # when, done, lag
    _growing: list[tuple[float, float]] = field(default_factory=list)  # arrived and done a second, while the lag grows

    def look(self, now: float, done: int, lag: int) -> float | None:
        """How much of what arrives now the job could take: less than 1 where it falls behind, else None.

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
        if growth <= 0 or lag <= processed:  # it catches up, or is behind by less than one look
            self._growing.clear()
            return None
        self._growing.append(((processed + growth) / seconds, processed / seconds))
        if len(self._growing) < CHECKS_UNTIL_BEHIND:
            return None
        arrived, managed = (sum(rates) for rates in zip(*self._growing[-CHECKS_UNTIL_BEHIND:], strict=True))
        return float(TARGET_UTILISATION * managed / arrived)
