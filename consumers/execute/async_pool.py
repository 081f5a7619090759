"""Runs micro-batches on an asynchronous executor: hundreds at a time, on one event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any

from millstream.consumers.events import MicroBatch
from millstream.consumers.execute.async_runner import AsyncRunner, Finish, Unanswered
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.opened_rollout import Opened
from millstream.consumers.execute.request_gates import RequestPlaces
from millstream.consumers.execute.version_switch import VersionSwitch
from millstream.consumers.resilience.watchdog import watch
from millstream.inference.executors.loop_thread import LoopThread
from millstream.inference.executors.opened import OpenedModel

SHUTDOWN_TIMEOUT = 1.0  # seconds for all batches to end
TICK_INTERVAL = 0.5  # seconds between two signs of life of the event loop
# Seconds that a result waits for others, if other requests are in flight: each message wakes other threads. Without it, a request
# of 64 events to a fast model takes 3 % more CPU time.
GATHER_TIME = 0.001


class AsyncExecutorPool:
    """Runs micro-batches as coroutines, and passes their results on. One thread calls it. See `Pool`."""

    def __init__(
        self,
        first: AsyncRunner,
        runner_of: Callable[[OpenedModel, AsyncRunner], AsyncRunner],
        flights: Flights,
        *,
        thread: LoopThread,
        ahead: int,
        fail: Callable[[BaseException], object],
        stalled_after: float,
    ) -> None:
        """Args:
        first: runs the batches until `switch_to`.
        runner_of: creates the runner of another model version. It gets the version, and the runner before it.
        flights: passes the results on.
        thread: has the event loop of the executors.
        ahead: batches that may wait for others to end.
        fail: called in the loop's thread with an error that ended a batch.
        stalled_after: seconds that the event loop may stand still. Then the process ends.
        """
        self._switch = VersionSwitch(first)
        self._runner_of = runner_of
        self._thread = thread
        self._ahead = ahead
        self._refill = max(ahead // 2, 1)
        self._fail = fail
        self._flights = flights
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitted: deque[tuple[int, MicroBatch, AsyncRunner]] = deque()
        self._woken = False  # whether the loop will call `_wake`
        self._answered: list[tuple[Finish, AsyncRunner]] = []
        self._closed = False
        self._ticks = 0
        first.places.on_free = self._begin
        thread.loop.call_soon_threadsafe(self._tick)
        name = "the event loop of the executor (it must never block; limits.batch_timeout)"
        watch(lambda: None if self._closed else (name, self._ticks), stalled_after)

    together = 1  # see `Pool.together`

    def submit(self, batch: MicroBatch) -> None:
        """See `Pool.submit`. A batch that is too large for the executor becomes several, which run at the same time."""
        most = self._switch.current.max_events
        for part in (batch,) if batch.events <= most else batch.split(most):
            number = self._flights.depart(part, self._most, refill=self._refill)
            runner = self._switch.take()
            self._submitted.append((number, part, runner))
            # Each call wakes the loop, which costs two changes of threads. If all places are taken, it isn't needed: who frees a
            # place looks for submitted batches afterwards.
            if not self._woken and runner.places.has_room():
                self._woken = True
                self._thread.loop.call_soon_threadsafe(self._wake)

    def flush(self) -> None:
        """See `Pool.flush`. Nothing is kept back."""

    def wait_for_one(self) -> bool:
        """See `Pool.wait_for_one`."""
        return self._flights.wait_below(lambda: self._places.limit.size)

    def settle(self) -> None:
        """See `Pool.settle`."""
        self._flights.settle()

    def switch_to(self, model: Opened) -> None:
        """See `Pool.switch_to`. The version's executor was warmed up on the pool's event loop. A rollout has no such executor."""
        assert isinstance(model, OpenedModel)
        runner = self._runner_of(model, self._switch.current)
        runner.places.on_free = self._begin
        self._switch.switch_to(runner)
        self._thread.loop.call_soon_threadsafe(self._begin)  # the places may be other ones

    def is_in_use(self, model: Opened) -> bool:
        """See `Pool.is_in_use`."""
        return any(runner.model is model for runner in self._switch.in_use())

    def _most(self) -> int:
        """How many batches may be submitted and without a result."""
        return self._places.limit.size + self._ahead

    @property
    def _places(self) -> RequestPlaces:
        """The places of the requests in flight."""
        return self._switch.current.places

    def close(self) -> None:
        """Cancel the batches that run. Waits up to 1 s, because a coroutine may block the event loop."""
        self._closed = True
        wait([self._thread.submit(self._cancel())], SHUTDOWN_TIMEOUT)

    def _wake(self) -> None:
        self._woken = False  # first: a batch that is submitted from now on calls again
        self._begin()

    def _begin(self) -> None:
        """Begin to run the submitted batches that there are places for."""
        waiting, places = len(self._submitted), self._places
        while waiting > 0 and not self._closed and places.try_take():
            waiting -= 1
            self._start(self._run_submitted(places))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._thread.loop.create_task(coroutine)
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    async def _run_submitted(self, places: RequestPlaces) -> None:
        """Run submitted batches one after another, in a place that is already taken."""
        try:
            while self._submitted and not self._closed and places is self._places and places.may_stay():
                number, batch, runner = self._submitted.popleft()
                answered = await runner.first_try(number, batch)
                if isinstance(answered, Unanswered):
                    self._start(self._retry(answered, runner))
                else:
                    self._keep(answered, runner, places)
                if self._submitted and places.has_room():  # the limit has grown
                    self._begin()
        except Exception as error:
            self._fail(error)
        finally:
            places.free()

    async def _retry(self, failed: Unanswered, runner: AsyncRunner) -> None:
        try:
            self._keep(await runner.retry(failed), runner, runner.places)
        except Exception as error:
            self._fail(error)

    def _keep(self, finish: Finish, runner: AsyncRunner, places: RequestPlaces) -> None:
        """Pass a result on, together with those of the answers that come soon after it."""
        self._answered.append((finish, runner))
        if len(self._answered) == 1:
            self._thread.loop.call_later(GATHER_TIME if places.taken > 1 else 0.0, self._land)

    def _land(self) -> None:
        answered, self._answered = self._answered, []
        try:
            self._flights.land(*[finish() for finish, _ in answered])
        except Exception as error:
            self._fail(error)
        for _, runner in answered:
            self._switch.release(runner)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tick(self) -> None:
        self._ticks += 1
        if not self._closed:
            self._thread.loop.call_later(TICK_INTERVAL, self._tick)
