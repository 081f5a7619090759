"""The worker's loop over a source and a sink in memory."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.errors import TransactionAborted
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.in_flight import MEASURED_COST
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import RECORDS_READ, Metrics
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker.build import Serving, connect
from millstream.consumers.worker.shared import Settings, shared_of
from millstream.inference.executors.opened import OpenedModel
from tests.consumers.in_memory import MODEL, SIGNATURE, NegatingExecutor, NumberDecoder, polled
from tests.consumers.measured import measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.consumers.events import BatchResult, FetchedBatch, NextOffsets
    from millstream.consumers.record_types import Partition

PARTITION = ("in", 0)
RECORDS = 40
SETTINGS = Settings(
    batch=Limits(10, 1 << 20, 0.01),
    in_flight_events=1000,
    in_flight_bytes=1 << 20,
    weight=MEASURED_COST,
    commit_every=0.05,
    exactly_once=True,
    ordering="partition",
    weights=None,
    allow_nan_outputs=False,
    batch_timeout=30.0,
    drain_timeout=30.0,
    until_idle=True,
)


class CommittingAssignment(Assignment):
    """Tells the source up to where it is committed."""

    source: MemorySource

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        self.source.committed = max(self.source.committed, offsets.get(PARTITION, 0))


class MemorySource:
    """One partition of so many records, and the offset up to which it is committed."""

    def __init__(self, assignment: CommittingAssignment) -> None:
        self.assigned_once = True
        self.lost_uncommitted = 0
        self.topics = frozenset({"in"})
        self.assignment = assignment
        assignment.add([PARTITION])
        assignment.source = self
        self.committed = 0
        self.rewinds = 0
        self._next = 0
        self.start_offsets = {PARTITION: 0}

    @property
    def idle(self) -> bool:
        return self._next == RECORDS

    def poll(self, limit: int, timeout: float, _window: object = None) -> FetchedBatch | None:
        count = min(limit, RECORDS - self._next)
        if not count:
            time.sleep(min(timeout, 0.005))
            return None
        found = polled([b"1"] * count, self._next, epochs=self.assignment.epochs)
        self._next += count
        return found

    def rewind(self) -> bool:
        self.rewinds += 1
        self.assignment.renew()
        self._next = self.committed
        return True

    def lag(self, _done: object) -> dict[Any, int]:
        return {}

    def subscribe(self, _before_revoke: object) -> None: ...
    def begin(self) -> None: ...
    def note_committed(self, _offsets: object) -> None: ...
    def pause(self, _topics: object) -> None: ...
    def close(self, _failure: object, _may_wait: object) -> None: ...


class MemorySink:
    """Counts what is committed; the first transactions are aborted."""

    def __init__(self, source: MemorySource, aborted: int) -> None:
        self._source = source
        self._aborted = aborted
        self._open: list[int] = []
        self.committed: list[int] = []  # offsets

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        ends: NextOffsets = {}
        for answered in answers:
            for part in answered.batch.parts:
                if part.block.epochs == self._source.assignment.epochs:
                    self._open += part.block.offsets[part.start : part.stop].tolist()
                    ends[PARTITION] = part.block.epochs[PARTITION], self._open[-1] + 1
        return ends

    def checkpoint(self, _ends: NextOffsets) -> None:
        if self._aborted and self._open:
            self._aborted -= 1
            raise TransactionAborted("the broker took it back")
        self.committed += self._open
        self._open = []

    def abort(self) -> None:
        self._open = []

    def start(self) -> None: ...
    def push(self) -> None: ...
    def say_all(self) -> None: ...


def run_until_idle(aborted: int) -> tuple[bool, MemorySource, MemorySink, Metrics]:
    metrics = Metrics("p")
    made = shared_of(SETTINGS, CrashGuard(3, 100), Health(60.0), metrics)
    shared = replace(made, assignment=CommittingAssignment())
    source = MemorySource(cast("CommittingAssignment", shared.assignment))
    sink = MemorySink(source, aborted)
    decoder = BlockDecoder(NumberDecoder(), EventFields(None, None), SIGNATURE, allow_nan=False)
    worker = connect(
        shared,
        source=cast("Any", source),
        decoder=decoder,
        serving=Serving(OpenedModel(MODEL, [NegatingExecutor()]), 1, 0),
        sink=cast("Any", sink),
        shadows=None,
    )
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(worker.run()), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return ended[0], source, sink, metrics


def test_worker_ends_when_idle_with_everything_committed() -> None:
    drained, source, sink, metrics = run_until_idle(aborted=0)
    assert (drained, source.committed, source.rewinds) == (True, RECORDS, 0)
    assert sink.committed == list(range(RECORDS))
    assert measured(metrics, RECORDS_READ, topic="in") == RECORDS


def test_what_an_aborted_transaction_took_back_is_read_again_before_the_worker_ends() -> None:
    """After the abort nothing is held, and yet nothing is done."""
    drained, source, sink, _ = run_until_idle(aborted=2)
    assert (drained, source.committed, source.rewinds) == (True, RECORDS, 2)
    assert np.array_equal(sink.committed, np.arange(RECORDS))
