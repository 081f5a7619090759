"""The worker's loop over a consumer in memory: what it commits, how carefully it begins, and how it ends."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.errors import (
    Abandoned,
    EventRefused,
    MemoryShort,
    StageFailed,
    TransactionAborted,
    WorkerError,
)
from millstream.consumers.execute.result_buffer import MAX_DELAY
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.health import Health
from millstream.consumers.source import kafka_source
from millstream.consumers.source.crashes import MAX_SUSPECT_EVENTS, CrashGuard
from millstream.consumers.worker import worker as loop
from millstream.consumers.worker.build import Serving, connect
from millstream.consumers.worker.shared import shared_of
from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.opened import OpenedModel
from tests.consumers.in_memory import MODEL, SIGNATURE, NegatingExecutor, NumberDecoder, ended
from tests.consumers.measured import Measured
from tests.consumers.source.fake_consumer import FakeConsumer, failure
from tests.consumers.worker.sources import source_on
from tests.consumers.worker.test_worker import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import BatchResult, NextOffsets
    from millstream.inference.executors.interface import Tensors

A = ("in", 0)
LIMIT = 3  # workers that may end at an offset before its events run few at a time


@pytest.fixture(autouse=True)
def _no_new_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose partitions went waits for new ones before it leaves the group. Here, none come."""
    monkeypatch.setattr(kafka_source, "NO_ASSIGNMENT_AFTER", 0.05)


class ClosingExecutor(NegatingExecutor):
    """Notes that it was closed; `warm` is called in its warm-up."""

    closed = False
    warm: Callable[[], None] = staticmethod(lambda: None)

    def warm_up(self) -> None:
        self.warm()

    def close(self) -> None:
        self.closed = True


class NotingSink:
    """Keeps what it writes and the reasons of what was rejected; raises `failure`, or waits until it may go on."""

    def __init__(self, abandon: threading.Event) -> None:
        self.written: list[int] = []  # offsets
        self.rejected: dict[int, str] = {}  # offset -> reason
        self.failure: BaseException | None = None
        self.may = threading.Event()
        self.may.set()
        self.standing = threading.Event()
        self.gave_up = threading.Event()
        self.aborted = 0
        self._abandon = abandon

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        self.standing.set()
        while not self.may.wait(0.005):
            if self._abandon.is_set():
                self.gave_up.set()
                raise Abandoned("the broker is away")
        if self.failure is not None:
            error, self.failure = self.failure, None
            raise error
        ends: NextOffsets = {}
        for part in (part for one in answers for part in one.batch.parts if part.block.epochs):
            offsets = part.block.offsets
            self.written += offsets[part.start : part.stop].tolist()
            self.rejected |= {int(offsets[row]): why.reason for row, why in part.rejected().items()}
            ends |= {partition: (part.block.epochs[partition], end) for partition, end in part.next_offsets().items()}
        return ends

    def abort(self) -> None:
        self.aborted += 1

    def checkpoint(self, _ends: NextOffsets) -> None: ...
    def start(self) -> None: ...
    def push(self) -> None: ...
    def say_all(self) -> None: ...


class Working(Measured):
    """A worker of one partition, which it has once `assign` is called."""

    def __init__(self, records: int = 0, *, attempts: str = "", drain_timeout: float = 10.0) -> None:
        super().__init__()
        self.consumer = FakeConsumer({A: records})
        self.consumer.committed_offsets[A] = (0, attempts)
        self.executor = ClosingExecutor()
        self.health = Health(60.0)
        settings = replace(
            SETTINGS,
            batch=Limits(100, 1 << 20, 0.0),
            exactly_once=False,
            until_idle=False,
            drain_timeout=drain_timeout,
        )
        shared = shared_of(settings, CrashGuard(LIMIT, 1000), self.health, self.metrics)
        self.sink = NotingSink(shared.ending.abandon)
        source = source_on(self.consumer, shared)
        self.worker = connect(
            shared,
            source=source,
            decoder=BlockDecoder(NumberDecoder(), EventFields(None, None), SIGNATURE, allow_nan=False),
            serving=Serving(OpenedModel(MODEL, [self.executor]), 1, 0),
            sink=cast("Any", self.sink),
            shadows=None,
        )
        self.drained: bool | None = None  # what `run` returned
        self.error: WorkerError | None = None  # what it raised
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.drained = self.worker.run()
        except WorkerError as error:
            self.error = error

    def assign(self) -> Working:
        """Start, and join the group."""
        self.thread.start()
        self.wait_until(lambda: bool(self.consumer.topics))
        self.consumer.assign(A)
        return self

    def wait_until(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 10
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.002)

    def wait_for_offset(self, offset: int) -> None:
        """That is committed."""
        self.wait_until(lambda: self.consumer.committed_offsets[A][0] == offset)

    def stop(self) -> None:
        self.worker.stop()
        assert ended(self.thread)


def test_told_to_stop_it_leaves_the_group_with_everything_committed() -> None:
    working = Working(6).assign()
    working.wait_for_offset(6)
    assert working.health.readiness() == (True, "ready")
    assert working.value(m.READY) == 1
    working.stop()
    assert (working.drained, working.sink.written) == (True, list(range(6)))
    assert working.consumer.closed
    assert working.executor.closed
    assert working.value(m.READY) == 0
    assert working.health.readiness() == (False, "not ready: nothing: the worker ends")


def test_it_finishes_what_it_has_read_before_it_stops() -> None:
    working = Working(6).assign()
    working.sink.may.clear()
    assert working.sink.standing.wait(10)
    working.worker.stop()
    working.sink.may.set()
    assert ended(working.thread)
    assert (working.drained, working.consumer.committed_offsets[A][0]) == (True, 6)


def test_what_is_not_written_within_the_drain_time_is_left_to_the_next_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = Working(6, drain_timeout=0.05)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.stop()
    assert working.drained is False
    assert working.sink.gave_up.is_set(), "what waits for the broker is told to end"
    assert working.consumer.committed_offsets[A][0] == 0
    assert "6 events were not finished within the drain time of 0.05 s" in caplog.text


def test_broker_that_is_away_is_named_as_the_cause_where_the_drain_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = Working(6, drain_timeout=0.05)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.health.broker_away = "Kafka does not answer"
    working.stop()
    assert "6 events were not finished, because no broker answers" in caplog.text
    assert "slow model" not in caplog.text


def test_a_worker_that_stops_has_its_drain_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter))
    worker = Working(drain_timeout=10).worker
    assert not worker.is_over(25), "a revocation that began at 15"
    worker.stop()
    clock[0] = 20
    assert not worker.is_over(25)
    clock[0] = 25
    assert worker.is_over(25), "the revocation's time is over"
    assert not worker.is_over(35), "the drain has the rest of the time"
    clock[0] = 30
    assert worker.is_over(35)


def test_stopped_at_once_it_waits_for_nothing_and_commits_only_what_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = Working(6, drain_timeout=3600)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.worker.stop()
    assert working.worker.in_flight == 6
    working.worker.stop_at_once()
    assert ended(working.thread)
    assert working.drained is False
    assert working.consumer.closed, "it leaves the group"
    assert working.consumer.committed_offsets[A] == (0, ""), "this stop does not count as a crash"
    assert "6 events were not finished: they are not committed, and are read again" in caplog.text


def test_events_in_flight_of_a_worker_that_fails_are_told(caplog: pytest.LogCaptureFixture) -> None:
    working = Working(6)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.worker.fail(WorkerError("the sink is full"))
    assert ended(working.thread)
    assert "6 events were not finished: they are not committed, and are read again" in caplog.text


def test_events_of_lost_partitions_that_wait_for_the_broker_at_the_end_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    working = Working(6)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.consumer.lose(A)
    working.wait_until(lambda: "lost in/0" in caplog.text)
    working.stop()
    assert working.drained is False
    assert (
        "6 events were not finished before their partitions were lost: they are not committed, and are read again"
        in caplog.text
    )


def test_results_whose_offsets_cannot_be_committed_at_the_end_are_told(caplog: pytest.LogCaptureFixture) -> None:
    working = Working(6, drain_timeout=0.05).assign()
    working.wait_for_offset(6)
    working.consumer.logs[A] = 9
    working.consumer.next_failures["commit"] = [failure(KafkaError._WAIT_COORD)] * 1000
    working.wait_until(lambda: len(working.sink.written) == 9)
    working.stop()
    assert working.drained is False
    assert working.consumer.committed_offsets[A][0] == 6
    assert "their offsets could not be committed: the next worker reads these events again" in caplog.text


def test_results_of_partitions_that_are_lost_before_the_commit_are_told_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = Working(6, drain_timeout=3600).assign()
    working.wait_for_offset(6)
    working.consumer.logs[A] = 9
    working.consumer.next_failures["commit"] = [failure(KafkaError._WAIT_COORD)] * 1000
    working.wait_until(lambda: len(working.sink.written) == 9)
    working.consumer.lose(A)
    working.wait_until(lambda: working.value(m.ASSIGNED) == 0)
    working.stop()
    assert working.drained is False
    assert (
        "3 events were not finished before their partitions were lost: they are not committed, and are read again"
        in caplog.text
    )


def test_lost_partitions_whose_events_were_all_committed_do_not_matter_at_the_end() -> None:
    working = Working(6).assign()
    working.wait_for_offset(6)
    working.consumer.lose(A)
    working.wait_until(lambda: working.value(m.ASSIGNED) == 0)
    working.stop()
    assert working.drained is True


def test_worker_whose_model_is_away_is_stopped_before_it_reads() -> None:
    working = Working(6)
    asked = threading.Event()

    def away() -> None:
        asked.set()
        raise ExecutorUnavailable("the model's server does not answer")

    working.executor.warm = away
    working.thread.start()
    assert asked.wait(10)
    assert working.health.waiting_for == "the model's warm-up"
    working.stop()
    assert working.drained is True
    assert working.consumer.topics == []


def test_error_of_a_stage_ends_the_worker_and_stays_counted_against_its_events() -> None:
    working = Working(6)
    working.sink.failure = ZeroDivisionError("division by zero")
    working.assign()
    assert ended(working.thread)
    assert isinstance(working.error, StageFailed)
    assert isinstance(working.error.__cause__, ZeroDivisionError)
    assert working.consumer.closed
    assert working.consumer.committed_offsets[A] == (0, "millstream starts=1 running=0 alone=0")


def test_stage_without_memory_ends_the_worker_with_what_it_was_doing() -> None:
    working = Working(6)
    working.sink.failure = MemoryError()
    working.assign()
    assert ended(working.thread)
    assert isinstance(working.error, MemoryShort)
    assert str(working.error).startswith("memory ran short while the worker wrote results (MemoryError), so it ends.")
    assert working.consumer.closed
    assert working.consumer.committed_offsets[A][0] == 0


def test_event_at_which_the_pipeline_stops_ends_the_worker_with_what_comes_before_committed() -> None:
    working = Working(6)
    refused = EventRefused(A, 2, "undecodable", "no number")
    refused.ends, refused.batches = {A: (1, 2)}, 1
    working.sink.failure = refused
    working.assign()
    assert ended(working.thread)
    assert working.error is refused
    assert working.consumer.committed_offsets[A][0] == 2


def test_partition_that_goes_is_finished_and_committed_first() -> None:
    working = Working(6)
    working.sink.may.clear()
    working.assign()
    assert working.sink.standing.wait(10)
    working.consumer.revoke(A)
    working.sink.may.set()
    working.wait_until(lambda: working.value(m.ASSIGNED) == 0)
    assert working.consumer.committed_offsets[A][0] == 6
    working.stop()
    assert working.drained is True


def test_events_of_a_partition_that_goes_do_not_start() -> None:
    working = Working(300)  # three batches
    gate = threading.Event()

    def hold(_inputs: Tensors) -> None:
        assert gate.wait(10)

    working.executor.before = hold
    working.assign()
    working.wait_until(lambda: bool(working.executor.sizes))
    working.consumer.revoke(A)
    working.wait_until(lambda: working.consumer.has_told)
    assert working.value(m.ASSIGNED) == 1
    gate.set()
    working.wait_until(lambda: working.value(m.ASSIGNED) == 0)
    assert working.consumer.committed_offsets[A][0] == 100
    working.wait_until(lambda: working.worker.in_flight == 0)
    assert (working.sink.written, working.executor.sizes) == (list(range(100)), [100])
    working.consumer.assign(A)
    working.wait_for_offset(300)
    assert (working.sink.written, working.executor.sizes) == (list(range(300)), [100] * 3)
    working.stop()
    assert working.drained is True


def test_revocation_that_takes_too_long_says_how_many_events_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    working = Working(300, drain_timeout=0.05)
    gate = threading.Event()

    def hold(_inputs: Tensors) -> None:
        if len(working.executor.sizes) == 2:
            assert gate.wait(10)
        else:
            time.sleep(2 * MAX_DELAY)  # the result of a quicker model would be kept for the next one

    working.executor.before = hold
    working.assign()
    working.wait_until(lambda: len(working.executor.sizes) == 2)
    working.wait_until(lambda: working.consumer.committed_offsets[A][0] == 100)
    working.consumer.revoke(A)
    working.wait_until(lambda: working.value(m.ASSIGNED) == 0)
    assert "not finished within the drain time of 0.05 s: the new owners of in/0 read 200 events again" in caplog.text
    assert "lower `batch.max_events`" in caplog.text
    gate.set()
    working.wait_until(lambda: working.worker.in_flight == 0)
    assert working.executor.sizes == [100, 100]
    assert working.consumer.committed_offsets[A][0] == 100
    working.stop()


def test_what_was_taken_back_is_read_again_once_the_broker_says_from_where() -> None:
    working = Working(6)
    working.sink.may.clear()
    working.sink.failure = TransactionAborted("the broker took it back")
    working.assign()
    assert working.sink.standing.wait(10)
    working.consumer.next_failures["committed"] += [failure(KafkaError._TIMED_OUT), failure(KafkaError._TIMED_OUT)]
    working.sink.may.set()
    working.wait_for_offset(6)
    assert (working.sink.aborted, working.sink.written) == (1, list(range(6)))
    assert working.consumer.next_failures["committed"] == []
    working.stop()
    assert working.drained is True


@pytest.mark.parametrize(
    ("attempts", "sizes"),
    [
        (f"millstream starts={LIMIT - 1} running=0 alone=0", [40]),
        (f"millstream starts={LIMIT} running=0 alone=0", [MAX_SUSPECT_EVENTS, MAX_SUSPECT_EVENTS, 8]),
        (f"millstream starts={LIMIT} running=3 alone=0", [1, 1, 1, MAX_SUSPECT_EVENTS, MAX_SUSPECT_EVENTS, 5]),
    ],
    ids=["as usual", "few at a time", "one by one"],
)
def test_events_at_which_workers_ended_run_few_at_a_time_and_are_committed_in_between(
    attempts: str, sizes: list[int]
) -> None:
    working = Working(40, attempts=attempts)
    committed: list[int] = []
    working.executor.before = lambda _inputs: committed.append(working.consumer.committed_offsets[A][0])
    working.assign()
    working.wait_for_offset(40)
    assert working.executor.sizes == sizes
    assert committed == [sum(sizes[:at]) for at in range(len(sizes))]
    assert working.sink.written == list(range(40))
    working.stop()


def test_worker_stays_in_the_group_while_an_event_by_itself_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "USUAL_EVENT_TIME", 0.0)
    working = Working(2, attempts=f"millstream starts={LIMIT} running=2 alone=0")
    working.sink.may.clear()
    working.assign()
    working.wait_until(lambda: working.consumer.paused == {A})
    polls = working.consumer.calls.count("consume")
    working.wait_until(lambda: working.consumer.calls.count("consume") > polls)
    working.wait_until(lambda: working.executor.sizes == [1])
    working.sink.may.set()
    working.wait_for_offset(2)
    assert (working.executor.sizes, working.sink.written) == ([1, 1], [0, 1])
    working.stop()


def test_event_that_ended_workers_while_it_ran_alone_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    working = Working(4, attempts=f"millstream starts={LIMIT + 2} running=1 alone=2").assign()
    working.wait_for_offset(4)
    assert working.sink.rejected == {0: "crashed"}
    assert working.sink.written == [0, 1, 2, 3]
    assert sum(working.executor.sizes) == 3
    assert "workers crashed or hung running the event at offset 0 of in/0" in caplog.text
    working.stop()
