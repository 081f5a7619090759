"""Time limits of coroutines, which share one timer: `asyncio.timeout` takes one for each, and 5 us of CPU time."""

import asyncio
import time
from types import TracebackType


class TimeLimits:
    """The time limits of the coroutines on one event loop. All share one timer."""

    def __init__(self) -> None:
        self.running: set[TimeLimit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ends = float("inf")  # when the timer does; infinite: there is none

    def of(self, seconds: float) -> "TimeLimit":
        """A limit for the code in `with`. This code raises TimeoutError if it takes longer."""
        until = time.monotonic() + seconds
        if until < self._ends:
            self._set_timer(until)
        return TimeLimit(self, until)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._ends = asyncio.get_running_loop().call_at(when, self._end_overdue), when

    def _end_overdue(self) -> None:
        self._timer, self._ends = None, float("inf")
        for limit in [limit for limit in self.running if limit.until <= time.monotonic()]:
            limit.exceed()
        if self.running:  # those that end before the timer have left it behind
            self._set_timer(min(limit.until for limit in self.running))


class TimeLimit:
    """The time limit of one `with` statement, used once."""

    __slots__ = ("_cancelling", "_limits", "_task", "exceeded", "until")

    def __init__(self, limits: TimeLimits, until: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit is one of a task"
        self._limits = limits
        self._task = task
        self._cancelling = task.cancelling()
        self.until = until  # on the monotonic clock
        self.exceeded = False

    def exceed(self) -> None:
        """Cancel what runs. It isn't watched any more: a coroutine that ignores this is not cancelled again."""
        self.exceeded = True
        self._limits.running.discard(self)
        self._task.cancel()

    def __enter__(self) -> None:
        self._limits.running.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.running.discard(self)
        if self.exceeded and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error  # nobody else cancelled the task
