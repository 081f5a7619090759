"""Micro-batches on their way through executors: one at a time, or several in flight; results leave in the pipeline's order."""

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import Answered, Answers, MicroBatch
from millstream.consumers.execute.inflight import InFlight, Ordering
from millstream.consumers.execute.runner import Runner

# Seconds for which a result is kept for those right behind it. Where a call of the model takes longer it is handed over at once.
TOGETHER = 0.006
JOIN = 1.0  # seconds for all lanes to end
LOOK = 0.1  # seconds between two looks at whether to give up


class Lanes:
    """Runs micro-batches, one a lane, and gives their results to `answers`. One thread calls it.

    A single lane with nothing `ahead` is the caller's own thread: handing a small batch to another costs more than running it
    on the same cores. For the same reason it hands over the results of a quick model together where there is a backlog, those
    of about 6 ms. A result waits for one call of the model at most, and for no outage.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        answers: Answers,
        *,
        ahead: int = 0,
        ordering: Ordering,
        abandon: threading.Event,
        fail: Callable[[BaseException], object],
    ) -> None:
        """Args:
        runners: one a lane.
        answers: where results go.
        ahead: batches that may wait for a lane, so that it has the next one at once while the caller makes more.
        ordering: which results may pass others.
        abandon: set when waiting for a lane must end.
        fail: called, by a lane's thread, with what ended it.
        """
        self._runners = runners
        self._answers = answers
        self._abandon = abandon
        self._fail = fail
        self._departed = 0
        self._kept: list[Answered] = []  # of the single lane, not handed over yet
        self._kept_since = 0.0  # seconds on the monotonic clock
        self._changed = threading.Condition()
        self._flying: InFlight[Answered] = InFlight(ordering)
        self._by_key = ordering == "key"
        self._running = 0  # those that wait for a lane too
        self._waiting: SimpleQueue[tuple[int, MicroBatch] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=(runner,), name=f"lane-{at}", daemon=True)
            for at, runner in enumerate(runners if ahead or len(runners) > 1 else ())
        ]
        self._most = len(runners) + ahead
        for thread in self._threads:
            thread.start()

    def dispatch(self, batch: MicroBatch) -> None:
        """Run a batch; waits until there is room for it, and for the result where the lane is the caller's thread.

        The results may be kept: call `flush` once nothing more is to be dispatched for now.

        Raises:
            Abandoned: told to give up.
        """
        number, self._departed = self._departed, self._departed + 1
        if not self._threads:
            self._keep(self._runners[0].answer(number, batch))
            return
        with self._changed:
            self._await(lambda: self._running < self._most)
            self._running += 1
            self._flying.depart(number, batch.keys() if self._by_key else ())
        self._waiting.put((number, batch))

    def _keep(self, answered: Answered) -> None:
        now = time.monotonic()
        if not self._kept:
            self._kept_since = now
        self._kept.append(answered)
        if now - self._kept_since >= TOGETHER or answered.seconds >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Hand over what was kept."""
        if self._kept:
            self._answers.put(self._kept)
            self._kept = []

    def wait_for_one(self) -> bool:
        """Wait until a lane is free; whether there was anything to wait for. Raises Abandoned."""
        with self._changed:
            busy = bool(self._threads) and self._running >= len(self._threads)
            if busy:
                self._await(lambda: self._running < len(self._threads))
            return busy

    def settle(self) -> None:
        """Wait until every batch is answered, and its result handed over. Raises Abandoned."""
        self.flush()
        with self._changed:
            self._await(lambda: not self._flying)

    def close(self) -> None:
        """End the lanes' threads, each after what it runs; a model that never returns is not waited for."""
        self.flush()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(JOIN / len(self._threads))

    def _await(self, reached: Callable[[], bool]) -> None:
        while not self._changed.wait_for(reached, LOOK):
            if self._abandon.is_set():
                raise Abandoned(f"{len(self._flying)} micro-batches in flight were not answered in time")

    def _run(self, runner: Runner) -> None:
        try:
            while (departure := self._waiting.get()) is not None:
                answered = runner.answer(*departure)
                with self._changed:
                    # Released under the lock: what leaves the order first must be first in the queue too.
                    for released in self._flying.arrive(answered.number, answered):
                        self._answers.put([released])
                    self._running -= 1
                    self._changed.notify_all()
        except BaseException as error:
            self._fail(error)
