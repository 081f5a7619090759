import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.poison import run_isolating
from inference.errors import ExecutorUnavailable, ModelRejected, OutOfMemory
from inference.executors.interface import Tensors, rows_of
from tests.consumers.in_memory import NegatingExecutor

EVENTS = st.integers(1, 70)


def inputs_of(events: int) -> dict[str, npt.NDArray[Any]]:
    return {"x": np.arange(events, dtype=np.float32).reshape(-1, 1)}


def refusing(bad: set[int]) -> NegatingExecutor:
    def before(inputs: Tensors) -> None:
        found = bad & {int(x) for x in inputs["x"][:, 0]}
        if found:
            raise ModelRejected(f"event {min(found)} is bad")

    return NegatingExecutor(before)


@given(EVENTS, st.sets(st.integers(0, 69)))
def test_exactly_the_bad_events_are_rejected_and_the_others_answered_in_order(events: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    outputs, rows, rejected = run_isolating(refusing(bad).run, inputs_of(events))
    good = [row for row in range(events) if row not in bad]
    assert rows.tolist() == good
    assert rejected == {row: f"event {row} is bad" for row in bad}
    if good:
        assert outputs["y"][:, 0].tolist() == [-row for row in good]
    else:
        assert outputs == {}


@given(EVENTS, st.sets(st.integers(0, 69)))
def test_isolating_takes_few_runs_for_few_bad_events(events: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    executor = refusing(bad)
    run_isolating(executor.run, inputs_of(events))
    # A run for each part on the way to a bad event, two at each of its levels, and the first.
    assert len(executor.sizes) <= 1 + 2 * len(bad) * math.ceil(math.log2(events))


@given(EVENTS, st.integers(1, 70), st.sets(st.integers(0, 69), max_size=3))
def test_micro_batch_too_large_for_the_memory_is_split_and_loses_nothing(events: int, fits: int, bad: set[int]) -> None:
    bad = {row for row in bad if row < events}
    refuse = refusing(bad)

    def before(inputs: Tensors) -> None:
        if rows_of(inputs) > fits:
            raise OutOfMemory("full")
        refuse.before(inputs)

    outputs, rows, rejected = run_isolating(NegatingExecutor(before).run, inputs_of(events))
    assert rejected.keys() == bad
    assert sorted([*rows.tolist(), *bad]) == list(range(events))
    if len(rows):
        assert outputs["y"][:, 0].tolist() == [-row for row in rows.tolist()]


def test_one_event_that_does_not_fit_the_memory_is_no_events_fault() -> None:
    def before(_inputs: Tensors) -> None:
        raise OutOfMemory("the device is full")

    with pytest.raises(ExecutorUnavailable, match="the device is full"):
        run_isolating(NegatingExecutor(before).run, inputs_of(4))


def test_outage_is_not_bisected() -> None:
    def before(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    executor = NegatingExecutor(before)
    with pytest.raises(ExecutorUnavailable, match="away"):
        run_isolating(executor.run, inputs_of(64))
    assert executor.sizes == [64]


def test_good_micro_batch_runs_once_and_is_not_copied() -> None:
    inputs = inputs_of(8)
    executor = NegatingExecutor(lambda given: np.testing.assert_(np.shares_memory(given["x"], inputs["x"])))
    run_isolating(executor.run, inputs)
    assert executor.sizes == [8]
