"""Runs micro-batches on executor slots, and passes on the results in the order that `ordering` demands."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.opened_rollout import Opened
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.execute.result_buffer import MAX_DELAY, ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import ServedModel
from millstream.consumers.execute.version_switch import VersionSwitch
from millstream.consumers.resilience.leaving import LibraryThread
from millstream.inference.errors import OutputsDiffer

SHUTDOWN_TIMEOUT = 1.0  # seconds for all threads to end


class ExecutorPool:
    """Runs micro-batches, one per thread at a time, and passes their results on. One thread calls it.

    A single runner without batches `ahead` runs in the caller's thread: to hand a small batch to another thread costs more than
    to run it. For the same reason, the full batches of a fast model are submitted together, and its results are passed on
    together (`ResultBuffer`).
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        served_as: Callable[[Opened], ServedModel],
        first: Opened,
        results: ResultBuffer,
        *,
        ahead: int = 0,
        ordering: Ordering,
        abandon: threading.Event,
        fail: Callable[[BaseException], object],
    ) -> None:
        """Args:
        runners: each gets a thread.
        served_as: prepares a model version for these runners.
        first: the version that answers until `switch_to`.
        results: takes the results.
        ahead: batches that may wait for a runner, so that a runner that is free has the next one at once.
        ordering: which results may overtake others.
        abandon: set when the worker must not wait any longer.
        fail: called in a runner's thread with the error that ended it.
        """
        self._runners = runners
        self._served_as = served_as
        self._switch = VersionSwitch(served_as(first))
        self._flights = Flights(results, ordering=ordering, abandon=abandon)
        self._results = results
        self._fail = fail
        self._max_events = runners[0].max_events
        self._took = MAX_DELAY  # seconds that the models took for each of the last batches
        self._apart: Opened | None = None  # the outputs of its batches differ in shape or type, so none run as one
        self._waiting: SimpleQueue[tuple[int, MicroBatch, ServedModel] | None] = SimpleQueue()
        self._threads = [
            LibraryThread(partial(self._run, at, runner), f"executor-{at}")
            for at, runner in enumerate(runners if ahead or len(runners) > 1 else ())
        ]
        self._most = len(runners) + ahead
        for thread in self._threads:
            thread.start()

    @property
    def together(self) -> int:
        """See `Pool.together`. They take no longer than results are kept back.

        With threads, several batches run at a time instead, or wait for a GPU.
        """
        served = self._switch.current
        if self._threads or served.model is self._apart:
            return 1
        return max(min(int(MAX_DELAY / self._took), served.together), 1)

    def submit(self, batch: MicroBatch) -> None:
        """See `Pool.submit`."""
        if self._threads:
            number = self._flights.depart(batch, lambda: self._most)
            self._waiting.put((number, batch, self._switch.take()))
            return
        served, number = self._switch.take(), self._flights.next_number()
        try:
            result = self._answer(number, batch, served)
        except OutputsDiffer:
            if batch.events <= self._max_events:
                raise
            self._apart = served.model
            first, *others = batch.split(self._max_events)
            # Each number needs a result: the write thread commits no offset behind a batch without one.
            self._results.keep(self._answer(number, first, served))
            for part in others:
                self._results.keep(self._answer(self._flights.next_number(), part, served))
        else:
            if result.seconds:
                self._took = result.seconds / max(batch.events / self._max_events, 1)
            self._results.keep(result)
        finally:
            self._switch.release(served)

    def _answer(self, number: int, batch: MicroBatch, served: ServedModel) -> BatchResult:
        return self._runners[0].answer(number, batch, served.slots[0])

    def flush(self) -> None:
        """See `Pool.flush`."""
        self._results.flush()

    def wait_for_one(self) -> bool:
        """See `Pool.wait_for_one`."""
        return bool(self._threads) and self._flights.wait_below(lambda: len(self._threads))

    def settle(self) -> None:
        """See `Pool.settle`."""
        self._flights.settle()

    def switch_to(self, model: Opened) -> None:
        """See `Pool.switch_to`."""
        self._switch.switch_to(self._served_as(model))

    def is_in_use(self, model: Opened) -> bool:
        """See `Pool.is_in_use`."""
        return any(served.model is model for served in self._switch.in_use())

    def close(self) -> None:
        """End the threads after their current batches. Waits up to 1 s, because a model may hang."""
        self._results.flush()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(SHUTDOWN_TIMEOUT / len(self._threads))

    def _run(self, at: int, runner: Runner) -> None:
        try:
            while (departure := self._waiting.get()) is not None:
                number, batch, served = departure
                result = runner.answer(number, batch, served.slots[at])
                self._switch.release(served)
                self._flights.land(result)
        except BaseException as error:
            self._fail(error)
