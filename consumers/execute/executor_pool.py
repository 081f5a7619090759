"""Micro-batches on their way through executors: one at a time, or several in flight; results leave in the pipeline's order."""

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
    """Runs micro-batches, one a thread, and hands their results over. One thread calls it.

    A single runner with nothing `ahead` runs in the thread of the caller: to hand a small batch over costs more than to run it
    on the same cores. For the same reason it hands over the results of a quick model together (`ResultBuffer`).
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
        runners: one a thread.
        results: where they go.
        ahead: batches that may wait for a runner, so that it has the next one at once while the caller makes more.
        ordering: which results may pass others.
        abandon: set when waiting for a runner must end.
        fail: called, by a runner's thread, with what ended it.
        """
        self._runners = runners
        self._results = results
        self._abandon = abandon
        self._fail = fail
        self._departed = 0
        self._changed = threading.Condition()
        self._flying: ReorderBuffer[BatchResult] = ReorderBuffer(ordering)
        self._by_key = ordering == "key"
        self._running = 0  # those that wait for a runner too
        self._waiting: SimpleQueue[tuple[int, MicroBatch] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=(runner,), name=f"executor-{at}", daemon=True)
            for at, runner in enumerate(runners if ahead or len(runners) > 1 else ())
        ]
        self._most = len(runners) + ahead
        for thread in self._threads:
            thread.start()

    def submit(self, batch: MicroBatch) -> None:
        """Run a batch; waits until there is room for it, and for the result where the runner has the caller's thread.

        The results may be kept: call `flush` once nothing more is to be dispatched for now.

        Raises:
            Abandoned: told to give up.
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
        """Hand over the results that were kept."""
        self._results.flush()

    def wait_for_one(self) -> bool:
        """Wait until a runner is free; whether there was anything to wait for. Raises Abandoned."""
        with self._changed:
            busy = bool(self._threads) and self._running >= len(self._threads)
            if busy:
                self._await(lambda: self._running < len(self._threads))
            return busy

    def settle(self) -> None:
        """Wait until every batch is answered, and its result handed over. Raises Abandoned."""
        self._results.flush()
        with self._changed:
            self._await(lambda: not self._flying)

    def close(self) -> None:
        """End the threads, each after what it runs; a model that never returns is not waited for."""
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
                    # Released under the lock: what leaves the order first must be first in the queue too.
                    for released in self._flying.complete(answered.number, answered):
                        self._results.pass_on(released)
                    self._running -= 1
                    self._changed.notify_all()
        except BaseException as error:
            self._fail(error)
