"""Runs shadow models on a sample of the events after the primary, and writes the comparisons."""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from millstream.consumers.events import BatchResult, MicroBatch, NextOffsets
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import (
    COMPARISONS,
    SHADOW_FAILED,
    SHADOW_SECONDS,
    SHADOW_SKIPPED,
    Metrics,
)
from millstream.consumers.resilience.leaving import LibraryThread
from millstream.consumers.shadow.sampling import sampled
from millstream.consumers.shadow.shadow_fields import ShadowFields
from millstream.consumers.shadow.shed_warnings import Call, ShedWarnings
from millstream.consumers.sink.delivery import BestEffort
from millstream.inference.executors.interface import Tensors
from millstream.inference.features import to_tensors
from millstream.inference.model_id import ModelId
from millstream.inference.signature import TensorInput
from millstream.schemas.arrays import Ints
from millstream.schemas.comparisons import ComparisonEncoder, PrimaryRows
from millstream.schemas.table import Table

log = logging.getLogger(__name__)

NICE_INCREMENT = 10  # lowers the thread's priority, so that the primary gets most of a busy core
POLL_INTERVAL = 0.01  # seconds between two checks whether a batch's offsets are committed
COMMIT_TIMEOUT = 30.0  # seconds after which a batch without committed offsets is skipped
SHUTDOWN_TIMEOUT = 5.0  # seconds that an ending worker waits for its shadows

Comparison = tuple[str, bytes]
"""The event ID, which is the record's key, and the record's value."""


class Compared(NamedTuple):
    """What a shadow made of a batch."""

    comparisons: list[Comparison]  # one for each event of its sample
    failed: int  # those that have the shadow's error in place of its outputs


class Shadow:
    """A shadow: a model version, and the rate of the sample that it runs on. One thread calls it."""

    def __init__(
        self,
        name: str,
        isolation: BisectingExecutor,
        model: ModelId,
        fields: ShadowFields,
        inputs: Sequence[TensorInput],
        encoder: ComparisonEncoder,
        *,
        sample_rate: float,
        allow_nan: bool,
    ) -> None:
        """Args:
        name: its name in the pipeline file. Samples of different names are independent.
        isolation: runs the model.
        model: what it runs. Events that the same version answered are not compared.
        fields: reads the fields that the model needs.
        inputs: the model's.
        encoder: encodes the comparisons.
        sample_rate: the share of the keys in the sample.
        allow_nan: whether a feature may be NaN or infinite.
        """
        self.name = name
        self.sample_rate = sample_rate
        self._isolation = isolation
        self._model = model
        self._fields = fields
        self._inputs = inputs
        self._encoder = encoder
        self._allow_nan = allow_nan

    def comparable(self, answered: BatchResult) -> int:
        """How many of these events another version than its own answered."""
        models = answered.row_models
        return sum(count for at, count in models.counts(len(answered.rows)) if models.models[at] != self._model)

    def compare(self, answered: BatchResult, among: Ints) -> Compared:
        """Run the shadow on a sample of these events. `among`: rows of events with outputs of the primary, ascending."""
        # In a rollout of the shadow's version, or behind an alias: it would be compared with itself.
        among = among[answered.row_models.others_than(self._model, np.searchsorted(answered.rows, among))]
        ids = list(answered.batch.ids())
        keys = [key for part in answered.batch.parts for key in part.event_keys]
        mask = sampled(
            [keys[row] for row in among.tolist()], [ids[row] for row in among.tolist()], self.sample_rate, self.name
        )
        rows = among[mask]
        if not len(rows):
            return Compared([], 0)
        times = answered.batch.event_times()[rows]
        outputs, errors, took = self._answer(answered.batch, rows, times)
        chosen = [ids[row] for row in rows.tolist()]
        at = np.searchsorted(answered.rows, rows)
        primary = PrimaryRows(
            answered.row_models.take(at),
            {name: array[at] for name, array in answered.outputs.items()},
            answered.seconds * 1000,
        )
        names = [keys[row] for row in rows.tolist()]
        try:
            values = self._encoder.encode(chosen, names, times, primary, outputs, took, errors)
        except Exception as error:  # for example, outputs that a comparison can't hold
            errors = dict.fromkeys(range(len(rows)), str(error))
            values = self._encoder.encode(chosen, names, times, primary, None, took, errors)
        return Compared(list(zip(chosen, values, strict=True)), len(errors))

    def _answer(self, batch: MicroBatch, rows: Ints, times: Ints) -> tuple[Tensors | None, dict[int, str], float]:
        """The outputs of events that succeed, in order, the errors of the others by their place in `rows`, and the ms taken."""
        started = time.perf_counter()
        try:
            table, events, errors = self._fields.read(batch, rows)
            started = time.perf_counter()  # the primary's time has no decoding in it either
            outputs, failed = self._run(table, times[events]) if len(events) else (None, {})
            errors |= {int(events[row]): error for row, error in failed.items()}
        except Exception as error:  # any error is the shadow's fault, and must not reach the primary
            outputs, errors = None, dict.fromkeys(range(len(rows)), f"{type(error).__name__}: {error}")
        return outputs, errors, (time.perf_counter() - started) * 1000

    def _run(self, table: Table, times: Ints) -> tuple[Tensors | None, dict[int, str]]:
        """The outputs of events that succeed, in order, and the errors of the others by row of the table."""
        fitted = to_tensors(table, self._inputs, allow_nan=self._allow_nan, event_times=times)
        errors = {unfit.row: unfit.error for unfit in fitted.unfit}
        if not len(fitted.rows):
            return None, errors
        outputs, _, rejected = self._isolation.run(fitted.tensors)
        errors |= {int(fitted.rows[row]): why.error for row, why in rejected.items()}
        return outputs or None, errors


def count_compared(metrics: Metrics, shadow: str, compared: Compared) -> None:
    """Count the comparisons of a batch."""
    metrics.count(COMPARISONS, len(compared.comparisons), shadow)
    if compared.failed:
        metrics.count(SHADOW_FAILED, compared.failed, shadow)


class ShadowThread:
    """Runs shadows in a thread of its own. The primary never waits for them: under load, batches are skipped.

    A comparison is written only after the event's offset is committed. So an event that is read again gets only one comparison.
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
        shadows: run one after another.
        publisher: writes the comparisons.
        topic: of the comparisons.
        max_load: the share of the time that shadows may run. They pause for the rest.
        room: most events in the queue.
        busy: returns whether the primary has a backlog, so that batches are skipped.
        assignment: has the committed offsets.
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
        self.warnings = ShedWarnings()  # only the write thread uses it
        self._queue: SimpleQueue[tuple[BatchResult, NextOffsets] | None] = SimpleQueue()
        self._waiting = 0  # events in the queue
        self._call: Call | None = None
        self._unfinished: deque[BatchResult] = deque()  # batches that run or are queued, in their order
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._over = False  # whether what was not compared is counted as skipped, and nothing is written any more
        self._thread = LibraryThread(self._run, "shadow")
        self._thread.start()

    def offer(self, answered: BatchResult, ends: NextOffsets) -> None:
        """Queue a batch whose predictions are final, or skip it. Returns at once. The write thread calls it."""
        events = len(answered.rows)
        if not events:
            self.catch_up()
            return
        with self._lock:
            full = self._waiting + events > max(self._room, events)
            shed = full or self._busy()
            if not shed:
                self._waiting += events
                self._unfinished.append(answered)
                self._queue.put((answered, ends))
        if not shed:
            self.catch_up()
        elif left := self._leave_out(answered, "shed"):
            self.warnings.warn(left, self._call, full=full)

    def catch_up(self) -> None:
        """Log the shed events that are not told yet, once their time has come. The write thread calls it."""
        self.warnings.catch_up()

    def say_all(self) -> None:
        """Log the shed events that are not told yet, at the end. The write thread calls it."""
        self.warnings.say_all()

    @property
    def at_work(self) -> bool:
        """Whether batches are queued or run."""
        return bool(self._unfinished)

    def close(self) -> None:
        """Compare the queued batches for a short time, and count the others as skipped."""
        self._ending.set()
        self._queue.put(None)
        self._thread.join(SHUTDOWN_TIMEOUT)
        with self._lock:
            self._over, left = True, list(self._unfinished)
        for answered in left:
            self._leave_out(answered, "ended")
        self._publisher.close(SHUTDOWN_TIMEOUT)

    def _run(self) -> None:
        if sys.platform == "linux":  # each thread has its own priority there
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE_INCREMENT)
        while (task := self._queue.get()) is not None:
            answered, ends = task
            with self._lock:
                if self._over:
                    return
                self._waiting -= len(answered.rows)
            try:
                self._compare(answered, ends)
            except Exception:
                log.exception("a batch was not compared")
                self._leave_out(answered, "failed")
            with self._lock:
                self._unfinished.popleft()

    def _compare(self, answered: BatchResult, ends: NextOffsets) -> None:
        if not self._wait_committed(ends):
            self._leave_out(answered, "uncommitted")
            return
        started = time.perf_counter()
        for shadow in self._shadows:
            self._call = Call(shadow.name, time.monotonic())
            compared = shadow.compare(answered, answered.rows)
            self._call = None
            if self._over:
                return
            for event_id, value in compared.comparisons:
                self._publisher.produce(self._topic, value, event_id.encode())
            count_compared(self._metrics, shadow.name, compared)
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

    def _leave_out(self, answered: BatchResult, why: str) -> int:
        """Count a batch's events as skipped. Returns their number; with several shadows, the largest of theirs."""
        most = 0
        for shadow in self._shadows:
            events = shadow.comparable(answered)
            # An estimate: to find out which events are in the sample would cost time.
            self._metrics.count(SHADOW_SKIPPED, events * shadow.sample_rate, shadow.name, why)
            most = max(most, events)
        return most
