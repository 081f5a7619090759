"""The sink of a replay: stores rows in the folder and, by option, writes predictions to a topic in the same checkpoint."""

from __future__ import annotations

import hashlib
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.replay.folder import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import BatchResult, DecodedBatch, NextOffsets, Rejection
    from millstream.consumers.flow.assignment import Assignment
    from millstream.consumers.replay.answers import Answering, Rows
    from millstream.consumers.replay.folder import ReplayFolder
    from millstream.consumers.sink.writer import ResultSink

_EXAMPLE_LENGTH = 300  # characters of an example's error


class RowSink:
    """Keeps what the model answered as rows until a checkpoint stores them. One thread calls it."""

    def __init__(
        self,
        folder: ReplayFolder,
        answering: Answering,
        *,
        topic: ResultSink | None,
        assignment: Assignment,
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        """Args:
        folder: stores the rows.
        answering: turns outputs into rows.
        topic: writes the predictions, too, with exactly once; None: they go nowhere.
        assignment: tells which results are still to be stored.
        on_start: called once the topic's producer has ended an earlier transaction, and before anything is read.
        """
        self._folder = folder
        self._answering = answering
        self._topic = topic
        self._assignment = assignment
        self._on_start = on_start
        self._rows: list[Rows] = []
        self._part = Progress()
        self.stored = Progress()  # all checkpoints so far
        self.begun = Progress()  # those of earlier runs

    def start(self) -> None:
        """See `ResultSink`."""
        if self._topic is not None:
            self._topic.start()
        self._on_start()
        self.stored, self.begun = self._folder.progress(), self._folder.progress()

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        """See `ResultSink`."""
        ends: NextOffsets = {}
        for answered in map(self._kept, answers):
            if len(answered.rows):
                self._rows.append(self._rows_of(answered))
            self._count(answered)
            for part in answered.batch.parts:
                ends |= {place: (part.block.epochs[place], end) for place, end in part.next_offsets().items()}
        if self._topic is not None:
            self._topic.write(answers)
        return ends

    def _kept(self, answered: BatchResult) -> BatchResult:
        """The result without events that were read before an abort, for they are read again. All partitions go back at once."""
        keep = [self._assignment.current(part.block.epochs) != set() for part in answered.batch.parts]
        if all(keep):
            return answered
        events = np.repeat(keep, [part.last - part.first for part in answered.batch.parts])
        places = events.cumsum() - 1  # new numbers of the events that stay
        mine = events[answered.rows]
        return answered._replace(
            batch=answered.batch._replace(parts=tuple(compress(answered.batch.parts, keep))),
            outputs={name: values[mine] for name, values in answered.outputs.items()},
            rows=places[answered.rows[mine]],
            rejected={int(places[event]): why for event, why in answered.rejected.items() if events[event]},
        )

    def push(self) -> None:
        """See `ResultSink`."""

    def catch_up(self) -> None:
        """See `ResultSink`."""

    def say_all(self) -> None:
        """See `ResultSink`. Nothing is held back."""

    def checkpoint(self, ends: NextOffsets) -> None:
        """See `ResultSink`. The order of the steps is that of the module `folder`."""
        if not ends:
            return
        self._part.offsets = {place: end for place, (_, end) in ends.items()}
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, self._answering.row_type)
        self._folder.write_pending(rows, self._part)
        if self._topic is not None:
            self._topic.checkpoint(ends)
        self._folder.keep_pending(self.stored.chunks)
        self.stored.add(self._part)
        self._forget()

    def abort(self) -> None:
        """See `ResultSink`."""
        self._folder.drop_pending()
        self._assignment.drop_read()
        if self._topic is not None:
            self._topic.abort()
        self._forget()

    def _forget(self) -> None:
        self._rows, self._part = [], Progress()

    def _rows_of(self, answered: BatchResult) -> Rows:
        batch, events = answered.batch, answered.rows
        ids, times = batch.ids(), batch.event_times()
        rows = np.zeros(len(events), self._answering.row_type)
        rows["id"] = hashes(list(ids if len(events) == len(ids) else ids.take(events)))
        rows["time"] = times[events]
        rows["ms"] = answered.seconds * 1000
        self._answering.fill(rows, answered.outputs)
        return rows

    def _count(self, answered: BatchResult) -> None:
        part, batch = self._part, answered.batch
        part.answered += len(answered.rows)
        first = 0
        for each in batch.parts:
            last = first + each.last - each.first
            part.left_out += len(each.left_out())
            mine = {
                int(each.block.good[each.first + event - first]): why
                for event, why in answered.rejected.items()
                if first <= event < last
            }
            for row, why in (each.rejected() | mine).items():
                part.rejected[why.reason] += 1
                part.examples.setdefault(why.reason, _example(each.block, row, why))
            first = last


def hashes(ids: Sequence[str]) -> list[int]:
    """As `comparison.rows.id_hash`, of many event IDs."""
    blake = hashlib.blake2b
    return [int.from_bytes(blake(each.encode(), digest_size=8).digest(), "little") for each in ids]


def _example(block: DecodedBatch, row: int, why: Rejection) -> str:
    topic, number = block.partition(row)
    return f"{topic}/{number}@{int(block.offsets[row])}: {why.error}"[:_EXAMPLE_LENGTH]
