"""What running by length costs: a call takes its events times the length they are padded to, and something besides."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.interface import Tensors
from millstream.inference.ragged import Ragged
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput

LONGEST, LENGTHS_RUN = 64, (8, 16, 64)
ITEMS = TensorInput("items", ("x",), array=True, dtype="int64", shape=(LONGEST,), max_length=LONGEST)
SIGNATURE = Signature((ITEMS,), (TensorOutput("y", "y"),))
MODEL = ModelVersion("m", 1, Path("model.onnx"), "onnx", SIGNATURE, (), (8, 16))
ITEM = 1e-6  # seconds


@dataclass
class Timed:
    """Sums items, and takes time on a clock of its own: a call so many items' time, and each item of the call its own."""

    call: float  # items
    device: str = "cuda"
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    max_events: int = 16
    refuses: bool = False
    stumbles: bool = False  # every other call takes a second more
    now: float = 0.0  # seconds
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of each call

    def warm_up(self) -> None: ...

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        if self.refuses:
            raise ModelRejected("blank")
        items = inputs["items"]
        self.shapes.append(items.shape)
        self.now += (self.call + items.size) * ITEM + (self.stumbles and len(self.shapes) % 2)
        return {"y": items.sum(axis=1)}

    def close(self) -> None: ...


def warmed_up(executor: Timed) -> ByLength:
    """An executor by length that has measured on the clock of this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.inference.executors.by_length.time.perf_counter", lambda: executor.now)
        made = ByLength(MODEL, executor)
        made.warm_up()
    executor.shapes.clear()
    return made


def events_of(lengths: list[int]) -> dict[str, Ragged]:
    """An event's items are all 1, so that its sum is its length."""
    return {"items": Ragged.of_lengths(np.ones(sum(lengths), np.int64), np.array(lengths))}


def padded_cost(shapes: list[tuple[int, ...]], call: float) -> float:
    """Items of all calls, longest times count, and what the calls cost besides."""
    return sum(call + events * length for events, length in shapes)


def least_cost(lengths: list[int], call: float) -> float:
    """The least of all ways to run these events."""
    costs = []
    for used in product([False, True], repeat=len(LENGTHS_RUN)):
        kept = [length for length, use in zip(LENGTHS_RUN, used, strict=True) if use]
        if kept and kept[-1] >= max(lengths):
            padded = [next(length for length in kept if length >= own) for own in lengths]
            costs.append(call * len(set(padded)) + sum(padded))
    return min(costs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=16), st.sampled_from([0.0, 30.0, 100.0, 2000.0]))
def test_batch_costs_least_counted_in_padded_items(device: str, lengths: list[int], call: float) -> None:
    executor = Timed(call, device)
    answers = warmed_up(executor).run(events_of(lengths))
    assert answers["y"].tolist() == lengths
    assert padded_cost(executor.shapes, call) == pytest.approx(least_cost(lengths, call))


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (0, [(3, 8), (1, 64)]),
        (167, [(3, 8), (1, 64)]),  # padding three events from 8 to 64 costs 168 items more
        (169, [(4, 64)]),
    ],
)
def test_short_events_go_along_with_a_long_one_where_a_call_of_their_own_costs_more(
    call: float, shapes: list[tuple[int, ...]]
) -> None:
    executor = Timed(call)
    warmed_up(executor).run(events_of([5, 64, 8, 1]))
    assert executor.shapes == shapes


def test_call_that_something_else_held_up_is_not_what_calls_cost() -> None:
    executor = Timed(30, stumbles=True)
    warmed_up(executor).run(events_of([5, 64]))
    assert executor.shapes == [(1, 8), (1, 64)]


def test_model_that_refuses_blank_events_runs_as_if_calls_cost_nothing() -> None:
    executor = Timed(1e6, refuses=True)
    made = warmed_up(executor)
    executor.refuses = False
    made.run(events_of([5, 64]))
    assert executor.shapes == [(1, 8), (1, 64)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@given(
    st.lists(st.integers(0, LONGEST), min_size=1, max_size=40),
    st.sampled_from([0.0, 30.0, 1e9]),
    st.sampled_from([1, 60, 64, 300, 2000]),
    st.sampled_from([(1, 4, 16), (4, 16), (16,)]),
)
def test_padded_tensor_of_a_call_is_bounded_and_one_smallest_batch_always_runs(
    device: str, lengths: list[int], call: float, most: int, sizes: tuple[int, ...]
) -> None:
    executor = Timed(call, device, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.inference.executors.by_length.MAX_ITEMS", most)
        patch.setattr("millstream.inference.executors.by_length.time.perf_counter", lambda: executor.now)
        made = ByLength(MODEL, executor)
        made.warm_up()  # measures the calls: dear ones don't make the tensors larger
        answers = made.run(events_of(lengths))
    assert answers["y"].tolist() == lengths
    # An executor may pad a call to the next of its batch sizes; warming up is bounded too.
    as_run = [(min(size for size in sizes if size >= events), length) for events, length in executor.shapes]
    assert all(events * length <= most or events == sizes[0] for events, length in as_run)


@pytest.mark.parametrize(("device", "sizes"), [("cuda", (1, 4, 16)), ("cpu", (1,))])
def test_every_length_is_warmed_up_and_on_a_gpu_in_every_size(device: str, sizes: tuple[int, ...]) -> None:
    executor = Timed(10, device)
    ByLength(MODEL, executor).warm_up()
    shortest = {(size, 8) for size in executor.batch_sizes}
    timed = {(1, 8), (16, 64)}  # the smallest call and the largest
    assert set(executor.shapes) == shortest | set(product(sizes, LENGTHS_RUN)) | timed


def test_model_of_one_length_is_padded_to_it() -> None:
    executor = Timed(10)
    made = ByLength(replace(MODEL, length_buckets=(LONGEST,)), executor)
    made.run(events_of([5, 1]))
    assert executor.shapes == [(2, LONGEST)]


MASK = TensorInput("mask", (), array=True, dtype="float32", shape=(LONGEST,), max_length=LONGEST, mask=True)
FLOATS = replace(ITEMS, dtype="float32")


@dataclass
class Pooling(Timed):
    """Pools items in some way."""

    pool: Callable[[Tensors], npt.NDArray[Any]] = lambda inputs: inputs["items"].mean(axis=1)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        return {"y": self.pool(inputs)}


def said_of(caplog: pytest.LogCaptureFixture, pool: Callable[[Tensors], npt.NDArray[Any]], **changed: Any) -> str:
    inputs = changed.pop("inputs", (FLOATS, MASK))
    ByLength(
        replace(MODEL, signature=replace(SIGNATURE, inputs=inputs), **changed), Pooling(0, "cpu", pool=pool)
    ).warm_up()
    return caplog.text


@pytest.mark.parametrize(
    "pool",
    [
        lambda inputs: inputs["items"].mean(axis=1),
        lambda inputs: inputs["items"].max(axis=1),
        lambda inputs: np.stack([inputs["items"].sum(axis=1), (inputs["items"] == 0).sum(axis=1)], axis=1),
        lambda inputs: np.array([f"{inputs['items'].shape[1]} items"] * len(inputs["items"]), object),
    ],
    ids=["mean", "maximum", "one of two elements", "text"],
)
@pytest.mark.parametrize("inputs", [(FLOATS,), (ITEMS,), (FLOATS, MASK)], ids=["floats", "indices", "unused mask"])
def test_model_that_takes_padding_for_items_is_told(
    caplog: pytest.LogCaptureFixture, pool: Callable[[Tensors], npt.NDArray[Any]], inputs: tuple[TensorInput, ...]
) -> None:
    if inputs == (ITEMS,):
        pool = lambda given: given["items"].mean(axis=1)  # noqa: E731  indices are 1, above the padding
    said = said_of(caplog, pool, inputs=inputs)
    assert "the model takes padding for items: output `y` of an event of 8 items is" in said
    assert "(`length_buckets: [64]`)" in said


@pytest.mark.parametrize(
    "pool",
    [
        lambda inputs: inputs["items"].sum(axis=1),
        lambda inputs: (inputs["items"] * inputs["mask"]).sum(axis=1) / inputs["mask"].sum(axis=1),
        lambda inputs: np.array(["text"] * len(inputs["items"]), object),
    ],
    ids=["padding adds nothing", "mask", "texts"],
)
def test_model_that_leaves_padding_out_is_not_talked_of(
    caplog: pytest.LogCaptureFixture, pool: Callable[[Tensors], npt.NDArray[Any]]
) -> None:
    assert said_of(caplog, pool) == ""


def attention(inputs: Tensors) -> npt.NDArray[Any]:
    """Of embeddings that are alike, so that padding changes little."""
    items = 1 + inputs["items"] / 100
    weights = np.exp(items) / np.exp(items).sum(axis=1, keepdims=True)
    return np.asarray((weights * items).sum(axis=1))


def test_small_effect_of_padding_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert "takes padding for items" in said_of(caplog, attention, inputs=(ITEMS,))


def test_model_whose_results_round_a_little_differently_is_not_talked_of(caplog: pytest.LogCaptureFixture) -> None:
    assert said_of(caplog, lambda inputs: inputs["items"].sum(axis=1) * (1 + 1e-6 * inputs["items"].shape[1])) == ""


def test_indices_that_the_model_does_not_know_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def small(inputs: Tensors) -> npt.NDArray[Any]:
        if inputs["items"].max() > 1:
            raise ModelRejected("index out of range")
        return np.asarray(inputs["items"].mean(axis=1))

    assert "takes padding for items" in said_of(caplog, small, inputs=(ITEMS,))
    caplog.clear()

    def sums(inputs: Tensors) -> npt.NDArray[Any]:
        small(inputs)
        return np.asarray(inputs["items"].sum(axis=1))

    assert said_of(caplog, sums, inputs=(ITEMS,)) == ""


def test_model_that_rejects_made_up_events_is_measured_nevertheless() -> None:
    class Particular(Timed):
        def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
            if inputs["items"].any() and len(inputs["items"]) == 1 and not self.warm:
                raise ModelRejected("index out of range")
            return super().run(inputs)

        warm = False

    executor = Particular(1e6)
    made = warmed_up(executor)
    executor.warm = True
    made.run(events_of([5, 64]))
    assert executor.shapes == [(2, 64)], "calls are known to cost much"


def test_model_that_runs_all_events_at_one_length_is_not_talked_of(caplog: pytest.LogCaptureFixture) -> None:
    assert said_of(caplog, lambda inputs: inputs["items"].mean(axis=1), length_buckets=(LONGEST,)) == ""


class PerItem(Timed):
    """Gives a number for each item."""

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        return {"y": inputs["items"] * 2}


def test_model_whose_outputs_have_the_length_of_the_event_is_refused_before_any_event() -> None:
    with pytest.raises(
        ModelConfigError, match=r"output `y` has another shape for events of another length: \[8\], \[16\]"
    ):
        ByLength(MODEL, PerItem(call=1)).warm_up()
    at_one_length = ByLength(replace(MODEL, length_buckets=(64,)), PerItem(call=1))
    at_one_length.warm_up()
    assert at_one_length.run(events_of([3, 20]))["y"].shape == (2, 64)
