"""The sink of workers for dedicated shadows. They run the primary and the shadows, and write only comparisons."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import BatchResult, NextOffsets
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import STAGE_SECONDS, Metrics
from millstream.consumers.shadow.shadow_thread import Shadow, count_compared
from millstream.consumers.sink.dead_letter_sink import RECORD_OVERHEAD, record_bytes
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.result_sink import Outputs, Sink


class ComparisonSink(Sink):
    """Writes comparisons instead of predictions. It writes no dead letters: the primary's own workers do that."""

    def __init__(
        self,
        delivery: Delivery,
        outputs: Outputs,
        shadows: Sequence[Shadow],
        *,
        topic: str,
        max_bytes: int,
        leave_out: Callable[[], object],
        assignment: Assignment,
        metrics: Metrics,
    ) -> None:
        """Args:
        delivery: takes the records.
        outputs: the primary's.
        shadows: compared with it.
        topic: of the comparisons.
        max_bytes: of the largest record that this topic accepts.
        leave_out: called for each comparison that is too large for the topic. It is not written.
        assignment: the partitions that this worker has now.
        metrics: where to count.
        """
        super().__init__(delivery, outputs, assignment=assignment, metrics=metrics)
        self._shadows = shadows
        self._topic = topic
        self._max_bytes = max_bytes
        self._leave_out = leave_out

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        """See `Sink.write`."""
        ends: NextOffsets = {}
        for answered in answers:
            ends |= self._write(answered)
        return ends

    def _write(self, answered: BatchResult) -> NextOffsets:
        started = time.perf_counter()
        among = self._among(answered)
        for shadow in self._shadows:
            compared = shadow.compare(answered, among)
            for event_id, value in compared.comparisons:
                key = event_id.encode()
                # The broker would refuse it each time, and the worker would never get past this event.
                if record_bytes(value, key, (), RECORD_OVERHEAD) > self._max_bytes:
                    self._leave_out()
                    continue
                self._delivery.produce(self._topic, value, key, None)
            count_compared(self._metrics, shadow.name, compared)
        ends: NextOffsets = {}
        for part in answered.batch.parts:
            ends |= self._ends_of(part, self._assignment.current(part.block.epochs))
        self._metrics.observe(STAGE_SECONDS, time.perf_counter() - started, "produce")
        return ends

    def _among(self, answered: BatchResult) -> npt.NDArray[np.int64]:
        """The rows of events that have outputs of the primary, and whose partition this worker still has."""
        keep: list[npt.NDArray[np.bool_]] = []
        for part in answered.batch.parts:
            ours = self._assignment.current(part.block.epochs)
            all_ours = np.full(len(part.block.offsets), True) if ours is None else part.block.is_of(ours)
            keep.append(all_ours[part.block.good[part.first : part.last]])
        kept: npt.NDArray[np.bool_] = np.concatenate(keep)
        return answered.rows[kept[answered.rows]]
