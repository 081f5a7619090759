"""Runs micro-batches on an asynchronous executor: hundreds at a time, on one event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any

from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.async_runner import AsyncRunner, Unanswered
from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.flights import Flights
from millstream.consumers.resilience.watchdog import watch
from millstream.inference.executors.loop_thread import LoopThread

SHUTDOWN_TIMEOUT = 1.0  # seconds for all batches to end
TICK_INTERVAL = 0.5  # seconds between two signs of life of the event loop


class AsyncExecutorPool:
    """Runs micro-batches as coroutines, and passes their results on. One thread calls it. See `Pool`."""

    def __init__(
        self,
        runner: AsyncRunner,
        flights: Flights,
        *,
        thread: LoopThread,
        limit: ConcurrencyLimit,
        ahead: int,
        fail: Callable[[BaseException], object],
        stalled_after: float,
    ) -> None:
        """Args:
        runner: runs the batches.
        flights: passes the results on.
        thread: has the event loop of the executor.
        limit: how many batches run at a time.
        ahead: batches that may wait for others to end.
        fail: called in the loop's thread with an error that ended a batch.
        stalled_after: seconds that the event loop may stand still. Then the process ends.
        """
        self._runner = runner
        self._thread = thread
        self._limit = limit
        self._ahead = ahead
        self._fail = fail
        self._flights = flights
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitted: deque[tuple[int, MicroBatch]] = deque()
        self._landed: list[BatchResult] = []
        self._closed = False
        self._ticks = 0
        runner.places.on_free = self._begin
        thread.loop.call_soon_threadsafe(self._tick)
        name = "the event loop of the executor (it must never block; limits.batch_timeout)"
        watch(lambda: None if self._closed else (name, self._ticks), stalled_after)

    def submit(self, batch: MicroBatch) -> None:
        """See `Pool.submit`. A batch that is too large for the executor becomes several, which run at the same time."""
        most = self._runner.max_events
        for part in [batch] if batch.events <= most else batch.split(most):
            number = self._flights.depart(part, lambda: self._limit.size + self._ahead, refill=max(self._ahead // 2, 1))
            self._submitted.append((number, part))
            if len(self._submitted) == 1:  # otherwise the loop has been woken, or all places are taken
                self._thread.loop.call_soon_threadsafe(self._begin)

    def flush(self) -> None:
        """See `Pool.flush`. Nothing is kept back."""

    def wait_for_one(self) -> bool:
        """See `Pool.wait_for_one`."""
        return self._flights.wait_below(lambda: self._limit.size)

    def settle(self) -> None:
        """See `Pool.settle`."""
        self._flights.settle()

    def close(self) -> None:
        """Cancel the batches that run. Waits up to 1 s, because a coroutine may block the event loop."""
        self._closed = True
        wait([self._thread.submit(self._cancel())], SHUTDOWN_TIMEOUT)

    def _begin(self) -> None:
        """Begin to run the submitted batches that there are places for."""
        waiting = len(self._submitted)
        while waiting > 0 and not self._closed and self._runner.places.try_take():
            waiting -= 1
            self._start(self._run_submitted())

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._thread.loop.create_task(coroutine)
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    async def _run_submitted(self) -> None:
        """Run submitted batches one after another, in a place that is already taken."""
        places = self._runner.places
        try:
            while self._submitted and not self._closed and places.may_stay():
                number, batch = self._submitted.popleft()
                answered = await self._runner.first_try(number, batch)
                if isinstance(answered, BatchResult):
                    self._keep(answered)
                else:
                    self._start(self._retry(answered))
                if self._submitted:  # the limit may have grown
                    self._begin()
        except Exception as error:
            self._fail(error)
        finally:
            places.free()

    async def _retry(self, failed: Unanswered) -> None:
        try:
            self._keep(await self._runner.retry(failed))
        except Exception as error:
            self._fail(error)

    def _keep(self, answered: BatchResult) -> None:
        """Pass a result on, together with the others that come in this turn of the loop: each message wakes other threads."""
        self._landed.append(answered)
        if len(self._landed) == 1:
            self._thread.loop.call_soon(self._land)

    def _land(self) -> None:
        landed, self._landed = self._landed, []
        self._flights.land(*landed)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tick(self) -> None:
        self._ticks += 1
        if not self._closed:
            self._thread.loop.call_later(TICK_INTERVAL, self._tick)
