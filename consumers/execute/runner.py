"""Runs one micro-batch: leaves out expired events, waits through an outage, and isolates bad events."""

import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, MicroBatch, Rejection
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.observability import metrics as m
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.inference.executors.interface import Inputs, Tensors

# Deadlines that look like seconds since 1970: from 1990 to 2100. As milliseconds, they are in January or February of 1970.
LIKE_SECONDS = range(631_152_000, 4_102_444_800)


class Runner:
    """Runs micro-batches on one executor. One thread calls it."""

    def __init__(
        self,
        isolation: BisectingExecutor,
        *,
        max_events: int,
        watchdog: Watchdog,
        retry: Retry,
        is_outdated: Callable[[MicroBatch], bool],
        abandon: threading.Event,
        metrics: m.Metrics,
    ) -> None:
        """Args:
        isolation: runs the model.
        max_events: most events of a batch.
        watchdog: ends the worker if the model hangs.
        retry: waits during an outage of the executor.
        is_outdated: whether no result of a batch would be written. Such a batch does not run.
        abandon: set when no more batches are to run.
        metrics: where to count.
        """
        self._isolation = isolation
        self._max_events = max_events
        self._watchdog = watchdog
        self._retry = retry
        self._is_outdated = is_outdated
        self._abandon = abandon
        self._took = 0.0  # seconds that the model took for the last batch
        self._metrics = metrics

    def answer(self, number: int, batch: MicroBatch) -> BatchResult:
        """Run the batch. During an outage of the executor, it waits.

        Args:
            number: of the batch, in order of submission.
            batch: what to run.

        Raises:
            Abandoned: the worker must not wait any longer.
        """
        if self._abandon.is_set():
            raise Abandoned(f"{batch.events} events and more were not run in time")
        self._metrics.count(m.BATCHES, 1, batch.reason)
        self._metrics.observe(m.STAGE_SECONDS, time.monotonic() - batch.arrived, "queue")
        events = batch.events
        if not events or self._is_outdated(batch):
            return _answered(number, batch, {}, np.empty(0, np.int64), {})
        self._metrics.observe(m.BATCH_EVENTS, events)
        self._metrics.observe(m.BATCH_FILL, events / self._max_events)
        expired = batch.expired(_now())
        tensors = batch.tensors()
        if not len(expired):
            outputs, rows, rejected = self._run(tensors, batch)
            return _answered(number, batch, outputs, rows, rejected, self._took)
        late = {row: _expired(batch, row) for row in expired.tolist()}
        kept = np.delete(np.arange(events), expired)
        if not len(kept):
            return _answered(number, batch, {}, kept, late)
        outputs, rows, rejected = self._run({name: array[kept] for name, array in tensors.items()}, batch)
        rejected = {int(kept[row]): why for row, why in rejected.items()}
        return _answered(number, batch, outputs, kept[rows], {**rejected, **late}, self._took)

    def _run(self, tensors: Inputs, batch: MicroBatch) -> tuple[Tensors, npt.NDArray[np.int64], dict[int, Rejection]]:
        started = time.perf_counter()
        topic, partition, offset = batch.position
        name = f"a micro-batch in the model, the first event at offset {offset} of {topic}/{partition} (limits.batch_timeout),"
        try:
            return self._retry.call(
                "executor",
                partial(self._watchdog.watched, name, partial(self._isolation.run, tensors)),
                lambda _error: batch.position,
            )
        finally:
            self._took = time.perf_counter() - started
            self._metrics.observe(m.STAGE_SECONDS, self._took, "infer")


def _answered(
    number: int,
    batch: MicroBatch,
    outputs: Tensors,
    rows: npt.NDArray[np.int64],
    rejected: dict[int, Rejection],
    took: float = 0.0,
) -> BatchResult:
    times = np.empty(len(rows), np.int64)
    times.fill(_now())
    return BatchResult(number, batch, outputs, rows, rejected, times, took)


def _expired(batch: MicroBatch, row: int) -> Rejection:
    deadline = int(batch.deadlines()[row])
    error = f"its deadline was {_now() - deadline} ms before the model would have run it"
    if deadline in LIKE_SECONDS:
        error += f": {deadline} looks like seconds, but deadlines are milliseconds since 1970 (UTC). Multiply by 1000"
    return Rejection("expired", error)


def _now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
