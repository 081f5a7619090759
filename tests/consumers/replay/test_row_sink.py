"""What a replay's sink stores: rows and reasons, all of a checkpoint or nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.comparison.rows import id_hash
from millstream.consumers.errors import TransactionAborted
from millstream.consumers.events import BatchResult, Rejection
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.replay.answers import Answering
from millstream.consumers.replay.folder import ReplayFolder
from millstream.consumers.replay.row_sink import RowSink
from tests.consumers.in_memory import EPOCHS, GivenAssignment, answered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.events import NextOffsets


class Topic:
    """Takes results, and aborts the transactions that it is told to."""

    def __init__(self, aborted: int = 0) -> None:
        self.aborted = aborted
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def write(self, _answers: Sequence[BatchResult]) -> NextOffsets:
        self.calls.append("write")
        return {}

    def push(self) -> None: ...

    def checkpoint(self, _ends: NextOffsets) -> None:
        self.calls.append("checkpoint")
        if self.aborted:
            self.aborted -= 1
            raise TransactionAborted("no")

    def abort(self) -> None:
        self.calls.append("abort")


def sink_on(folder: Path, topic: Any = None, assignment: Assignment | None = None) -> RowSink:
    own = assignment or GivenAssignment(EPOCHS)
    sink = RowSink(ReplayFolder(folder), Answering("y", None, None), topic=topic, assignment=own)
    sink.start()
    return sink


def result(kinds: str, start: int = 0) -> BatchResult:
    """Of a block; the model rejects the last event."""
    whole = answered(kinds, start)
    rows = whole.rows[:-1]
    outputs = {"y": np.linspace(0.1, 0.4, len(rows), dtype=np.float32)}
    return whole._replace(
        outputs=outputs, rows=rows, rejected={len(rows): Rejection("model_rejected", "no")}, seconds=0.002
    )


def test_checkpoint_stores_rows_reasons_and_offsets(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    ends = sink.write([result("eretee"), result("ee", 6)])
    assert ends == {("in", 0): (1, 8)}
    assert sink.stored.answered == 0
    sink.checkpoint(ends)
    assert sink.stored == ReplayFolder(tmp_path).progress()
    assert (sink.stored.answered, sink.stored.offsets) == (4, {("in", 0): 8})
    assert sink.stored.rejected == Counter(undecodable=1, model_rejected=2)
    assert sink.stored.examples == {"undecodable": "in/0@1: no", "model_rejected": "in/0@5: no"}
    rows = np.concatenate(list(ReplayFolder(tmp_path).rows()))
    assert rows["id"].tolist() == [id_hash(name) for name in ("0", "2", "4", "6")]
    assert rows["time"].tolist() == [0, 2, 4, 6]
    assert rows["ms"].tolist() == [2.0] * 4
    np.testing.assert_allclose(rows["score"], [0.1, 0.25, 0.4, 0.1], atol=1e-6)
    sink.checkpoint({})  # nothing came
    assert sink.stored.chunks == 1


def test_aborted_transaction_leaves_nothing_of_its_rows(tmp_path: Path) -> None:
    topic = Topic(aborted=1)
    assignment = Assignment()
    assignment.add(EPOCHS)
    sink = sink_on(tmp_path, topic, assignment)
    ends = sink.write([result("eee")])
    with pytest.raises(TransactionAborted):
        sink.checkpoint(ends)
    sink.abort()
    assert ReplayFolder(tmp_path).pending() is None
    assert ReplayFolder(tmp_path).progress().chunks == 0
    assert sink.write([result("eee", 3)]) == {}  # it was read before the abort, so it is read again
    assignment.renew()
    sink.checkpoint(sink.write([under(assignment, result("eee"))]))
    assert (sink.stored.answered, sink.stored.rejected) == (2, Counter(model_rejected=1))
    assert topic.calls == ["start", "write", "checkpoint", "abort", "write", "write", "checkpoint"]


def under(assignment: Assignment, found: BatchResult) -> BatchResult:
    """The result of records that were read under the epochs of now."""
    [part] = found.batch.parts
    now = part._replace(block=replace(part.block, epochs=assignment.epochs))
    return found._replace(batch=found.batch._replace(parts=(now,)))


def test_batch_of_records_before_and_after_an_abort_keeps_those_after_it(tmp_path: Path) -> None:
    assignment = Assignment()
    assignment.add(EPOCHS)
    sink = sink_on(tmp_path, None, assignment)
    before = result("ere")
    sink.abort()
    assignment.renew()
    after = under(assignment, result("ete", 3))
    both = after._replace(
        batch=after.batch._replace(parts=(*before.batch.parts, *after.batch.parts)),
        outputs={"y": np.array([0.1, 0.2, 0.3], np.float32)},
        rows=np.array([0, 1, 2]),
        rejected={3: Rejection("model_rejected", "no")},
    )
    ends = sink.write([both])
    assert ends == {("in", 0): (2, 6)}
    sink.checkpoint(ends)
    assert (sink.stored.answered, sink.stored.rejected) == (1, Counter(model_rejected=1))
    [rows] = ReplayFolder(tmp_path).rows()
    assert rows["id"].tolist() == [id_hash("3")]
    assert rows["score"].tolist() == [pytest.approx(0.3)]


def test_next_run_goes_on_behind_what_is_stored(tmp_path: Path) -> None:
    first = sink_on(tmp_path)
    first.checkpoint(first.write([result("eee")]))
    second = sink_on(tmp_path)
    assert second.begun.offsets == second.stored.offsets == {("in", 0): 3}
    second.checkpoint(second.write([result("eee", 3)]))
    assert [len(rows) for rows in ReplayFolder(tmp_path).rows()] == [2, 2]
