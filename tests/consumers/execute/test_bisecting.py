import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.consumers.events import Rejection
from millstream.consumers.execute.bisecting import BisectingExecutor, Bisection, Run
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.inference.errors import (
    EventRejection,
    EventsRejected,
    ExecutorUnavailable,
    ModelConfigError,
    ModelRejected,
    OutOfMemory,
)
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import Inputs, Tensors, rows_of
from millstream.inference.ragged import Ragged
from tests.consumers.in_memory import NegatingExecutor
from tests.inference.test_varying import python_model

EVENTS = st.integers(1, 70)


def inputs_of(events: int) -> dict[str, npt.NDArray[Any]]:
    return {"x": np.arange(events, dtype=np.float32).reshape(-1, 1)}


def isolation(run: Run) -> BisectingExecutor:
    return BisectingExecutor(run, max_events=70, allow_nan_outputs=False)


def refusing(bad: set[int]) -> NegatingExecutor:
    def before(inputs: Tensors) -> None:
        found = bad & {int(x) for x in inputs["x"][:, 0]}
        if found:
            raise ModelRejected(f"event {min(found)} is bad")

    return NegatingExecutor(before)


@given(EVENTS, st.sets(st.integers(0, 69)))
def test_exactly_the_bad_events_are_rejected_and_the_others_answered_in_order(events: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    outputs, rows, rejected = isolation(refusing(bad).run).run(inputs_of(events))
    good = [row for row in range(events) if row not in bad]
    assert rows.tolist() == good
    assert rejected == {row: Rejection("model_rejected", f"event {row} is bad") for row in bad}
    if good:
        assert outputs["y"][:, 0].tolist() == [-row for row in good]
    else:
        assert outputs == {}


@given(EVENTS, st.sets(st.integers(0, 69)))
def test_isolating_takes_few_runs_for_few_bad_events(events: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    executor = refusing(bad)
    isolation(executor.run).run(inputs_of(events))
    # A run for each part on the way to a bad event, two at each of its levels, and the first.
    assert len(executor.sizes) <= 1 + 2 * len(bad) * math.ceil(math.log2(events))


@given(EVENTS, st.sets(st.integers(0, 69)), st.integers(1, 70))
def test_executor_that_names_the_rejected_events_runs_once(events: int, bad: set[int], fits: int) -> None:
    sizes: list[int] = []

    def run(inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        if rows_of(inputs) > fits:
            raise OutOfMemory("full")
        x = inputs["x"]
        sizes.append(len(x))
        good = np.array([row for row, value in enumerate(x[:, 0].tolist()) if value not in bad], np.int64)
        outputs = {"y": -x[good]} if len(good) else {}
        if len(good) == len(x):
            return outputs
        rejected = {row: EventRejection("no_model", f"{x[row, 0]:g}") for row in range(len(x)) if row not in good}
        raise EventsRejected(outputs, good, rejected)

    outputs, rows, rejected = isolation(run).run(inputs_of(events))
    good = [row for row in range(events) if row not in bad]
    assert rows.tolist() == good
    assert rejected == {row: Rejection("no_model", str(row)) for row in range(events) if row in bad}
    assert outputs["y"][:, 0].tolist() == [-row for row in good] if good else outputs == {}
    assert sum(sizes) == events
    if fits >= events:
        assert sizes == [events]


@given(EVENTS, st.integers(1, 70), st.sets(st.integers(0, 69), max_size=3))
def test_micro_batch_too_large_for_the_memory_is_split_and_loses_nothing(events: int, fits: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    refuse = refusing(bad)

    def before(inputs: Tensors) -> None:
        if rows_of(inputs) > fits:
            raise OutOfMemory("full")
        refuse.before(inputs)

    outputs, rows, rejected = isolation(NegatingExecutor(before).run).run(inputs_of(events))
    assert rejected.keys() == bad
    assert sorted([*rows.tolist(), *bad]) == list(range(events))
    if len(rows):
        assert outputs["y"][:, 0].tolist() == [-row for row in rows.tolist()]


def test_one_event_that_does_not_fit_the_memory_is_no_events_fault() -> None:
    def before(_inputs: Tensors) -> None:
        raise OutOfMemory("the device is full")

    with pytest.raises(ExecutorUnavailable, match="the device is full"):
        isolation(NegatingExecutor(before).run).run(inputs_of(4))


@given(EVENTS, st.sets(st.integers(1, 69)))
def test_events_that_need_too_much_memory_alone_are_rejected_and_the_others_answered(
    events: int, large: set[int]
) -> None:
    large = {row for row in large if row < events}

    def before(inputs: Tensors) -> None:
        if large & {int(x) for x in inputs["x"][:, 0]}:
            raise OutOfMemory("8 EiB wanted")

    isolating = isolation(NegatingExecutor(before).run)
    outputs, rows, rejected = isolating.run(inputs_of(events))
    assert rows.tolist() == [row for row in range(events) if row not in large]
    assert outputs["y"][:, 0].tolist() == [-row for row in rows.tolist()]
    assert {row: why.reason for row, why in rejected.items()} == dict.fromkeys(large, "model_rejected")
    assert all(why.error.startswith("8 EiB wanted. This event needs more memory") for why in rejected.values())
    assert isolating.run({"x": np.zeros((70, 1), np.float32)})[1].tolist() == list(range(70))


def test_batches_are_not_smaller_after_an_event_that_needs_too_much_memory() -> None:
    executor, large = NegatingExecutor(), [True]

    def run(inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        if large[0] and 7 in inputs["x"]:
            raise OutOfMemory("full")
        return executor.run(inputs)

    isolating = isolation(run)
    isolating.run(inputs_of(70))
    large[0], executor.sizes = False, []
    isolating.run(inputs_of(70))
    assert executor.sizes == [70]


def test_event_whose_long_text_or_number_fills_the_memory_is_rejected_and_a_short_text_may_choose_a_model() -> None:
    long = "l" * 900_000

    def run(inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        if "short" in inputs["t"] or long in inputs["t"] or 7 in inputs["r"].items:
            raise OutOfMemory("full")
        return {"y": np.zeros(rows_of(inputs), np.float32)}

    def inputs(texts: list[str], numbers: list[int]) -> dict[str, Any]:
        return {"t": np.array(texts, object), "r": Ragged.of_lengths(np.array(numbers), np.ones(len(texts), np.int64))}

    _, rows, rejected = isolation(run).run(inputs(["a", "b", "c", long], [1, 7, 3, 4]))
    assert (rows.tolist(), list(rejected)) == ([0, 2], [1, 3])
    with pytest.raises(ExecutorUnavailable, match="full"):
        isolation(run).run(inputs(["a", "short"], [1, 2]))


def test_event_that_fits_into_memory_the_second_time_is_answered() -> None:
    short = [True, False, False]  # the event alone, with zeros, and once more

    def before(_inputs: Tensors) -> None:
        if short.pop(0):
            raise OutOfMemory("full")

    _, rows, rejected = isolation(NegatingExecutor(before).run).run(inputs_of(1))
    assert (rows.tolist(), rejected) == ([0], {})


def test_output_whose_form_changes_from_batch_to_batch_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [[0.5], [0.25], [1], ["a"], [[1.0, 2.0]], [0.5], ["b"]]
    isolating = isolation(lambda _inputs: {"y": np.array(answers.pop(0))})
    for _ in range(3):
        isolating.run(inputs_of(1))
    assert caplog.text == ""
    while answers:
        isolating.run(inputs_of(1))
    assert (
        caplog.text.count("the model gives output `y` in another form: numbers in the shape [] before, and texts") == 1
    )


def test_outage_is_not_bisected() -> None:
    def before(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    executor = NegatingExecutor(before)
    with pytest.raises(ExecutorUnavailable, match="away"):
        isolation(executor.run).run(inputs_of(64))
    assert executor.sizes == [64]


def test_good_micro_batch_runs_once_and_is_not_copied() -> None:
    inputs = inputs_of(8)
    executor = NegatingExecutor(lambda given: np.testing.assert_(given is inputs))
    isolation(executor.run).run(inputs)
    assert executor.sizes == [8]


@given(EVENTS, st.integers(1, 70))
def test_size_that_fits_the_memory_is_remembered(events: int, fits: int) -> None:
    def before(inputs: Tensors) -> None:
        if rows_of(inputs) > fits:
            raise OutOfMemory("full")

    executor = NegatingExecutor(before)
    isolated = isolation(executor.run)
    isolated.run(inputs_of(events))
    executor.sizes.clear()
    _, rows, _ = isolated.run(inputs_of(events))
    assert len(rows) == events
    # In so many small runs the size is tried to grow, less and less often.
    assert sum(size > fits for size in executor.sizes) <= 2


def spoiling(values: dict[int, float]) -> Run:
    """`y` = -`x`, two of them an event, but for these events the second is the value given; `count` is a whole number."""

    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        y = np.repeat(-inputs["x"], 2, axis=1)
        for place, x in enumerate(inputs["x"][:, 0].tolist()):
            y[place, 1] = values.get(int(x), y[place, 1])
        return {"y": y, "count": np.ones(len(y), np.int64)}

    return run


@given(
    EVENTS, st.dictionaries(st.integers(0, 69), st.sampled_from([math.nan, math.inf, -math.inf])), st.integers(1, 70)
)
def test_exactly_the_events_whose_output_is_no_number_are_rejected(
    events: int, spoilt: dict[int, float], fits: int
) -> None:
    spoil = spoiling(spoilt)

    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if rows_of(inputs) > fits:
            raise OutOfMemory("full")
        return spoil(inputs)

    outputs, rows, rejected = isolation(run).run(inputs_of(events))
    expected = {row: value for row, value in spoilt.items() if row < events}
    assert rejected == {row: Rejection("nan_output", f"output `y`[1] is {value}") for row, value in expected.items()}
    assert rows.tolist() == [row for row in range(events) if row not in expected]
    if len(rows):
        assert outputs["y"].tolist() == [[-row, -row] for row in rows.tolist()]
        assert outputs["count"].tolist() == [1] * len(rows)
    else:
        assert outputs == {}


def test_event_rejected_and_event_without_a_number_each_have_their_reason() -> None:
    spoil = spoiling({1: math.nan})

    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if 2 in inputs["x"]:
            raise ModelRejected("no 2 please")
        return spoil(inputs)

    _, rows, rejected = isolation(run).run(inputs_of(4))
    assert rows.tolist() == [0, 3]
    assert rejected == {
        1: Rejection("nan_output", "output `y`[1] is nan"),
        2: Rejection("model_rejected", "no 2 please"),
    }


def test_scalar_output_is_named_without_a_place() -> None:
    _, _, rejected = isolation(lambda inputs: {"y": inputs["x"][:, 0] * np.inf}).run({"x": np.ones((1, 1))})
    assert rejected == {0: Rejection("nan_output", "output `y` is inf")}


def test_output_may_be_no_number_where_that_is_allowed() -> None:
    outputs, rows, rejected = BisectingExecutor(spoiling({1: math.nan}), max_events=4, allow_nan_outputs=True).run(
        inputs_of(2)
    )
    assert rows.tolist() == [0, 1]
    assert math.isnan(outputs["y"][1, 1])
    assert rejected == {}


def test_bug_is_logged_where_a_batch_shows_it_and_what_the_model_refuses_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if 1 in inputs["x"]:
            raise ModelRejected("event 1 is bad")
        if 2 in inputs["x"]:
            raise ZeroDivisionError("division by zero")
        return {"y": -inputs["x"]}

    net: SafetyNet[Inputs] = SafetyNet("infer", Metrics("p"))
    isolating = BisectingExecutor(run, max_events=70, allow_nan_outputs=False, net=net)
    _, rows, rejected = isolating.run(inputs_of(2))
    assert (rows.tolist(), list(rejected), caplog.messages) == ([0], [1], [])
    _, rows, rejected = isolating.run({"x": np.array([[2.0], [3.0]], np.float32)})
    assert (rows.tolist(), rejected[0].reason) == ([1], "internal_error")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_output_whose_shape_depends_on_who_shares_the_batch_is_the_models_fault() -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if rows_of(inputs) > 2:
            raise OutOfMemory("full")
        return {"y": np.zeros((rows_of(inputs), 1 + int(inputs["x"].max())))}

    with pytest.raises(ModelConfigError, match=r"\{'y': \[2, 2\]\} and \{'y': \[2, 4\]\}. Give each event the same"):
        isolation(run).run(inputs_of(4))


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (np.array([True, True, False, 5, 6], object), [0, 1, 2]),
        (np.array([2**60 + 1, 7, 9, 0.5, 1.5], object), [0, 1, 2]),
        (np.array([1, 2, 3, "a", "b"], object), [0, 1, 2]),
    ],
)
def test_outputs_of_another_type_than_most_are_rejected_where_memory_is_short(
    values: npt.NDArray[Any], kept: list[int]
) -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if rows_of(inputs) > 3:
            raise OutOfMemory("full")
        own = values[inputs["x"][:, 0].astype(int)]
        if len({type(value) for value in own}) > 1:
            raise ModelRejected("values of several types")
        return {"y": np.array(own.tolist())}

    outputs, rows, rejected = isolation(run).run(inputs_of(5))
    assert rows.tolist() == kept
    assert outputs["y"].tolist() == values[kept].tolist()
    assert set(rejected) == {3, 4}
    assert all("for others of its micro-batch" in why.error for why in rejected.values())


def test_error_of_the_whole_is_not_blamed_on_a_part_where_memory_became_short_meanwhile() -> None:
    bisection = Bisection(max_events=2, allow_nan_outputs=False)
    assert bisection.runs_whole(2)  # so a request with the whole is on its way
    other = bisection.steps(inputs_of(2))
    next(other)
    other.throw(OutOfMemory("full"))  # now one event at a time fits
    steps = bisection.steps(inputs_of(2), whole=True)
    next(steps)
    assert rows_of(steps.throw(ModelRejected("event 1 is bad"))) == 1
    assert rows_of(steps.send({"y": np.zeros((1, 1))})) == 1
    with pytest.raises(StopIteration) as end:
        steps.throw(ModelRejected("event 1 is bad"))
    _, rows, rejected = end.value.value
    assert (rows.tolist(), set(rejected)) == ([0], {1})


@given(st.lists(st.sampled_from([2, 2, 2, 3, 0]), min_size=1, max_size=70))
def test_events_whose_outputs_have_another_shape_than_most_are_rejected(lengths: list[int]) -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        own = [lengths[int(row)] for row in inputs["x"][:, 0]]
        if 0 in own:
            raise ModelRejected("bad")
        if len(set(own)) > 1:
            raise ModelRejected("the nested lists have different lengths")
        return {"y": np.repeat(-inputs["x"], own[0], axis=1), "z": inputs["x"]}

    assume(lengths.count(2) > lengths.count(3))
    outputs, rows, rejected = isolation(run).run(inputs_of(len(lengths)))
    assert rows.tolist() == [row for row, length in enumerate(lengths) if length == 2]
    assert outputs["y"].tolist() == [[-row, -row] for row in rows]
    why = "output `y` has shape [3] for this event, and [2] for others of its micro-batch"
    assert {row: rejection.error for row, rejection in rejected.items()} == {
        row: why if length else "bad" for row, length in enumerate(lengths) if length != 2
    }


def test_batch_before_decides_where_as_many_outputs_have_one_shape_as_another() -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        own = (inputs["x"][:, 0] == 0).tolist()
        if len(set(own)) > 1:
            raise ModelRejected("the nested lists have different lengths")
        return {"y": np.zeros((len(own), 1 if own[0] else 2))}

    several = isolation(run)
    several.run({"x": np.ones((3, 1), np.float32)})
    _, rows, rejected = several.run(inputs_of(2))
    assert (rows.tolist(), set(rejected)) == ([1], {0})


def test_good_events_run_together_again_where_the_longest_decides_the_shape() -> None:
    def run(inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if 1 in inputs["x"]:
            raise ModelRejected("bad")
        return {"y": np.repeat(-inputs["x"], int(inputs["x"].max()), axis=1)}

    outputs, rows, rejected = isolation(run).run(inputs_of(6))
    assert (rows.tolist(), set(rejected)) == ([0, 2, 3, 4, 5], {1})
    assert outputs["y"].tolist() == [[-row] * 5 for row in rows]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_exactly_the_events_that_the_model_refuses_are_rejected(
    no_fives: ByLength, lengths: list[int], expired: int
) -> None:
    inputs = {"items": Ragged.of_lengths(np.ones(sum(lengths), np.float32), np.array(lengths))}
    kept = np.array([row for row, length in enumerate(lengths) if length != expired], np.int64)
    assume(len(kept))
    # As `Runner` leaves out what is too late, and `BisectingExecutor` what the model refuses.
    outputs, rows, rejected = BisectingExecutor(no_fives.run, max_events=12, allow_nan_outputs=False).run(
        {name: array[kept] for name, array in inputs.items()}
    )
    own = [length for length in lengths if length != expired]
    assert sorted(rejected) == [row for row, length in enumerate(own) if length == 5]
    assert rows.tolist() == [row for row, length in enumerate(own) if length != 5]
    if len(rows):
        assert outputs["y"].tolist() == [length for length in own if length != 5]


@pytest.fixture(scope="module")
def no_fives(tmp_path_factory: pytest.TempPathFactory) -> ByLength:
    """It gives the number of items, and refuses a call with an event of five."""
    body = """
    def predict(self, inputs):
        lengths = inputs["mask"].sum(axis=1)
        assert 5 not in lengths
        return {"y": lengths}
"""
    executor = open_executor(python_model(tmp_path_factory.mktemp("refusing"), body), max_events=16)
    assert isinstance(executor, ByLength)
    return executor


def test_python_model_whose_lists_vary_in_length_answers_most_events(tmp_path: Path) -> None:
    config = "inputs:\n  - {tensor: x, fields: [a], dtype: float32}\noutputs:\n  - {tensor: y, name: y}\n"
    body = """
    def predict(self, inputs):
        return {"y": [[float(x)] * (3 if x == 5 else 2) for x in inputs["x"][:, 0]]}
"""
    executor = open_executor(python_model(tmp_path, body, config), max_events=16)
    outputs, rows, rejected = isolation(executor.run).run(inputs_of(8))
    assert rows.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert outputs["y"].tolist() == [[row, row] for row in rows]
    why = "output `y` has shape [3] for this event, and [2] for others of its micro-batch"
    assert rejected == {5: Rejection("model_rejected", why)}
