"""What the sink counts and measures: the values, not only that there are some; and where a pipeline is told to stop."""

from __future__ import annotations

from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from millstream.consumers.errors import EventRefused
from millstream.consumers.events import BatchResult, BatchSlice, MicroBatch, NextOffsets, Rejection, ResultQueue
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import InFlightBudget
from millstream.consumers.observability import metrics as m
from millstream.consumers.sink import result_sink
from millstream.consumers.sink.result_sink import Outputs, Sink
from millstream.consumers.sink.writer import Checkpoints, Writer
from tests.consumers.clock import Clock
from tests.consumers.in_memory import EPOCHS, MODELS, GivenAssignment, block
from tests.consumers.measured import Measured
from tests.consumers.sink.test_sink import LIMIT, OUTPUTS, MemoryDelivery, answered_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.events import Epochs
    from millstream.consumers.sink.delivery import Delivery

NOW = 1_700_000_000.0  # seconds since the epoch


class Delivering(MemoryDelivery):
    """Takes so many seconds of a clock for a checkpoint."""

    def __init__(self, clock: Clock | None, *, transactional: bool) -> None:
        super().__init__()
        self.publishes_at_checkpoint = transactional
        self.aborts = 0
        self._clock = clock

    def checkpoint(self, _ends: NextOffsets) -> None:
        if self._clock:
            self._clock.now += 3.0

    def abort(self) -> None:
        self.aborts += 1


class Sunk(Measured):
    """A sink with what is around it."""

    def __init__(
        self,
        outputs: Outputs = OUTPUTS,
        *,
        clock: Clock | None = None,
        transactional: bool = False,
        epochs: Epochs = EPOCHS,
    ) -> None:
        super().__init__()
        self.delivery = Delivering(clock, transactional=transactional)
        delivery = cast("Delivery", self.delivery)
        self.sink = Sink(delivery, outputs, assignment=GivenAssignment(epochs), metrics=self.metrics)

    def ages(self) -> tuple[float | None, float | None]:
        """Seconds of all events together until their predictions could be read, and of how many events."""
        return self.value(m.END_TO_END, "_sum"), self.value(m.END_TO_END, "_count")


def aged(*seconds: float | None) -> BatchResult:
    """Events that are so old at `NOW`; None: without a timestamp."""
    stamps = [-1 if age is None else round((NOW - age) * 1000) for age in seconds]
    return answered_of(len(seconds), timestamps=np.array(stamps, np.int64))


# How old events are when their predictions can be read.


def test_age_of_an_event_is_from_its_timestamp_until_its_prediction_was_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, result_sink, NOW)
    own = Sunk(clock=clock)
    own.sink.write([aged(2.0, 5.0)])
    clock.now += 10
    own.sink.write([aged(0.5)])  # 10.5 s by then
    assert own.ages() == (0, 0), "not before they count"
    own.sink.checkpoint({})
    assert own.ages() == pytest.approx((2.0 + 5.0 + 10.5, 3))
    own.sink.checkpoint({})
    assert own.ages()[1] == 3


def test_age_in_a_transaction_is_until_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, result_sink, NOW)
    own = Sunk(clock=clock, transactional=True)
    own.sink.write([aged(2.0, 5.0)])
    clock.now += 10
    own.sink.write([aged(0.5)])
    own.sink.checkpoint({})  # takes three seconds
    assert own.ages() == pytest.approx(((2.0 + 13) + (5.0 + 13) + (0.5 + 13), 3))


def test_age_of_an_event_falls_into_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, result_sink, NOW)
    own = Sunk(clock=clock)
    own.sink.write([aged(0.2, 4.0)])
    own.sink.checkpoint({})
    found = [own.value(m.END_TO_END, "_bucket", le=le) for le in ("0.15", "0.25", "2.5", "5.0", "+Inf")]
    assert found == [0, 1, 1, 2, 2]


def test_event_without_a_timestamp_has_no_age_and_one_of_the_future_none_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Sunk(clock=Clock(monkeypatch, result_sink, NOW))
    own.sink.write([aged(None, -30.0, 2.0)])
    own.sink.checkpoint({})
    assert own.ages() == pytest.approx((2.0, 2))


def test_event_of_1970_is_as_old_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Sunk(clock=Clock(monkeypatch, result_sink, NOW))
    own.sink.write([aged(NOW)])
    own.sink.checkpoint({})
    assert own.ages() == pytest.approx((NOW, 1))


def test_age_is_measured_of_what_has_a_prediction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Sunk(clock=Clock(monkeypatch, result_sink, NOW))
    one = aged(2.0, 5.0, 7.0)
    one = one._replace(rows=np.array([0, 2]), outputs={"y": np.zeros(2)}, prediction_times=np.zeros(2, np.int64))
    own.sink.write([one._replace(rejected={1: Rejection("model_rejected", "no")})])
    own.sink.checkpoint({})
    assert own.ages() == pytest.approx((9.0, 2))


def test_predictions_that_were_taken_back_have_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Sunk(clock=Clock(monkeypatch, result_sink, NOW), transactional=True)
    own.sink.write([aged(2.0)])
    own.sink.abort()
    own.sink.checkpoint({})
    assert own.delivery.aborts == 1
    assert own.ages() == (0, 0)


# Counters.


def test_each_record_is_counted_by_what_became_of_it() -> None:
    outputs = replace(OUTPUTS, dead_letters=replace(OUTPUTS.dead_letters, skip=frozenset({"expired"})))
    own = Sunk(outputs)
    made = block("etrete")
    batch = MicroBatch((BatchSlice(made, 0, 6, 0, 3),), "size")
    why = {1: Rejection("expired", "late"), 2: Rejection("nan_output", "NaN")}
    own.sink.write([BatchResult(0, batch, {"y": np.zeros(1)}, np.array([0]), why, np.zeros(1, np.int64), MODELS)])
    own.sink.checkpoint({})
    assert own.value(m.PREDICTIONS, model="m", version="1", variant="primary") == 1
    assert own.value(m.TOMBSTONES) == 2
    assert own.value(m.DEAD_LETTERS, reason="undecodable") == 1
    assert own.value(m.DEAD_LETTERS, reason="nan_output") == 1
    assert own.value(m.DEAD_LETTERS, reason="expired") == 0
    assert own.value(m.SKIPPED, reason="expired") == 1
    assert own.value(m.REVOKED_DROPPED) == 0
    assert [letter.reason for letter in own.delivery.letters] == ["undecodable", "nan_output"]


def test_results_of_an_aborted_transaction_are_not_counted() -> None:
    own = Sunk(transactional=True)
    made = block("ert")
    one = BatchResult(
        0,
        MicroBatch((BatchSlice(made, 0, 3, 0, 1),), "size"),
        {"y": np.zeros(1)},
        np.array([0]),
        {},
        np.zeros(1, np.int64),
        MODELS,
    )

    def counts() -> list[float | None]:
        of_model = own.value(m.PREDICTIONS, model="m", version="1", variant="primary")
        return [of_model, own.value(m.DEAD_LETTERS, reason="undecodable"), own.value(m.TOMBSTONES)]

    own.sink.write([one])
    assert not any(counts())
    own.sink.checkpoint({})
    assert counts() == [1, 1, 1]
    own.sink.write([one])
    own.sink.abort()
    own.sink.checkpoint({})
    assert counts() == [1, 1, 1]


def test_records_of_partitions_that_went_are_counted_as_stale() -> None:
    own = Sunk(epochs={("in", 0): 1})
    places = np.array([0, 1, 1, 0, 1])
    ends = own.sink.write([answered_of(5, places=places, partitions={0: ("in", 0), 1: ("in", 1)})])
    assert ends == {("in", 0): (1, 4)}
    own.sink.checkpoint({})
    assert own.value(m.REVOKED_DROPPED) == 3
    assert own.value(m.PREDICTIONS, model="m", version="1", variant="primary") == 2
    assert own.value(m.TOMBSTONES) == 0


def test_stages_of_writing_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, result_sink, NOW)
    own = Sunk(clock=clock)
    clock.step = 0.25  # from one look at the clock to the next
    own.sink.write([answered_of(2)])
    assert own.value(m.STAGE_SECONDS, "_sum", stage="encode") == pytest.approx(0.25)
    produced = own.value(m.STAGE_SECONDS, "_sum", stage="produce")
    assert produced == pytest.approx(0.5), "the ages' clock was looked at meanwhile"
    clock.step = 0.0
    own.sink.checkpoint({})
    assert own.value(m.STAGE_SECONDS, "_sum", stage="commit") == pytest.approx(3.0)


# Where the pipeline is told to stop.

STOPPING = replace(OUTPUTS, stop_at=frozenset({"prediction_too_large"}))
HUGE: dict[str, Any] = {"keys": [b"k", b"x" * LIMIT, b"k"]}


def test_pipeline_that_stops_at_a_prediction_that_is_too_large_does_so() -> None:
    own = Sunk(STOPPING)
    with pytest.raises(EventRefused, match=r"offset 1 of in/0 was refused \(prediction_too_large\).*topic out takes"):
        own.sink.write([answered_of(3, **HUGE)])
    assert own.delivery.letters == []


def test_writer_ends_at_such_an_event_and_nothing_behind_it_counts() -> None:
    """What came before it counts; the successor comes to the same event."""
    answers: ResultQueue = SimpleQueue()
    good, bad = answered_of(2), answered_of(3, **HUGE, offsets=np.arange(2, 5))
    for number, one in enumerate((good, bad, answered_of(1, offsets=np.array([5])))):
        answers.put([one._replace(number=number)])
    assignment = Assignment()
    assignment.add([("in", 0)])
    budget = InFlightBudget(100, 100_000)
    budget.add(6, 0, 0.0)
    own = Sunk(STOPPING)
    writer = Writer(
        answers,
        sink=own.sink,
        budget=budget,
        assignment=assignment,
        checkpoints=Checkpoints(0.0, 0.0, publish=False, rest=0.0),
        window=BatchWindow(0.0),
    )
    with pytest.raises(EventRefused, match="offset 3 of in/0"):
        writer.run()
    assert assignment.delivered() == {("in", 0): 3}, "also the first event of the same batch"
    assert not assignment.rewind_wanted.is_set(), "nothing was taken back"
    assert budget.events == 1


def test_event_of_a_partition_that_went_stops_nothing() -> None:
    own = Sunk(STOPPING, epochs={})
    assert own.sink.write([answered_of(3, **HUGE)]) == {}


def test_pipeline_that_stops_at_another_reason_writes_the_dead_letter() -> None:
    own = Sunk(replace(OUTPUTS, stop_at=frozenset({"nan_output"})))
    own.sink.write([answered_of(3, **HUGE)])
    own.sink.checkpoint({})
    assert own.value(m.DEAD_LETTERS, reason="prediction_too_large") == 1


def whole(kinds: str, places: Sequence[int] | None = None) -> BatchResult:
    """A batch of one block, all of whose events have an output."""
    made = block(kinds, places=places)
    batch = MicroBatch((BatchSlice(made, 0, len(kinds), 0, len(made.good)),), "size")
    rows, times = np.arange(batch.events), np.zeros(batch.events, np.int64)
    return BatchResult(0, batch, {"y": np.zeros(batch.events)}, rows, {}, times, MODELS)


def counted(own: Sunk) -> tuple[float | None, float | None]:
    """Events that were left out, and tombstones."""
    return own.value(m.SKIPPED, reason="filtered"), own.value(m.TOMBSTONES)


def test_events_that_a_filter_leaves_out_are_counted_once_they_are_committed() -> None:
    own = Sunk(transactional=True)
    own.sink.write([whole("leltll")])
    own.sink.abort()
    own.sink.checkpoint({})
    assert counted(own) == (0, 0)
    own = Sunk(transactional=True)
    assert own.sink.write([whole("leltll")]) == {("in", 0): (EPOCHS["in", 0], 6)}
    assert counted(own) == (0, 0)
    own.sink.checkpoint({})
    assert counted(own) == (4, 1)


def test_batch_of_events_that_are_left_out_moves_the_offset() -> None:
    own = Sunk()
    assert own.sink.write([whole("lll")]) == {("in", 0): (EPOCHS["in", 0], 3)}
    own.sink.checkpoint({})
    assert counted(own) == (3, 0)


def test_events_left_out_behind_one_at_which_the_pipeline_stops_are_not_counted() -> None:
    own = Sunk(replace(OUTPUTS, stop_at=frozenset({"undecodable"})))
    with pytest.raises(EventRefused, match="offset 4 of in/0"):
        own.sink.write([whole("lellrlel")])
    own.sink.checkpoint({})
    assert counted(own) == (3, 0)


def test_events_left_out_of_a_lost_partition_are_its_new_owners() -> None:
    own = Sunk(epochs={("in", 0): EPOCHS["in", 0]})
    own.sink.write([whole("llleel", [0, 1, 1, 0, 0, 0])])
    own.sink.checkpoint({})
    assert counted(own) == (2, 0)
    assert own.value(m.REVOKED_DROPPED) == 2
