"""The writing stage: hands results to the sink and checkpoints them. One thread."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty

from millstream.consumers.errors import EventRefused, OffsetsRewound, TransactionAborted
from millstream.consumers.events import Barrier, BatchResult, NextOffsets, ResultQueue
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import InFlightBudget
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.sink.watermark import Watermark

log = logging.getLogger(__name__)

# Under backlog, the pause between two checkpoints lasts this many times as long as the last checkpoint took, because nothing is
# written during one. It lasts at most this many intervals.
CHECKPOINT_SPACING = 8


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """When what was written is made to count."""

    every: float  # seconds between two
    part: float  # of what the worker may hold, after which one is due earlier, so that the worker never waits for room
    publish: bool  # whether readers see results at a checkpoint only, and not at once


class Writer:
    """Takes answered micro-batches from `answers`, writes them as they come, and says what is acknowledged.

    A barrier is answered when all that came before it is acknowledged; None ends the stage at once.
    """

    def __init__(
        self,
        answers: ResultQueue,
        *,
        sink: Sink,
        budget: InFlightBudget,
        assignment: Assignment,
        checkpoints: Checkpoints,
        window: BatchWindow,
        offer: Callable[[BatchResult, NextOffsets], object] | None = None,
    ) -> None:
        """Args:
        answers: what to write.
        sink: where to.
        budget: told of records that are done.
        assignment: told the offsets up to which everything is delivered; and that what was read since the last checkpoint is
            to be read again, when a transaction was aborted or the client gave records twice.
        checkpoints: when one is due.
        window: told how long micro-batches take from being closed, and when their results can be read.
        offer: called with each result that is checkpointed, for the shadows.
        """
        self._answers = answers
        self._sink = sink
        self._budget = budget
        self._assignment = assignment
        self._checkpoints = checkpoints
        self._watermark: Watermark[tuple[BatchResult, NextOffsets]] = Watermark()
        self._unsafe = False  # whether anything was written since the last checkpoint
        self._ends: NextOffsets = {}  # below the watermark, since the last checkpoint; with their
        self._records = 0
        self._bytes = 0
        self._window = window
        self._unread: list[float] = []  # when the micro-batches were closed that nobody can read yet
        self._offer = offer
        self._fresh: list[tuple[BatchResult, NextOffsets]] = []  # for the shadows
        self._began = time.monotonic()  # when the last checkpoint did: after a pause the next one is at once
        self._took = 0.0  # seconds of that
        self._since = 0.0  # when the first result was written that it does not cover
        self._due = 0.0  # when the next one is, seconds on the monotonic clock

    def run(self) -> None:
        """Work until `answers` gives None.

        Raises:
            DeliveryFailed, Abandoned: what was written since the last checkpoint may be lost; it was not acknowledged.
        """
        while True:
            try:
                message = self._answers.get(timeout=max(self._due - time.monotonic(), 0.0) if self._unsafe else None)
            except Empty:
                self._checkpoint()
                continue
            if message is None:
                return
            if isinstance(message, Barrier):
                self._checkpoint()
                message.done.set()
            elif isinstance(message, OffsetsRewound):
                self._go_back(message)
            else:
                self._write(message)

    def _write(self, answers: Sequence[BatchResult]) -> None:
        if not self._unsafe:
            self._unsafe, self._since = True, time.monotonic()
        # Full micro-batches, or more that wait to be written.
        backlog = answers[-1].batch.reason != "time" or not self._answers.empty()
        self._due = self._due_at(backlog=backlog)
        try:
            ends = self._sink.write(answers)
        except TransactionAborted as error:
            self._abort(error, answers)
            return
        except EventRefused as refused:
            self._note_done(answers[: refused.batches], refused.ends)
            self._checkpoint()
            raise
        for answered in answers:
            if answered.batch.closed is not None:
                self._unread.append(answered.batch.closed)
                self._window.note_written(time.monotonic() - answered.batch.closed)
        if not self._checkpoints.publish:
            self._report_readable()
        self._note_done(answers, ends)
        full = self._budget.part(self._records, self._bytes) >= self._checkpoints.part
        if full or time.monotonic() >= self._due:
            self._checkpoint()
        elif not backlog:
            self._sink.push()

    def _due_at(self, *, backlog: bool) -> float:
        """When the next checkpoint is: so long after the last one began, or after its end where throughput is what counts.

        A backlog that comes after a pause is not stopped for a checkpoint of its first results.
        """
        every = self._checkpoints.every
        if not backlog:
            return self._began + every
        spaced = self._began + self._took + min(max(CHECKPOINT_SPACING * self._took, every), CHECKPOINT_SPACING * every)
        return max(spaced, self._since + every)

    def _note_done(self, answers: Sequence[BatchResult], ends: NextOffsets) -> None:
        """Results that passed others are written, and not acknowledged before those are too; never where those were dropped.

        `ends` is how far all of these results bring each partition: they depart one after the other, so all of them or none lie
        below the watermark.
        """
        below = [pair for one in answers for pair in self._watermark.done(one.number, (one, ends))]
        for done, written_ends in below:
            its_ends = self._sink.kept(written_ends)
            self._note_ends(its_ends)
            self._records += done.batch.records
            self._bytes += done.batch.bytes
            if self._offer is not None:
                self._fresh.append((done, its_ends))

    def _note_ends(self, ends: NextOffsets) -> None:
        """In a transaction a partition's first epoch stays: with results from before it went it can't count, though back."""
        for partition, (epoch, end) in ends.items():
            before, _ = self._ends.get(partition, (epoch, end))
            if before == epoch or not self._checkpoints.publish:
                self._ends[partition] = epoch, end

    def _checkpoint(self) -> None:
        self._began = time.monotonic()
        if self._checkpoints.publish:
            self._window.note_publication(self._began, self._checkpoints.every)
        try:
            self._sink.checkpoint(self._ends)
        except TransactionAborted as error:
            self._abort(error)
            return
        self._took = time.monotonic() - self._began
        self._assignment.note_delivered(self._ends)
        self._report_readable()
        if self._offer is not None:
            for answered, ends in self._fresh:
                self._offer(answered, ends)
        self._release()

    def _report_readable(self) -> None:
        now = time.monotonic()
        for closed in self._unread:
            self._window.report(now - closed)
        self._unread = []

    def _abort(self, error: TransactionAborted, unwritten: Sequence[BatchResult] = ()) -> None:
        log.warning("the transaction is aborted, its events are read again: %s", error)
        self._sink.abort()
        self._note_done(unwritten, {})
        self._assignment.rewind_wanted.set()  # before nothing is held: a worker that holds nothing may take itself for idle
        self._release()

    def _go_back(self, error: OffsetsRewound) -> None:
        """What came before it is right, and counts; nothing that comes after it is written."""
        log.warning("%s", error)
        self._checkpoint()
        self._sink.drop()
        self._assignment.rewind_wanted.set()

    def _release(self) -> None:
        self._budget.release(self._records, self._bytes)
        self._ends = {}
        self._records = self._bytes = 0
        self._fresh = []
        self._unread = []
        self._unsafe = False
