"""The write thread: passes results to the sink, and decides when to make a checkpoint."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Protocol

from millstream.consumers.errors import EventRefused, OffsetsRewound, PartitionsMoved, TransactionAborted
from millstream.consumers.events import Barrier, BatchResult, NextOffsets, ResultQueue
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import InFlightBudget
from millstream.consumers.sink.watermark import Watermark
from millstream.pipeline.client_trial import LONGEST_TRANSACTION_MS

log = logging.getLogger(__name__)

# Under backlog, the pause between two checkpoints lasts this many times as long as the last checkpoint took, because nothing is
# written during one. It lasts at most this many intervals, and with a long interval at most so many seconds: the broker ends a
# transaction that is open for too long.
CHECKPOINT_SPACING = 8
LONGEST_PAUSE = LONGEST_TRANSACTION_MS / 1000
IDLE_INTERVAL = 1.0  # seconds between two calls of `catch_up` while no results come


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """When checkpoints are due."""

    every: float  # seconds between two checkpoints
    part: float  # share of the in-flight limit at which a checkpoint is due at once, so that the worker never waits for room
    publish: bool  # whether readers see results only after a checkpoint
    rest: float  # seconds after a checkpoint in which nothing can be written


class ResultSink(Protocol):
    """Writes results in the order of its calls: `Sink`, or that of a replay. One thread calls it."""

    def start(self) -> None:
        """Get ready. May wait for the broker. Raises DeliveryFailed, Abandoned."""

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        """Write results. Returns how far each partition is done with them. Raises as `Sink.write`."""

    def push(self) -> None:
        """Send at once what is held back for a fuller request."""

    def catch_up(self) -> None:
        """Log what was held back so that the log doesn't fill. Called while no results come."""

    def say_all(self) -> None:
        """Log what was held back, at the end."""

    def checkpoint(self, ends: NextOffsets) -> None:
        """Make all results written so far final, together with these offsets. Raises as `Delivery.checkpoint`."""

    def abort(self) -> None:
        """Take back all results since the last checkpoint."""


class Shadows(Protocol):
    """Gets final results, to compare them. One thread calls it, and never waits for it."""

    def offer(self, answered: BatchResult, ends: NextOffsets) -> None:
        """Take a final result, or skip it."""

    def catch_up(self) -> None:
        """As `ResultSink.catch_up`."""

    def say_all(self) -> None:
        """As `ResultSink.say_all`."""


class Writer:
    """Takes results from `answers`, writes them, and notes the delivered offsets.

    It signals a barrier once all results before it are final. None ends it at once.
    """

    def __init__(
        self,
        answers: ResultQueue,
        *,
        sink: ResultSink,
        budget: InFlightBudget,
        assignment: Assignment,
        checkpoints: Checkpoints,
        window: BatchWindow,
        shadows: Shadows | None = None,
    ) -> None:
        """Args:
        answers: the results.
        sink: writes them.
        budget: counts the events in flight; events with final results leave it.
        assignment: gets the delivered offsets. After an aborted transaction, or if the client delivered records twice, it gets
            the request to go back to the committed offsets.
        checkpoints: when checkpoints are due.
        window: gets how long results take after their batch was closed, and when readers can see them.
        shadows: get each final result.
        """
        self._answers = answers
        self._sink = sink
        self._budget = budget
        self._assignment = assignment
        self._checkpoints = checkpoints
        self._watermark: Watermark[tuple[BatchResult, NextOffsets]] = Watermark()
        self._unsafe = False  # whether anything was written since the last checkpoint
        self._ends: NextOffsets = {}  # next offsets of the results below the watermark, since the last checkpoint; with their
        self._records = 0
        self._bytes = 0
        self._window = window
        self._unread: list[float] = []  # when the batches were closed whose results readers can't see yet
        self._shadows = shadows
        self._fresh: list[tuple[BatchResult, NextOffsets]] = []  # written results below the watermark, for the shadows
        self._began = time.monotonic()  # when the last checkpoint began
        self._took = 0.0  # seconds that the last checkpoint took
        self._since = 0.0  # when the first result after the last checkpoint was written
        self._due = 0.0  # when the next checkpoint is due, seconds on the monotonic clock

    def run(self) -> None:
        """Work until `answers` gives None.

        Raises:
            DeliveryFailed, Abandoned: the results since the last checkpoint are not final, and may be lost.
        """
        while True:
            try:
                message = self._answers.get(
                    timeout=max(self._due - time.monotonic(), 0.0) if self._unsafe else IDLE_INTERVAL
                )
            except Empty:
                if self._unsafe:
                    self._checkpoint()
                else:
                    self._catch_up()
                continue
            if message is None:
                self._say_all()
                return
            if isinstance(message, Barrier):
                self._checkpoint()
                message.done.set()
            elif isinstance(message, OffsetsRewound):
                self._go_back(message)
            else:
                self._write(message)

    def _catch_up(self) -> None:
        self._sink.catch_up()
        if self._shadows is not None:
            self._shadows.catch_up()

    def _say_all(self) -> None:
        self._sink.say_all()
        if self._shadows is not None:
            self._shadows.say_all()

    def _write(self, answers: Sequence[BatchResult]) -> None:
        if not self._unsafe:
            self._unsafe, self._since = True, time.monotonic()
        # Signs of a backlog: batches that were not closed by age, or more results in the queue.
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
                self._window.note_written(answered.batch.closed, time.monotonic())
        if not self._checkpoints.publish:
            self._report_readable()
        self._note_done(answers, ends)
        full = self._budget.part(self._records, self._bytes) >= self._checkpoints.part
        if full or time.monotonic() >= self._due:
            self._checkpoint()
        elif not backlog:
            self._sink.push()

    def _due_at(self, *, backlog: bool) -> float:
        """When the next checkpoint is due.

        Without a backlog, it is one interval after the beginning of the last one. Under backlog, the pause after the last one
        grows with its duration; and after an idle time, the checkpoint is at least one interval after the first result.
        """
        every = self._checkpoints.every
        if not backlog:
            return self._began + every
        longest = max(min(CHECKPOINT_SPACING * every, LONGEST_PAUSE), every)
        spaced = self._began + self._took + min(max(CHECKPOINT_SPACING * self._took, every), longest)
        return max(spaced, self._since + every)

    def _note_done(self, answers: Sequence[BatchResult], ends: NextOffsets) -> None:
        """Note written results. Their offsets count once all earlier results are written too.

        `ends` are the next offsets after all these results. They have consecutive numbers, so either all of them are below the
        watermark or none is.
        """
        below = [pair for one in answers for pair in self._watermark.done(one.number, (one, ends))]
        last_ends: NextOffsets | None = None
        for done, written_ends in below:
            # All results of a message have the same object. Which offsets are kept changes in this thread only, not here.
            if written_ends is not last_ends:
                last_ends, its_ends = written_ends, self._assignment.kept(written_ends)
                self._note_ends(its_ends)
            self._records += done.batch.records
            self._bytes += done.batch.bytes
            if self._shadows is not None:
                self._fresh.append((done, its_ends))

    def _note_ends(self, ends: NextOffsets) -> None:
        """Add next offsets. In a transaction, a partition keeps its first epoch: if it was lost in between, the commit fails."""
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
        ended = time.monotonic()
        self._took = ended - self._began
        if self._checkpoints.publish:
            self._window.note_published(ended, self._checkpoints.rest)
        self._assignment.note_delivered(self._ends)
        self._report_readable()
        if self._shadows is not None:
            for answered, ends in self._fresh:
                self._shadows.offer(answered, ends)
        self._release()

    def _report_readable(self) -> None:
        now = time.monotonic()
        for closed in self._unread:
            self._window.report(now - closed)
        self._unread = []

    def _abort(self, error: TransactionAborted, unwritten: Sequence[BatchResult] = ()) -> None:
        level = logging.INFO if isinstance(error, PartitionsMoved) else logging.WARNING
        log.log(
            level,
            "the transaction is aborted, its events are read again (no action is needed, unless it repeats): %s",
            error,
        )
        self._sink.abort()
        self._note_done(unwritten, {})
        self._assignment.rewind_wanted.set()  # before `_release`: a worker without events in flight may conclude that it is idle
        self._release()

    def _go_back(self, error: OffsetsRewound) -> None:
        """Make the results before it final, drop those after it, and go back to the committed offsets."""
        log.warning("%s", error)
        self._checkpoint()
        self._assignment.drop_read()
        self._assignment.rewind_wanted.set()

    def _release(self) -> None:
        self._assignment.note_final(self._watermark.first)
        self._budget.release(self._records, self._bytes)
        self._ends = {}
        self._records = self._bytes = 0
        self._fresh = []
        self._unread = []
        self._unsafe = False
