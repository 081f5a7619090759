"""Shadow models: they answer a sample of the events after the primary has, and only comparisons come of it."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import BatchResult, NextOffsets
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import COMPARISONS, SHADOW_SECONDS, SHADOW_SKIPPED, Metrics
from millstream.consumers.shadow.sampling import sampled
from millstream.consumers.sink.delivery import BestEffort
from millstream.inference.executors.interface import Tensors
from millstream.inference.features import to_tensors
from millstream.inference.signature import TensorInput
from millstream.schemas.comparisons import ComparisonEncoder
from millstream.schemas.table import Table

log = logging.getLogger(__name__)

NICE_INCREMENT = 10  # how much less of a busy core than the primary a shadow gets
POLL_INTERVAL = 0.01  # seconds between two looks whether a batch's offsets are committed
COMMIT_TIMEOUT = 30.0  # seconds after which a batch whose offsets are not committed is let go
SHUTDOWN_TIMEOUT = 5.0  # seconds that a worker that ends gives its shadows

Comparison = tuple[str, bytes]
"""The event's id, which is the record's key, and the record's value."""


class Shadow:
    """One shadow: a model version, and the sample of the events that it answers. One thread calls it."""

    def __init__(
        self,
        name: str,
        isolation: BisectingExecutor,
        inputs: Sequence[TensorInput],
        encoder: ComparisonEncoder,
        *,
        sample_rate: float,
        allow_nan: bool,
    ) -> None:
        """Args:
        name: what the pipeline file calls it; samples of different names are independent.
        isolation: runs the model.
        inputs: of the model, filled from the fields that the blocks keep for it.
        encoder: writes the comparisons.
        sample_rate: share of the events, by key.
        allow_nan: whether a feature may be NaN or infinite.
        """
        self.name = name
        self.sample_rate = sample_rate
        self._isolation = isolation
        self._inputs = inputs
        self._encoder = encoder
        self._allow_nan = allow_nan

    def compare(self, answered: BatchResult, among: npt.NDArray[np.int64]) -> list[Comparison]:
        """Answer the sampled ones of these events of the batch, ascending, each of which the primary has answered."""
        ids = list(answered.batch.ids())
        keys = [key for part in answered.batch.parts for key in part.event_keys]
        mask = sampled(
            [keys[row] for row in among.tolist()], [ids[row] for row in among.tolist()], self.sample_rate, self.name
        )
        rows = among[mask]
        if not len(rows):
            return []
        started = time.perf_counter()
        outputs, errors = self._answer(_features(answered, rows))
        took = (time.perf_counter() - started) * 1000
        chosen = [ids[row] for row in rows.tolist()]
        times = answered.batch.event_times()[rows]
        at = np.searchsorted(answered.rows, rows)
        primary = {name: array[at] for name, array in answered.outputs.items()}
        names = [keys[row] for row in rows.tolist()]
        before = answered.seconds * 1000
        try:
            values = self._encoder.encode(chosen, names, times, primary, before, outputs, took, errors)
        except Exception as error:  # as above
            failed = dict.fromkeys(range(len(rows)), str(error))
            values = self._encoder.encode(chosen, names, times, primary, before, None, took, failed)
        return list(zip(chosen, values, strict=True))

    def _answer(self, table: Table) -> tuple[Tensors | None, dict[int, str]]:
        """The outputs of the events that have any, in order, and the errors of the others by row."""
        try:
            fitted = to_tensors(table, self._inputs, allow_nan=self._allow_nan)
            errors = {unfit.row: unfit.error for unfit in fitted.unfit}
            if not len(fitted.rows):
                return None, errors
            outputs, _, rejected = self._isolation.run(fitted.tensors)
        except Exception as error:  # whatever it is, it is the shadow's, and no event's
            return None, dict.fromkeys(range(len(table)), f"{type(error).__name__}: {error}")
        errors |= {int(fitted.rows[row]): why.error for row, why in rejected.items()}
        return outputs or None, errors


def _features(answered: BatchResult, rows: npt.NDArray[np.int64]) -> Table:
    """The fields that the blocks keep for shadows, of these events of the batch, ascending."""
    kept: list[Table] = []
    first = 0  # event of the part
    for part in answered.batch.parts:
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + part.last - part.first)]
        if part.block.features is not None:
            kept.append(part.block.features.take(own - first + part.first))
        first += part.last - part.first
    return Table.concat(kept)


class ShadowThread:
    """Runs shadows in a thread of its own, behind the primary: it never waits for them, and they are left out first.

    A comparison is written only when the offset of its event is committed: an event that is read again was not compared before.
    """

    def __init__(
        self,
        shadows: Sequence[Shadow],
        publisher: BestEffort,
        *,
        topic: str,
        max_load: float,
        room: int,
        busy: Callable[[], bool],
        assignment: Assignment,
        metrics: Metrics,
    ) -> None:
        """Args:
        shadows: run one after the other.
        publisher: writes the comparisons.
        topic: where to.
        max_load: share of the time that shadows may take; the rest they pause.
        room: events that may wait.
        busy: whether the primary has so much to do that nothing is to be compared.
        assignment: says up to where events are committed.
        metrics: where to count.
        """
        self._shadows = shadows
        self._publisher = publisher
        self._topic = topic
        self._max_load = max_load
        self._room = room
        self._busy = busy
        self._assignment = assignment
        self._metrics = metrics
        self._queue: SimpleQueue[tuple[BatchResult, NextOffsets] | None] = SimpleQueue()
        self._waiting = 0  # events in the queue
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    def offer(self, answered: BatchResult, ends: NextOffsets) -> None:
        """Take a batch whose predictions are written, or leave it out; returns at once. The writer's thread calls it."""
        events = len(answered.rows)
        if not events:
            return
        with self._lock:
            full = self._waiting + events > max(self._room, events)
            if not full and not self._busy():
                self._waiting += events
                self._queue.put((answered, ends))
                return
        self._leave_out(events, "shed")

    def close(self) -> None:
        """Compare what still waits, for a short time, and count the rest."""
        self._ending.set()
        self._queue.put(None)
        self._thread.join(SHUTDOWN_TIMEOUT)
        self._publisher.close(SHUTDOWN_TIMEOUT)

    def _run(self) -> None:
        if sys.platform == "linux":  # where a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE_INCREMENT)
        until = 0.0
        while (task := self._queue.get()) is not None:
            answered, ends = task
            with self._lock:
                self._waiting -= len(answered.rows)
            if self._ending.is_set():
                until = until or time.monotonic() + SHUTDOWN_TIMEOUT
                if time.monotonic() >= until:
                    self._leave_out(len(answered.rows), "ended")
                    continue
            try:
                self._compare(answered, ends)
            except Exception:
                log.exception("a batch was not compared")
                self._leave_out(len(answered.rows), "failed")

    def _compare(self, answered: BatchResult, ends: NextOffsets) -> None:
        if not self._wait_committed(ends):
            self._leave_out(len(answered.rows), "uncommitted")
            return
        started = time.perf_counter()
        for shadow in self._shadows:
            compared = shadow.compare(answered, answered.rows)
            for event_id, value in compared:
                self._publisher.produce(self._topic, value, event_id.encode())
            self._metrics.count(COMPARISONS, len(compared), shadow.name)
        took = time.perf_counter() - started
        self._metrics.observe(SHADOW_SECONDS, took)
        self._publisher.serve()
        self._ending.wait(took * (1 / self._max_load - 1))

    def _wait_committed(self, ends: NextOffsets) -> bool:
        until = time.monotonic() + (SHUTDOWN_TIMEOUT if self._ending.is_set() else COMMIT_TIMEOUT)
        while not (committed := self._assignment.is_committed(ends)):
            if committed is None or time.monotonic() >= until:
                return False
            time.sleep(POLL_INTERVAL)
        return True

    def _leave_out(self, events: int, why: str) -> None:
        for shadow in self._shadows:
            # Which of them are in the sample is not asked: leaving out must cost nothing.
            self._metrics.count(SHADOW_SKIPPED, events * shadow.sample_rate, shadow.name, why)
