import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.errors import DeliveryFailed, OffsetsRewound, PartitionsMoved, TransactionAborted
from millstream.consumers.events import Barrier, BatchResult, NextOffsets, ResultQueue
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import InFlightBudget, RecordCost
from millstream.consumers.record_types import Partition
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.sink.writer import Checkpoints, Writer
from tests.consumers.in_memory import answered, batch_of, ended, offsets, running

FOREVER = 1e9  # seconds
EVENTS = 10_000  # that a budget has room for
Message = BatchResult | Barrier | OffsetsRewound | None


class MemorySink:
    """Writes into a list; fails for good at its call number `fails_at`."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.written: list[int] = []  # offsets, and all of them acknowledged up to `safe`
        self.safe = 0
        self.checkpoints = 0
        self._calls_left = fails_at
        self.dropping = False
        self.pushed: list[int] = []  # how many were written when that was

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        self._call()
        if self.dropping:
            return {}
        self.written += [offset for one in answers for offset in offsets(one.batch)]
        return {("in", 0): (1, self.written[-1] + 1)}

    def checkpoint(self, ends: NextOffsets) -> None:  # noqa: ARG002
        self._call()
        self.checkpoints += 1
        self.safe = len(self.written)

    def push(self) -> None:
        self._call()
        self.pushed.append(len(self.written))

    def catch_up(self) -> None: ...

    def say_all(self) -> None: ...

    def _call(self) -> None:
        if self._calls_left == 0:
            raise DeliveryFailed("the broker refuses")
        if self._calls_left is not None:
            self._calls_left -= 1


class Clock:
    """In place of the writer's; it goes on by what a `TickingSink` takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0  # seconds
        monkeypatch.setattr("millstream.consumers.sink.writer.time.monotonic", lambda: self.now)


class TickingSink(MemorySink):
    """A call takes so many seconds of a clock."""

    def __init__(self, clock: Clock, *, write: float, checkpoint: float = 0.0) -> None:
        super().__init__()
        self._clock = clock
        self._write, self._checkpoint = write, checkpoint

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        self._clock.now += self._write
        return super().write(answers)

    def checkpoint(self, ends: NextOffsets) -> None:
        self._clock.now += self._checkpoint
        super().checkpoint(ends)


class NotingWindow(BatchWindow):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.reported: list[float] = []
        self.written: list[float] = []
        self.publications: list[float] = []
        self.writable: list[float] = []

    def report(self, seconds: float) -> None:
        self.reported.append(seconds)

    def note_written(self, closed: float, now: float) -> None:
        self.written.append(now - closed)

    def note_publication(self, now: float, every: float) -> None:
        self.publications.append(now + every)

    def note_published(self, now: float, rest: float) -> None:
        self.writable.append(now + rest)


class NotingAssignment(Assignment):
    """Tells what is delivered, and the sink to drop what was read."""

    def __init__(self, told: Callable[[NextOffsets], None], sink: MemorySink) -> None:
        super().__init__()
        self.told = told
        self.sink = sink

    def drop_read(self) -> None:
        self.sink.dropping = True

    def kept(self, ends: NextOffsets) -> NextOffsets:
        return {} if self.sink.dropping else ends

    def note_delivered(self, ends: NextOffsets) -> None:
        self.told(ends)


class NotingShadows:
    """Keeps what it is offered, and what else it is asked for."""

    def __init__(self) -> None:
        self.offered: list[tuple[list[int], NextOffsets]] = []
        self.caught_up = threading.Event()
        self.has_said_all = False

    def offer(self, answered: BatchResult, ends: NextOffsets) -> None:
        self.offered.append((offsets(answered.batch), ends))

    def catch_up(self) -> None:
        self.caught_up.set()

    def say_all(self) -> None:
        self.has_said_all = True


class Stage:
    """A writing stage with what is around it."""

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        every: float = FOREVER,
        records: int = 1000,
        budget: InFlightBudget | None = None,
        sink: MemorySink | None = None,
        transactional: bool = False,
        shadows: NotingShadows | None = None,
    ) -> None:
        self.window = NotingWindow()
        self.answers: ResultQueue = SimpleQueue()
        self.departed = 0
        self.budget = budget or InFlightBudget(EVENTS, 10_000_000)
        for message in messages:
            self.put(message)
        self.sink = sink or MemorySink()
        self.acknowledged: list[int] = []  # the offset of the next record to read, at each checkpoint with one
        self.news = threading.Event()
        self.assignment = NotingAssignment(self._acknowledge, self.sink)
        self.read_again = self.assignment.rewind_wanted
        self.writer = Writer(
            self.answers,
            sink=cast("Sink", self.sink),
            budget=self.budget,
            assignment=self.assignment,
            checkpoints=Checkpoints(every, records / EVENTS, publish=transactional, rest=0.25),
            window=self.window,
            shadows=shadows,
        )

    def put(self, message: Message) -> None:
        if isinstance(message, BatchResult):
            self.put_together(message)
        else:
            self.answers.put(message)

    def put_together(self, *answers: BatchResult) -> None:
        for one in answers:
            self.budget.add(one.batch.records, one.batch.bytes, one.batch.arrived)
        self.answers.put([one._replace(number=number) for number, one in enumerate(answers, self.departed)])
        self.departed += len(answers)

    def _acknowledge(self, ends: Mapping[Partition, tuple[int, int]]) -> None:
        for epoch, end in ends.values():
            assert epoch == 1
            # Not one record is let go before the commit knows of it: `until_idle` ends when nothing is held.
            assert self.budget.events >= end - (self.acknowledged[-1] if self.acknowledged else 0)
            self.acknowledged.append(end)
        self.news.set()


def test_results_are_written_in_their_order() -> None:
    stage = Stage([answered("ert"), answered("ee", 3), answered("t", 5), None])
    stage.writer.run()
    assert stage.sink.written == [0, 1, 2, 3, 4, 5]


def test_results_that_come_together_are_written_and_acknowledged_together() -> None:
    stage = Stage([])
    closed = [answered("ee", at)._replace(batch=answered("ee", at).batch._replace(closed=1.0)) for at in (0, 2, 4)]
    stage.put_together(*closed[:2])
    stage.put_together(closed[2])
    stage.put(Barrier(threading.Event()))
    stage.put(None)
    stage.writer.run()
    assert (stage.sink.written, stage.acknowledged) == ([0, 1, 2, 3, 4, 5], [6])
    assert (stage.budget.events, stage.budget.bytes) == (0, 0)
    assert len(stage.window.reported) == 3


def test_abort_of_results_that_came_together_makes_room_for_all_of_them() -> None:
    stage = Stage([], sink=AbortingSink(at="write"))
    stage.put_together(answered("ee"), answered("ee", 2))
    stage.put(None)
    stage.writer.run()
    assert (stage.acknowledged, stage.read_again.is_set()) == ([], True)
    assert (stage.budget.events, stage.budget.bytes) == (0, 0)


class MovingSink(MemorySink):
    """Sees by the epoch that the partition has gone and come back since the last write."""

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        super().write(answers)
        return {("in", 0): (answers[-1].number + 1, len(self.written))}


def test_transaction_with_results_from_before_a_partition_went_is_committed_as_such() -> None:
    """So that it does not count, though the partition is back: the delivery holds the epoch against the current one."""
    stage = Stage([answered("ee"), answered("ee", 2)], sink=MovingSink(), transactional=True)
    stage.put(Barrier(threading.Event()))
    stage.put(None)
    stage.writer.run()
    assert stage.acknowledged == [2]


def test_checkpoint_comes_after_so_many_records() -> None:
    stage = Stage([answered("ee"), answered("rt", 2), answered("e", 4), None], records=4)
    stage.writer.run()
    assert stage.acknowledged == [4]
    assert stage.budget.events == 1


def test_checkpoint_comes_after_so_many_bytes() -> None:
    """Few large events fill what a worker may hold as many small ones do."""
    messages = [answered("ee"), answered("rt", 2), answered("e", 4), None]
    stage = Stage(messages, records=1000, budget=InFlightBudget(EVENTS, 300, RecordCost(1, 10)))
    stage.writer.run()
    assert stage.acknowledged == [2, 4]  # each a tenth of the bytes or more, as 1000 records would be of the events
    assert stage.budget.events == 1


def test_checkpoint_comes_after_so_long_while_results_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = TickingSink(Clock(monkeypatch), write=0.6)
    stage = Stage([*(answered("e", at) for at in range(5)), None], every=1.0, sink=sink)
    stage.writer.run()
    assert stage.acknowledged == [2, 4]


def closed_by_time(one: BatchResult) -> BatchResult:
    """No full micro-batch."""
    return one._replace(batch=one.batch._replace(reason="time"))


class EndingSink(MemorySink):
    """NextOffsets its stage with the micro-batch of this number."""

    stage: Stage

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        if answers[-1].number == self._last:
            self.stage.put(None)
        return super().write(answers)


class IdleSink(MemorySink):
    """Ends its stage when nothing comes for a while."""

    stage: Stage

    def catch_up(self) -> None:
        self.stage.put(None)


@pytest.mark.parametrize("some", [[], [answered("e")]])
def test_while_no_results_come_the_sink_may_say_what_it_held_back(
    some: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.sink.writer.IDLE_INTERVAL", 0.01)
    sink = IdleSink()
    sink.stage = stage = Stage(some, every=0.0, sink=sink)
    stage.writer.run()
    assert sink.safe == len(sink.written) == len(some)


def test_results_after_a_pause_wait_for_no_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long after the checkpoint before, not after the first result: a lone event is not held back."""
    clock = Clock(monkeypatch)
    sink = EndingSink(0)
    sink.stage = stage = Stage([closed_by_time(answered("e"))], every=1.0, sink=sink)
    clock.now += 1.0
    stage.writer.run()
    assert stage.acknowledged == [1]


def test_backlog_after_a_pause_is_not_stopped_for_its_first_results(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    sink = EndingSink(3)
    full = [answered("e", at) for at in range(3)]
    sink.stage = stage = Stage([*full, closed_by_time(answered("e", 3))], every=1.0, sink=sink)
    clock.now += 5.0
    stage.writer.run()
    assert stage.acknowledged == [4]  # with the last one, behind which nothing waits


@pytest.mark.parametrize(("reason", "acknowledged"), [("time", [2, 3, 4, 5, 6, 7, 8, 9]), ("size", [2, 9])])
def test_full_micro_batches_are_checkpointed_less_often(
    monkeypatch: pytest.MonkeyPatch, reason: str, acknowledged: list[int]
) -> None:
    """Eight times as long as the last checkpoint took, after its end: half a second here."""

    class FeedingSink(TickingSink):
        def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
            stage.put(following.pop(0))  # nothing waits before
            return super().write(answers)

    sink = FeedingSink(Clock(monkeypatch), write=0.6, checkpoint=0.5)
    batches = [answered("e", at) for at in range(9)]
    following: list[Message] = [one._replace(batch=one.batch._replace(reason=reason)) for one in batches]
    following.append(None)
    stage = Stage([following.pop(0)], every=1.0, sink=sink)
    stage.writer.run()
    assert stage.acknowledged == acknowledged


def test_results_are_sent_at_once_where_no_more_come_soon() -> None:
    reasons = ["time", "time", "time", "size"]
    batches = [answered("e", at) for at in range(4)]
    batches = [
        one._replace(batch=one.batch._replace(reason=reason)) for one, reason in zip(batches, reasons, strict=True)
    ]

    class FeedingSink(MemorySink):
        def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
            if answers[-1].number == 3:  # with nothing behind it, and full
                stage.put(None)
            return super().write(answers)

        def push(self) -> None:
            super().push()
            stage.put(batches[2])
            stage.put(batches[3])

    stage = Stage(batches[:2], sink=FeedingSink())
    stage.writer.run()
    assert stage.sink.pushed == [2]


def test_checkpoint_comes_after_so_long_when_nothing_more_comes() -> None:
    stage = Stage([answered("ee")], every=0.01)
    thread = running(stage.writer.run)
    assert stage.news.wait(10)
    stage.put(None)
    assert ended(thread)
    assert stage.acknowledged == [2]
    assert (stage.budget.events, stage.budget.bytes) == (0, 0)
    assert stage.sink.checkpoints == 1


@pytest.mark.parametrize(("transactional", "seconds"), [(False, [1.0, 2.0]), (True, [4.0, 4.0])])
def test_time_until_results_can_be_read_is_reported(
    monkeypatch: pytest.MonkeyPatch, transactional: bool, seconds: list[float]
) -> None:
    """At once, or with the checkpoint that publishes them."""
    sink = TickingSink(Clock(monkeypatch), write=1.0, checkpoint=2.0)
    closed = [one._replace(batch=one.batch._replace(closed=100.0)) for one in (answered("ee"), answered("e", 2))]
    drained = answered("e", 3)
    stage = Stage([*closed, Barrier(threading.Event()), drained, None], sink=sink, transactional=transactional)
    stage.writer.run()
    assert stage.window.reported == seconds


@pytest.mark.parametrize(
    ("transactional", "publications", "writable"), [(False, [], []), (True, [105.0, 107.0], [102.25, 104.25])]
)
def test_window_is_told_when_results_written_from_now_on_are_published(
    monkeypatch: pytest.MonkeyPatch, transactional: bool, publications: list[float], writable: list[float]
) -> None:
    """Before the checkpoint, in which events go on coming, and after it: here they last from 101 and 103 s for a second."""
    sink = TickingSink(Clock(monkeypatch), write=1.0, checkpoint=1.0)
    closed = [one._replace(batch=one.batch._replace(closed=99.0)) for one in (answered("ee"), answered("e", 2))]
    barriers = [Barrier(threading.Event()) for _ in closed]
    messages = [message for pair in zip(closed, barriers, strict=True) for message in pair]
    stage = Stage([*messages, None], sink=sink, transactional=transactional, every=4.0)
    stage.writer.run()
    assert stage.window.publications == publications
    assert stage.window.writable == writable
    assert stage.window.written == [2.0, 4.0]


def test_barrier_is_answered_when_all_before_it_is_acknowledged() -> None:
    barrier = Barrier(threading.Event())
    stage = Stage([answered("eee"), barrier, answered("e", 3), None])
    stage.writer.run()
    assert barrier.done.is_set()
    assert stage.acknowledged == [3]
    assert stage.budget.events == 1


def test_barrier_with_nothing_before_it_is_answered() -> None:
    barrier = Barrier(threading.Event())
    Stage([barrier, None]).writer.run()
    assert barrier.done.is_set()


def test_end_acknowledges_nothing_more() -> None:
    stage = Stage([answered("ee"), None])
    stage.writer.run()
    assert stage.acknowledged == []
    assert stage.budget.events == 2


STEPS = st.lists(st.sampled_from(["e", "eet", "rt", "barrier"]), min_size=1, max_size=12)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 15), st.integers(1, 6))
def test_what_a_failing_sink_did_not_write_is_never_acknowledged(steps: list[str], fails_at: int, records: int) -> None:
    messages: list[Message] = []
    start = 0
    for step in steps:
        messages.append(Barrier(threading.Event()) if step == "barrier" else answered(step, start))
        start += 0 if step == "barrier" else len(step)
    stage = Stage([*messages, None], records=records, sink=MemorySink(fails_at))
    failed = False
    try:
        stage.writer.run()
    except DeliveryFailed:
        failed = True
    done = stage.acknowledged[-1] if stage.acknowledged else 0
    assert done == stage.sink.safe
    assert stage.acknowledged == sorted(set(stage.acknowledged))
    assert stage.budget.events == start - done
    barriers = [one.done.is_set() for one in messages if isinstance(one, Barrier)]
    assert barriers == sorted(barriers, reverse=True)
    assert failed or all(barriers)


@pytest.mark.parametrize("fails_at", [0, 1], ids=["write", "checkpoint"])
def test_failure_ends_the_stage_and_leaves_the_barrier_unanswered(fails_at: int) -> None:
    barrier = Barrier(threading.Event())
    stage = Stage([answered("ee"), barrier, None], sink=MemorySink(fails_at))
    with pytest.raises(DeliveryFailed, match="the broker refuses"):
        stage.writer.run()
    assert not barrier.done.is_set()
    assert stage.acknowledged == []
    assert stage.budget.events == 2


def test_what_comes_before_records_that_were_given_twice_counts_and_nothing_after_it() -> None:
    stage = Stage(
        [answered("ee"), OffsetsRewound("offset 1 again"), answered("e", 1), answered("e", 2), None], records=1
    )
    stage.writer.run()
    assert (stage.sink.written, stage.sink.safe, stage.acknowledged) == ([0, 1], 2, [2])
    assert stage.read_again.is_set()
    assert (stage.budget.events, stage.budget.bytes) == (0, 0)


def test_results_that_passed_dropped_ones_are_never_acknowledged() -> None:
    stage = Stage([None])
    stage.answers.get()
    for number, at in [(1, 2), (0, 0)]:
        if number == 0:
            stage.answers.put(OffsetsRewound("offset 1 again"))
        one = answered("ee", at)._replace(number=number)
        stage.budget.add(2, one.batch.bytes, one.batch.arrived)
        stage.answers.put([one])
    stage.answers.put(Barrier(threading.Event()))
    stage.answers.put(None)
    stage.writer.run()
    assert stage.sink.written == [2, 3]
    assert (stage.acknowledged, stage.budget.events) == ([], 0)


class AbortingSink(MemorySink):
    """Aborts the transaction in its first checkpoint, or in its first write."""

    def __init__(self, *, at: str, error: type[TransactionAborted] = TransactionAborted) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.aborted = 0

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        self._maybe_abort("write")
        return super().write(answers)

    def checkpoint(self, ends: NextOffsets) -> None:
        self._maybe_abort("checkpoint")
        super().checkpoint(ends)

    def abort(self) -> None:
        self.aborted += 1

    def _maybe_abort(self, place: str) -> None:
        if self.at == place and not self.aborted:
            raise self.error("the broker says so")


@pytest.mark.parametrize("place", ["write", "checkpoint"])
def test_aborted_transaction_acknowledges_nothing_and_asks_to_read_again(place: str) -> None:
    sink = AbortingSink(at=place)
    stage = Stage([answered("ee"), None], records=2, sink=sink)
    stage.writer.run()
    assert (sink.aborted, stage.acknowledged, stage.read_again.is_set()) == (1, [], True)
    assert (stage.budget.events, stage.budget.bytes) == (0, 0)  # the loop has room to read them again


@pytest.mark.parametrize(("error", "level"), [(PartitionsMoved, "INFO"), (TransactionAborted, "WARNING")])
def test_abort_warns_of_nothing_as_usual_as_a_rebalance(
    error: type[TransactionAborted], level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        Stage([answered("ee"), None], records=2, sink=AbortingSink(at="checkpoint", error=error)).writer.run()
    assert [record.levelname for record in caplog.records if "is aborted" in record.message] == [level]


def test_shadows_are_offered_each_result_once_when_it_is_checkpointed() -> None:
    shadows = NotingShadows()
    stage = Stage([], shadows=shadows)
    stage.put(answered("ee"))
    stage.put(answered("t", 2))
    first, second = threading.Event(), threading.Event()
    stage.put(Barrier(first))
    thread = running(stage.writer.run)
    assert first.wait(10)
    assert shadows.offered == [([0, 1], {("in", 0): (1, 2)}), ([2], {("in", 0): (1, 3)})]
    stage.put(answered("e", 3))
    stage.put(Barrier(second))
    assert second.wait(10)
    stage.put(answered("e", 4))
    stage.put(None)  # before its checkpoint
    assert ended(thread)
    assert [rows for rows, _ in shadows.offered] == [[0, 1], [2], [3]]


def test_shadows_are_offered_nothing_that_was_taken_back() -> None:
    shadows = NotingShadows()
    stage = Stage(
        [answered("ee"), Barrier(threading.Event()), None],
        sink=AbortingSink(at="checkpoint"),
        transactional=True,
        shadows=shadows,
    )
    stage.writer.run()
    assert stage.read_again.is_set()
    assert shadows.offered == []


def test_shadows_say_what_they_held_back_while_no_results_come_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.consumers.sink.writer.IDLE_INTERVAL", 0.01)
    shadows = NotingShadows()
    stage = Stage([], shadows=shadows)
    thread = running(stage.writer.run)
    assert shadows.caught_up.wait(10)
    assert not shadows.has_said_all
    stage.put(None)
    assert ended(thread)
    assert shadows.has_said_all


def test_stage_that_has_written_nothing_waits_and_checkpoints_nothing() -> None:
    stage = Stage([], every=0.0)
    thread = running(stage.writer.run)
    thread.join(0.05)
    assert thread.is_alive()
    assert stage.sink.checkpoints == 0
    stage.put(None)
    assert ended(thread)


def test_what_came_before_records_given_twice_counts_and_what_comes_after_is_dropped() -> None:
    stage = Stage([answered("ee"), OffsetsRewound("again from offset 1"), answered("e", 1), None])
    stage.writer.run()
    assert stage.acknowledged == [2]
    assert stage.read_again.is_set()
    assert stage.sink.written == [0, 1]


def test_result_whose_checkpoint_nothing_else_brings_about_is_written_once() -> None:
    stage = Stage([], every=0.01)
    thread = running(stage.writer.run)
    stage.put(closed_by_time(answered("ee")))
    assert stage.news.wait(10)
    stage.put(None)
    assert ended(thread)
    assert (stage.sink.written, stage.acknowledged) == ([0, 1], [2])


def test_results_that_were_taken_back_are_no_latency() -> None:
    closed = answered("ee")._replace(batch=answered("ee").batch._replace(closed=1.0))
    stage = Stage([closed], sink=AbortingSink(at="checkpoint"), transactional=True)
    for _ in range(2):
        stage.put(Barrier(threading.Event()))
    stage.put(None)
    stage.writer.run()
    assert stage.window.reported == []


def test_assignment_learns_up_to_which_batch_all_results_are_final() -> None:
    stage = Stage([])
    stage.assignment.add([("in", 0)])
    stage.assignment.admit(1, batch_of("e"))
    left = stage.assignment.leave([("in", 0)])
    stage.put(answered("e"))
    stage.put(Barrier(threading.Event()))
    stage.put(None)
    stage.writer.run()
    assert not left.is_set(), "the batch that started last has no result yet"
    stage.put(answered("e", 1))
    stage.put(None)
    stage.writer.run()
    assert not left.is_set(), "its result is not final"
    stage.put(Barrier(threading.Event()))
    stage.put(None)
    stage.writer.run()
    assert left.is_set()
