"""Counts the micro-batches in flight, and passes their results on in the order that `ordering` demands."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

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
        self._wanted: Callable[[], bool] | None = None  # what the submitting thread waits for; None: nothing

    def next_number(self) -> int:
        """The number of the next batch, in the order of submission."""
        number, self._departed = self._departed, self._departed + 1
        return number

    def depart(self, batch: MicroBatch, most: Callable[[], int], *, refill: int = 1) -> int:
        """Wait until fewer than `most` batches run, then add this one. Returns its number.

        Args:
            batch: the batch.
            most: returns how many batches may run.
            refill: if it has to wait, it waits until so many more could run. The caller then adds several at a time, which costs
                less than to wake up for each.

        Raises:
            Abandoned: the worker must not wait any longer.
        """
        number = self.next_number()
        with self._changed:
            if self._running >= most():
                self._await(lambda: self._running <= max(most() - refill, 0))
            self._running += 1
            self._flying.submit(number, batch.keys() if self._by_key else ())
        return number

    def land(self, *results: BatchResult) -> None:
        """Add the results of batches, and pass on all results that may go on now."""
        with self._changed:
            for run in _consecutive(self._flying.complete({result.number: result for result in results})):
                self.results.pass_on(
                    run
                )  # under the lock, so that results reach the queue in the order of their release
            self._running -= len(results)
            if self._wanted is not None and self._wanted():
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
        self._wanted = reached
        while not self._changed.wait_for(reached, POLL_INTERVAL):
            if self._abandon.is_set():
                raise Abandoned(f"{len(self._flying)} micro-batches in flight were not answered in time")
        self._wanted = None


def _consecutive(results: Sequence[BatchResult]) -> Iterator[list[BatchResult]]:
    """Split results into runs of consecutive numbers.

    The write thread notes one next offset for each partition of a message. If an earlier batch were still in flight between two
    of its results, this offset would be committed before that batch has a result.
    """
    for _, run in groupby(enumerate(results), lambda place: place[1].number - place[0]):
        yield [result for _, result in run]
