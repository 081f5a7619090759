"""Time limits of coroutines, which share one timer: `asyncio.timeout` takes one for each, and 5 us of CPU time."""

import asyncio
from types import TracebackType


class TimeLimits:
    """The time limits of the coroutines on one event loop. All share one timer."""

    def __init__(self) -> None:
        self.running: set[TimeLimit] = set()
        self._timer: asyncio.TimerHandle | None = None

    def of(self, seconds: float) -> "TimeLimit":
        """A limit for the code in `with`. This code raises TimeoutError if it takes longer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._timer is None or until < self._timer.when():
            self._set_timer(loop, until)
        return TimeLimit(self, until)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for limit in [limit for limit in self.running if limit.until <= loop.time()]:
            limit.exceed()
        if self.running:  # those that end before the timer have left it behind
            self._set_timer(loop, min(limit.until for limit in self.running))


class TimeLimit:
    """The time limit of one `with` statement, used once."""

    __slots__ = ("_cancelling", "_limits", "_task", "exceeded", "until")

    def __init__(self, limits: TimeLimits, until: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit is one of a task"
        self._limits = limits
        self._task = task
        self._cancelling = task.cancelling()
        self.until = until  # on the loop's clock
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
