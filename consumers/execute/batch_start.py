"""What is done with a micro-batch before it runs and after: leave events out, count, and make the result."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import NEVER, BatchResult, MicroBatch, Rejection
from millstream.consumers.execute.bisecting import Result
from millstream.consumers.observability import metrics as m
from millstream.inference.executors.interface import ANSWERED_BY, Inputs
from millstream.inference.model_id import ModelId
from millstream.schemas.rollout_choices import RowChoices
from millstream.schemas.times import LIKE_SECONDS


@dataclass(slots=True)
class Work:
    """The events of a micro-batch that run. Nothing changes it; to check that (`frozen`) would take a microsecond each time."""

    batch: MicroBatch
    inputs: Inputs  # of the events that run
    events: int  # that run; 0: all are too late or left out
    kept: npt.NDArray[np.int64] | None  # their rows in the batch; None: all run
    late: dict[int, Rejection]  # by row of the batch
    timeless: bool = False  # whether no event has a deadline

    def result(
        self,
        number: int,
        result: Result,
        seconds: float,
        models: tuple[ModelId, ...],
        variants: tuple[str, ...] | None = None,
        choices: RowChoices | None = None,
    ) -> BatchResult:
        """The batch's result.

        Args:
            number: of the batch.
            result: of the events that ran.
            seconds: that the model took.
            models: that the executor runs, see `ANSWERED_BY`.
            variants: of the models, in a rollout.
            choices: of the events with outputs, in a rollout.
        """
        outputs, rows, rejected = result
        answered_by = outputs.pop(ANSWERED_BY, None)
        if self.kept is not None:
            rows = self.kept[rows]
            rejected = {int(self.kept[row]): why for row, why in rejected.items()} | self.late
        times = np.empty(len(rows), np.int64)
        times.fill(_now())
        return BatchResult(
            number, self.batch, outputs, rows, rejected, times, models, answered_by, seconds, variants, choices
        )

    def seconds_left(self) -> float | None:
        """Seconds until the last deadline of these events; None: an event has none."""
        if self.timeless:
            return None
        last = self.batch.last_deadline()
        return None if last == NEVER else max((last - _now()) / 1000, 0.0)


class BatchStart:
    """Decides which events of a micro-batch run. Threads may share it."""

    def __init__(
        self,
        *,
        max_events: int,
        admit: Callable[[int, MicroBatch], MicroBatch],
        is_outdated: Callable[[MicroBatch], bool],
        metrics: m.Metrics,
    ) -> None:
        """Args:
        max_events: most events of a batch.
        admit: called with a batch and its number when it starts. Returns it without the events that must not start.
        is_outdated: whether no result of a batch would be written. Such a batch does not run.
        metrics: where to count.
        """
        self.admit = admit
        self._max_events = max_events
        self._is_outdated = is_outdated
        self._metrics = metrics
        self._note_wait = metrics.observer(m.STAGE_SECONDS, "queue")
        self._note_events = metrics.observer(m.BATCH_EVENTS)
        self._note_fill = metrics.observer(m.BATCH_FILL)

    def begin(self, batch: MicroBatch) -> Work | None:
        """Count a batch that is admitted, and return what `work_of` does."""
        sizes = sizes_of(batch.events, self._max_events)
        self._metrics.count(m.BATCHES, len(sizes), batch.reason)
        self._note_wait(time.monotonic() - batch.arrived)
        work = self.work_of(batch)
        if work is not None:
            for size in sizes_of(work.events + len(work.late), self._max_events):
                self._note_events(size)
                self._note_fill(size / self._max_events)
        return work

    def is_over(self, work: Work) -> bool:
        """Whether no event needs the model any more: all are too late, or the batch is outdated."""
        return self._is_outdated(work.batch) or work.seconds_left() == 0

    def still(self, work: Work) -> Work | None:
        """What `work_of` returns now, if it returned this work before."""
        if work.timeless:
            return None if self._is_outdated(work.batch) else work
        return self.work_of(work.batch)

    def work_of(self, batch: MicroBatch) -> Work | None:
        """The events that run now; None: none, because the batch has none, is outdated, or all are left out."""
        events = batch.events
        if not events or self._is_outdated(batch):
            return None
        tensors = batch.tensors()
        if batch.timeless and not batch.is_cut:
            return Work(batch, tensors, events, None, {}, timeless=True)
        expired, left_out = batch.expired(_now()), batch.left_out()
        if len(left_out) == events:
            return None
        if not len(expired) and not len(left_out):
            return Work(batch, tensors, events, None, {})
        kept = np.delete(np.arange(events), np.union1d(expired, left_out))
        late = {row: _expired(batch, row) for row in np.setdiff1d(expired, left_out).tolist()}
        return Work(batch, {name: array[kept] for name, array in tensors.items()}, len(kept), kept, late)


def sizes_of(events: int, max_events: int) -> list[int]:
    """The sizes of the micro-batches that run as one; a batch without events is one, too."""
    full, rest = divmod(events, max_events)
    return [max_events] * full + [rest] * (rest > 0 or not full)


def no_result() -> Result:
    """The result of no events."""
    return {}, np.empty(0, np.int64), {}


def not_run(number: int, batch: MicroBatch) -> BatchResult:
    """The result of a batch that does not run."""
    return BatchResult(number, batch, *no_result(), np.empty(0, np.int64), ())


def _expired(batch: MicroBatch, row: int) -> Rejection:
    deadline = int(batch.deadlines()[row])
    error = f"its deadline was {_now() - deadline} ms before the model would have run it"
    if deadline in LIKE_SECONDS:
        error += f": {deadline} looks like seconds, but deadlines are milliseconds since 1970 (UTC). Multiply by 1000"
    return Rejection("expired", error)


def _now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
