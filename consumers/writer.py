"""The writing stage: hands results to the sink and checkpoints them. One thread."""

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from consumers.errors import TransactionAborted
from consumers.events import Answered, Barrier, Ends
from consumers.held import Held
from consumers.sink import Sink

log = logging.getLogger(__name__)


class Writer:
    """Takes answered micro-batches from `answers`, in arrival order, writes them, and says what is acknowledged.

    A barrier is answered when all that came before it is acknowledged; None ends the stage at once.
    """

    def __init__(
        self,
        answers: "SimpleQueue[Answered | Barrier | None]",
        *,
        sink: Sink,
        held: Held,
        acknowledge: Callable[[Ends], None],
        read_again: Callable[[], None],
        checkpoint_every: float,
        checkpoint_records: int,
    ) -> None:
        """Args:
        answers: what to write.
        sink: where to.
        held: told of records that are done.
        acknowledge: called with the offsets up to which everything is written.
        read_again: called when a transaction was aborted: what was read since the last checkpoint is to be read again.
        checkpoint_every: seconds between two checkpoints.
        checkpoint_records: records written after which one is due earlier, so that the worker never waits for room.
        """
        self._answers = answers
        self._sink = sink
        self._held = held
        self._acknowledge = acknowledge
        self._read_again = read_again
        self._every = checkpoint_every
        self._most_records = checkpoint_records
        self._records = 0  # written since the last checkpoint
        self._bytes = 0
        self._due = 0.0  # seconds on the monotonic clock

    def run(self) -> None:
        """Work until `answers` gives None.

        Raises:
            DeliveryFailed, Abandoned: what was written since the last checkpoint may be lost; it was not acknowledged.
        """
        while True:
            try:
                message = self._answers.get(timeout=max(self._due - time.monotonic(), 0.0) if self._records else None)
            except Empty:
                self._checkpoint()
                continue
            if message is None:
                return
            if isinstance(message, Barrier):
                self._checkpoint()
                message.done.set()
            else:
                self._write(message)

    def _write(self, answered: Answered) -> None:
        if not self._records:
            self._due = time.monotonic() + self._every
        self._records += answered.batch.records
        self._bytes += answered.batch.bytes
        try:
            self._sink.write(answered)
        except TransactionAborted as error:
            self._abort(error)
            return
        if self._records >= self._most_records or time.monotonic() >= self._due:
            self._checkpoint()

    def _checkpoint(self) -> None:
        try:
            ends = self._sink.checkpoint()
        except TransactionAborted as error:
            self._abort(error)
            return
        self._acknowledge(ends)
        self._release()

    def _abort(self, error: TransactionAborted) -> None:
        log.warning("the transaction is aborted, its events are read again: %s", error)
        self._sink.abort()
        self._release()
        self._read_again()

    def _release(self) -> None:
        self._held.release(self._records, self._bytes)
        self._records = self._bytes = 0
