"""Runs micro-batches on executor slots, and passes on the results in the order that `ordering` demands."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.reorder_buffer import Ordering, ReorderBuffer
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner

SHUTDOWN_TIMEOUT = 1.0  # seconds for all threads to end
POLL_INTERVAL = 0.1  # seconds between two looks at whether to give up


class ExecutorPool:
    """Runs micro-batches, one per thread at a time, and passes their results on. One thread calls it.

    A single runner without batches `ahead` runs in the caller's thread: to hand a small batch to another thread costs more than
    to run it. For the same reason, the results of a fast model are passed on together (`ResultBuffer`).
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        results: ResultBuffer,
        *,
        ahead: int = 0,
        ordering: Ordering,
        abandon: threading.Event,
        fail: Callable[[BaseException], object],
    ) -> None:
        """Args:
        runners: each gets a thread.
        results: takes the results.
        ahead: batches that may wait for a runner, so that a runner that is free has the next one at once.
        ordering: which results may overtake others.
        abandon: set when the worker must not wait any longer.
        fail: called in a runner's thread with the error that ended it.
        """
        self._runners = runners
        self._results = results
        self._abandon = abandon
        self._fail = fail
        self._departed = 0
        self._changed = threading.Condition()
        self._flying: ReorderBuffer[BatchResult] = ReorderBuffer(ordering)
        self._by_key = ordering == "key"
        self._running = 0  # batches that run or wait for a runner
        self._waiting: SimpleQueue[tuple[int, MicroBatch] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=(runner,), name=f"executor-{at}", daemon=True)
            for at, runner in enumerate(runners if ahead or len(runners) > 1 else ())
        ]
        self._most = len(runners) + ahead
        for thread in self._threads:
            thread.start()

    def submit(self, batch: MicroBatch) -> None:
        """Run a batch, or queue it once there is room.

        Results may be kept back: call `flush` when there are no more batches for now.

        Raises:
            Abandoned: the worker must not wait any longer.
        """
        number, self._departed = self._departed, self._departed + 1
        if not self._threads:
            self._results.keep(self._runners[0].answer(number, batch))
            return
        with self._changed:
            self._await(lambda: self._running < self._most)
            self._running += 1
            self._flying.submit(number, batch.keys() if self._by_key else ())
        self._waiting.put((number, batch))

    def flush(self) -> None:
        """Pass on the results that were kept back."""
        self._results.flush()

    def wait_for_one(self) -> bool:
        """Wait until a runner is free. Returns whether it had to wait. Raises Abandoned."""
        with self._changed:
            busy = bool(self._threads) and self._running >= len(self._threads)
            if busy:
                self._await(lambda: self._running < len(self._threads))
            return busy

    def settle(self) -> None:
        """Wait until the results of all batches are passed on. Raises Abandoned."""
        self._results.flush()
        with self._changed:
            self._await(lambda: not self._flying)

    def close(self) -> None:
        """End the threads after their current batches. Waits up to 1 s, because a model may hang."""
        self._results.flush()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(SHUTDOWN_TIMEOUT / len(self._threads))

    def _await(self, reached: Callable[[], bool]) -> None:
        while not self._changed.wait_for(reached, POLL_INTERVAL):
            if self._abandon.is_set():
                raise Abandoned(f"{len(self._flying)} micro-batches in flight were not answered in time")

    def _run(self, runner: Runner) -> None:
        try:
            while (departure := self._waiting.get()) is not None:
                answered = runner.answer(*departure)
                with self._changed:
                    # Passed on under the lock, so that results reach the queue in the order of their release.
                    for released in self._flying.complete(answered.number, answered):
                        self._results.pass_on(released)
                    self._running -= 1
                    self._changed.notify_all()
        except BaseException as error:
            self._fail(error)
