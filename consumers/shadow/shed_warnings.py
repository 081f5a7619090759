"""Says how many events the shadows had no time for, why, and what to do."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from millstream.consumers.observability.broker_watch import duration_text
from millstream.consumers.observability.seldom import Kind, SeldomWarnings

HANGS_AFTER: Final = 60.0  # seconds in one batch
FORGETS_AFTER: Final = 600.0  # seconds without a shed event, after which the next one counts as the first
SHED: Final = Kind("event was left out by the shadows", "events were left out by the shadows")
_HANGING: Final = (
    "{events} at once, because shadow {shadow} has been running one batch for {duration} and probably hangs. Repair "
    "that version, or take the shadow out, and restart the workers"
)
_BACKLOG: Final = "{events} at once, while this worker had a backlog. Predictions go first. "
_FULL_QUEUE: Final = "{events} at once, while the shadows' queue was full. Predictions go first. "
_PASSES: Final = "A backlog, as at a start, is the usual cause, and passes by itself. "
_MORE_WORKERS: Final = (
    "To compare more events, start more workers, or give the shadows workers of their own (`dedicated: true`)"
)
_SLOW: Final = (
    "The shadows are slower than the load, or pause for their `max_load` (`millstream docs shadows#where-it-runs`). To "
    "compare more events, give the shadows workers of their own (`dedicated: true`), or raise `max_load`"
)


class Call(NamedTuple):
    """A shadow that runs."""

    shadow: str  # its name
    since: float  # seconds on the monotonic clock


class ShedWarnings:
    """Warns of events that were shed, at most once a minute. One thread calls it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warnings = SeldomWarnings(clock)
        self._warned = -FORGETS_AFTER  # when

    def warn(self, events: int, call: Call | None, *, full: bool) -> None:
        """Say that so many more events were shed, at once. `call`: of the shadow that runs; `full`: the queue was full."""
        self._warnings.warn(SHED, events, self._why(events, call, full=full))
        self._warned = self._clock()

    def catch_up(self) -> None:
        """Log the events since the last warning, if the time for the next one has come."""
        self._warnings.catch_up()

    def say_all(self) -> None:
        """Log the events since the last warning, at the end."""
        self._warnings.say_all()

    def _why(self, events: int, call: Call | None, *, full: bool) -> str:
        if full and call is not None and (took := self._clock() - call.since) >= HANGS_AFTER:
            return _HANGING.format(events=events, shadow=call.shadow, duration=duration_text(took))
        why = (_FULL_QUEUE if full else _BACKLOG).format(events=events)
        if self._clock() - self._warned >= FORGETS_AFTER:
            return f"{why}{_PASSES}{_MORE_WORKERS}"
        return why + (_SLOW if full else _MORE_WORKERS)
