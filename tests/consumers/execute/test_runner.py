"""One micro-batch through the model: what is run, what is too late, what is measured of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import NEVER, BatchResult, BatchSlice, MicroBatch
from millstream.consumers.execute import batch_start, runner
from millstream.consumers.execute.runner import Runner
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.health import Health
from millstream.consumers.resilience import retry as waiting
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.interface import ANSWERED_BY
from millstream.inference.model_id import ModelId
from tests.consumers.clock import Clock
from tests.consumers.execute.serving import in_slots, running_model
from tests.consumers.in_memory import MODELS, batch_of, block
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.inference.executors.interface import Tensors

WATCHDOG = Watchdog(600)  # each has a thread
NOW = 1_700_000_000  # seconds since the epoch


def negated(inputs: Tensors) -> dict[str, Any]:
    return {"y": -inputs["x"]}


class Running(Measured):
    """A runner with what is around it."""

    def __init__(
        self,
        run: Callable[[Tensors], dict[str, Any]] = negated,
        is_outdated: Callable[[MicroBatch], bool] = lambda _batch: False,
        admit: Callable[[int, MicroBatch], MicroBatch] = lambda _number, batch: batch,
        models: tuple[ModelId, ...] = MODELS,
    ) -> None:
        super().__init__()
        self.abandon = threading.Event()
        model = running_model(run)
        self.served = in_slots(max_events=8)(model).slots[0]
        if models != MODELS:
            model.executors[0].models = models  # type: ignore[attr-defined]
        self.runner = Runner(
            max_events=8,
            watchdog=WATCHDOG,
            retry=Retry(self.abandon, Health(60), self.metrics),
            admit=admit,
            is_outdated=is_outdated,
            abandon=self.abandon,
            metrics=self.metrics,
        )

    def answer(self, number: int, batch: MicroBatch) -> BatchResult:
        return self.runner.answer(number, batch, self.served)


def with_deadlines(deadlines: Sequence[int]) -> MicroBatch:
    """Events at offsets from 0 that need not run after these times, ms since the epoch."""
    count = len(deadlines)
    made = replace(block("e" * count), deadlines=np.array(deadlines, np.int64))
    return MicroBatch((BatchSlice(made, 0, count, 0, count),), "size")


def test_batch_is_answered_with_its_outputs_rows_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, batch_start, NOW)
    found = Running().answer(3, batch_of("erte", start=5))
    assert found.number == 3
    assert found.outputs["y"].ravel().tolist() == [-5, -8]
    assert found.rows.tolist() == [0, 1]
    assert found.rejected == {}
    assert found.prediction_times.tolist() == [NOW * 1000] * 2


def test_batch_is_counted_with_its_size_its_fill_and_why_it_was_closed() -> None:
    own = Running()
    own.answer(0, batch_of("eert"))
    own.answer(1, batch_of("eeee", 4)._replace(reason="time"))
    assert own.value(m.BATCHES, reason="size") == own.value(m.BATCHES, reason="time") == 1
    assert own.value(m.BATCH_EVENTS, "_sum") == 6
    assert own.value(m.BATCH_EVENTS, "_count") == 2
    assert own.value(m.BATCH_FILL, "_sum") == pytest.approx(2 / 8 + 4 / 8)
    assert own.value(m.BATCH_FILL, "_count") == 2


def test_full_batches_that_run_as_one_are_counted_one_by_one() -> None:
    own = Running()
    own.answer(0, batch_of("e" * 20))
    assert own.value(m.BATCHES, reason="size") == own.value(m.STAGE_SECONDS, "_count", stage="infer") == 3
    assert own.value(m.BATCH_EVENTS, "_sum") == 20
    assert own.value(m.BATCH_EVENTS, "_count") == 3
    assert own.value(m.BATCH_FILL, "_sum") == pytest.approx(8 / 8 + 8 / 8 + 4 / 8)


def test_batch_without_events_is_answered_without_the_model() -> None:
    own = Running(lambda _inputs: pytest.fail("there is nothing to run"))
    found = own.answer(0, batch_of("trt"))
    assert (found.outputs, found.rows.tolist(), found.rejected, found.seconds) == ({}, [], {}, 0.0)
    assert own.value(m.BATCHES, reason="size") == 1
    assert own.value(m.BATCH_EVENTS, "_count") == 0


def test_wait_for_the_run_and_the_run_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, runner)
    monkeypatch.setattr(batch_start, "time", clock)

    def slow(inputs: Tensors) -> dict[str, Any]:
        clock.now += 0.75
        return negated(inputs)

    own = Running(slow)
    made = block("e", arrived=clock.now - 2.5)
    found = own.answer(0, MicroBatch((BatchSlice(made, 0, 1, 0, 1),), "size"))
    assert own.value(m.STAGE_SECONDS, "_sum", stage="queue") == pytest.approx(2.5)
    assert own.value(m.STAGE_SECONDS, "_sum", stage="infer") == pytest.approx(0.75)
    assert found.seconds == pytest.approx(0.75)


def test_events_whose_deadline_is_over_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, batch_start, NOW)
    now = NOW * 1000
    found = Running().answer(0, with_deadlines([now - 250, now, NEVER, now - 1]))
    assert found.outputs["y"].ravel().tolist() == [-1, -2]
    assert found.rows.tolist() == [1, 2]
    assert {row: why.reason for row, why in found.rejected.items()} == {0: "expired", 3: "expired"}
    assert found.rejected[0].error == "its deadline was 250 ms before the model would have run it"


def test_batch_that_is_too_late_as_a_whole_is_not_run() -> None:
    found = Running(lambda _inputs: pytest.fail("all of it is too late")).answer(0, with_deadlines([1, 2]))
    assert (found.outputs, found.rows.tolist(), sorted(found.rejected)) == ({}, [], [0, 1])
    assert found.seconds == 0.0


def test_model_that_answered_an_event_is_known_also_if_the_batch_ran_in_parts_and_some_events_have_no_result() -> None:
    def routed(inputs: Tensors) -> dict[str, Any]:
        if 2 in inputs["x"]:
            raise ModelRejected("a 2")
        return {**negated(inputs), ANSWERED_BY: inputs["x"].ravel().astype(np.int64) % 2}

    models = (ModelId("even", 1), ModelId("odd", 7))
    found = Running(routed, models=models).answer(0, with_deadlines([NEVER, 1, NEVER, NEVER, NEVER]))
    assert found.rows.tolist() == [0, 3, 4]
    assert sorted(found.outputs) == ["y"], "the reserved output is none of the prediction's"
    assert found.models == models
    assert found.answered_by is not None
    assert found.answered_by.tolist() == [0, 1, 0]


def test_one_model_answers_all_events() -> None:
    found = Running().answer(0, with_deadlines([NEVER, NEVER]))
    assert (found.models, found.answered_by) == (MODELS, None)


def test_events_that_the_model_rejects_are_named_by_their_place_in_the_batch() -> None:
    def no_two(inputs: Tensors) -> dict[str, Any]:
        if 2 in inputs["x"]:
            raise ModelRejected("a 2")
        return negated(inputs)

    found = Running(no_two).answer(0, with_deadlines([1, NEVER, NEVER, NEVER]))
    assert found.rows.tolist() == [1, 3]
    assert {row: why.reason for row, why in found.rejected.items()} == {0: "expired", 2: "model_rejected"}
    assert found.outputs["y"].ravel().tolist() == [-1, -3]


def test_executor_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "BACK_OFF", (0.001, 0.002))
    failures: list[Exception] = [ExecutorUnavailable("no device"), ExecutorUnavailable("no device")]
    blocked: list[float | None] = []

    def away(inputs: Tensors) -> dict[str, Any]:
        blocked.append(own.value(m.BLOCKED, what="executor", topic="in", partition="0", offset="5"))
        if failures:
            raise failures.pop()
        return negated(inputs)

    own = Running(away)
    found = own.answer(0, batch_of("te", start=4))
    assert found.rows.tolist() == [0]
    assert own.value(m.RETRIES, what="executor") == 2
    assert blocked[0] is None
    assert blocked[1] == pytest.approx(0, abs=0.5), "the first event that waits is named with how long it has"
    assert own.value(m.BLOCKED, what="executor", topic="in", partition="0", offset="5") is None


def test_nothing_is_run_once_it_is_to_be_given_up() -> None:
    own = Running(lambda _inputs: pytest.fail("it was given up"))
    own.abandon.set()
    with pytest.raises(Abandoned, match="2 events and more were not run in time"):
        own.answer(0, batch_of("ee"))
    assert own.value(m.BATCHES, reason="size") is None


def test_batch_whose_results_nobody_writes_does_not_run() -> None:
    assignment = Assignment()
    assignment.add([("in", 0)])
    ran: list[int] = []

    def run(inputs: Tensors) -> dict[str, Any]:
        ran.append(len(inputs["x"]))
        return negated(inputs)

    own = Running(run, is_outdated=assignment.is_outdated)
    assert own.answer(0, batch_of("ee", start=5)).rows.tolist() == [0, 1]
    assignment.drop_read()  # read again
    found = own.answer(1, batch_of("ee", start=7))
    assert (found.rows.tolist(), found.outputs, found.rejected) == ([], {}, {})
    assignment.renew()
    assignment.remove([("in", 0)])  # revoked
    assert own.answer(2, batch_of("ee", start=9)).rows.tolist() == []
    assert ran == [2]


def test_events_whose_deadline_passes_during_an_outage_do_not_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, batch_start, NOW)
    ran: list[list[float]] = []

    def run(inputs: Tensors) -> dict[str, Any]:
        ran.append(np.ravel(inputs["x"]).tolist())
        if len(ran) == 1:
            clock.now += 10
            raise ExecutorUnavailable("away")
        return negated(inputs)

    own = Running(run)
    found = own.answer(0, with_deadlines([NEVER, (NOW + 5) * 1000, NEVER]))
    assert ran == [[0.0, 1.0, 2.0], [0.0, 2.0]]
    assert found.rows.tolist() == [0, 2]
    assert found.outputs["y"].ravel().tolist() == [0.0, -2.0]
    assert {row: why.reason for row, why in found.rejected.items()} == {1: "expired"}
    assert own.value(m.STAGE_SECONDS, "_count", stage="infer") == 1


def test_batch_that_is_to_be_read_again_after_an_outage_does_not_run() -> None:
    assignment = Assignment()
    assignment.add([("in", 0)])
    ran: list[int] = []

    def run(inputs: Tensors) -> dict[str, Any]:
        ran.append(len(inputs["x"]))
        assignment.drop_read()
        raise ExecutorUnavailable("away")

    found = Running(run, is_outdated=assignment.is_outdated).answer(0, batch_of("ee", start=5))
    assert (found.rows.tolist(), found.outputs, found.rejected) == ([], {}, {})
    assert ran == [2]


def test_outage_does_not_count_as_time_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, runner)
    tries: list[float] = []

    def run(inputs: Tensors) -> dict[str, Any]:
        tries.append(clock.now)
        clock.now += 0.25
        if len(tries) == 1:
            raise ExecutorUnavailable("away")
        return negated(inputs)

    own = Running(run)
    assert own.answer(0, batch_of("ee")).seconds == pytest.approx(0.25)
    assert own.value(m.STAGE_SECONDS, "_sum", stage="infer") == pytest.approx(0.25)


def test_events_that_must_not_start_do_not_run() -> None:
    ran: list[float] = []

    def run(inputs: Tensors) -> dict[str, Any]:
        ran.extend(np.ravel(inputs["x"]).tolist())
        return negated(inputs)

    started: list[int] = []

    def admit(number: int, batch: MicroBatch) -> MicroBatch:
        started.append(number)
        return batch.under({("in", 1): 1})

    own = Running(run, admit=admit)
    mixed = replace(block("eeee", places=[0, 1, 1, 0]), deadlines=np.array([NEVER, NEVER, 1, 1]))
    found = own.answer(3, MicroBatch((BatchSlice(mixed, 0, 4, 0, 4),), "size"))
    assert (ran, found.rows.tolist()) == ([1.0], [1])
    assert {row: why.reason for row, why in found.rejected.items()} == {2: "expired"}
    assert own.value(m.BATCH_EVENTS, "_sum") == 2
    assert found.batch.is_cut
    timeless = block("ee", places=[1, 0])
    assert own.answer(4, MicroBatch((BatchSlice(timeless, 0, 2, 0, 2),), "size")).rows.tolist() == [0]
    nothing = own.answer(5, batch_of("ee"))
    assert (nothing.rows.tolist(), nothing.rejected, nothing.batch.is_cut) == ([], {}, True)
    assert started == [3, 4, 5]


def test_deadline_in_seconds_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, batch_start, 1_700_000_000.0)
    found = Running().answer(0, with_deadlines([1_700_000_060]))
    assert "1700000060 looks like seconds, but deadlines are milliseconds since 1970" in found.rejected[0].error
