"""Counts the micro-batches in flight, and passes their results on in the order that `ordering` demands."""

import threading
from collections.abc import Callable

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.reorder_buffer import Ordering, ReorderBuffer
from millstream.consumers.execute.result_buffer import ResultBuffer

POLL_INTERVAL = 0.1  # seconds between two looks at whether to give up


class Flights:
    """The micro-batches that are submitted and whose results are not passed on yet.

    One thread submits batches and waits. Any thread may `land` results.
    """

    def __init__(self, results: ResultBuffer, *, ordering: Ordering, abandon: threading.Event) -> None:
        """Args:
        results: takes the results.
        ordering: which results may overtake others.
        abandon: set when the worker must not wait any longer.
        """
        self.results = results
        self._abandon = abandon
        self._changed = threading.Condition()
        self._flying: ReorderBuffer[BatchResult] = ReorderBuffer(ordering)
        self._by_key = ordering == "key"
        self._departed = 0
        self._running = 0  # batches that run or wait to run

    def next_number(self) -> int:
        """The number of the next batch, in the order of submission."""
        number, self._departed = self._departed, self._departed + 1
        return number

    def depart(self, batch: MicroBatch, most: Callable[[], int]) -> int:
        """Wait until fewer than `most` batches run, then add this one. Returns its number. Raises Abandoned."""
        number = self.next_number()
        with self._changed:
            self._await(lambda: self._running < most())
            self._running += 1
            self._flying.submit(number, batch.keys() if self._by_key else ())
        return number

    def land(self, answered: BatchResult) -> None:
        """Add a batch's result, and pass on all results that may go on now."""
        with self._changed:
            # Passed on under the lock, so that results reach the queue in the order of their release.
            for released in self._flying.complete(answered.number, answered):
                self.results.pass_on(released)
            self._running -= 1
            self._changed.notify_all()

    def wait_below(self, most: Callable[[], int]) -> bool:
        """Wait until fewer than `most` batches run. Returns whether it had to wait. Raises Abandoned."""
        with self._changed:
            busy = self._running >= most()
            if busy:
                self._await(lambda: self._running < most())
            return busy

    def settle(self) -> None:
        """Wait until the results of all batches are passed on. Raises Abandoned."""
        self.results.flush()
        with self._changed:
            self._await(lambda: not self._flying)

    def _await(self, reached: Callable[[], bool]) -> None:
        while not self._changed.wait_for(reached, POLL_INTERVAL):
            if self._abandon.is_set():
                raise Abandoned(f"{len(self._flying)} micro-batches in flight were not answered in time")
