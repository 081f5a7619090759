import io
import sys
from itertools import accumulate
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.flow import in_flight
from millstream.consumers.flow.in_flight import (
    BACKLOG_AFTER,
    MEASURED_COST,
    InFlightBudget,
    RecordCost,
    TopicQuotas,
    record_cost_of,
)
from millstream.inference.features import to_tensors
from millstream.inference.ragged import Ragged
from millstream.inference.signature import Signature, TensorInput
from millstream.schemas.avro.types import dtype_of
from millstream.schemas.column import ListColumn, NumberColumn, StringColumn
from millstream.schemas.dtypes import ListOf
from tests.consumers.clock import Clock
from tests.consumers.in_memory import ended, running
from tests.schemas.tables import table_of

STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(0, 20)), max_size=40)


def has_room(budget: InFlightBudget, *, paused: bool = False) -> bool:
    return budget.wait_for_room(0, paused=paused)


@given(STEPS, st.integers(1, 20), st.integers(1, 150), st.booleans())
def test_full_at_the_limit_and_room_again_below_a_share_of_it(
    steps: list[tuple[bool, int, int]], most: int, most_bytes: int, paused: bool
) -> None:
    share = (
        0.5 if paused else max(min(0.875, 1 - 1 / most), 0.5)
    )  # room for one event at least, where half is that much
    budget = InFlightBudget(most, most_bytes)
    polls: list[tuple[int, int]] = []  # added and not released: the model
    full = False
    for adding, events, size in steps:
        if adding:
            budget.add(events, size, 0.0)
            polls.append((events, size))
        elif polls:
            budget.release(*polls.pop(0))
        count, amount = sum(poll[0] for poll in polls), sum(poll[1] for poll in polls)
        assert (budget.events, budget.bytes) == (count, amount)
        if count >= most or amount >= most_bytes:
            full = True
        elif count <= int(most * share) and amount <= int(most_bytes * share):
            full = False
        assert has_room(budget, paused=paused) == (not full)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.lists(st.integers(1, 5), max_size=12))
def test_oldest_is_the_first_poll_with_an_event_still_held(polls: list[int], releases: list[int]) -> None:
    budget = InFlightBudget(1000, 1000)
    for at, events in enumerate(polls):
        budget.add(events, 0, float(at))
    ends = list(accumulate(polls))
    done = 0
    assert budget.oldest() == 0.0
    for events in releases:
        released = min(events, budget.events)
        budget.release(released, 0)
        done += released
        assert budget.oldest() == next((float(at) for at, end in enumerate(ends) if end > done), None)


def test_nothing_held_has_no_age_and_room() -> None:
    budget = InFlightBudget(1, 1)
    assert (budget.events, budget.bytes, budget.oldest(), has_room(budget)) == (0, 0, None, True)


def test_room_comes_back_soon_but_later_after_a_pause() -> None:
    budget = InFlightBudget(80, 1000)
    budget.add(80, 80, 0.0)
    budget.release(9, 9)
    assert not has_room(budget)
    budget.release(1, 1)
    assert not has_room(budget, paused=True)
    assert has_room(budget)
    budget.add(10, 10, 0.0)
    budget.release(39, 39)
    assert not has_room(budget, paused=True)
    budget.release(1, 1)
    assert has_room(budget, paused=True)


def test_room_is_for_a_micro_batch() -> None:
    budget = InFlightBudget(80, 1000, batch=20)
    budget.add(80, 80, 0.0)
    budget.release(19, 19)
    assert not has_room(budget)
    budget.release(1, 1)
    assert has_room(budget)


def test_bytes_alone_fill_it() -> None:
    budget = InFlightBudget(100, 10)
    budget.add(1, 10, 0.0)
    assert not has_room(budget)
    budget.release(1, 10)
    assert has_room(budget)


def test_part_of_the_limits_is_the_larger_of_both() -> None:
    budget = InFlightBudget(100, 10_000, RecordCost(2, 50))
    assert budget.part(50, 0) == 0.5
    assert budget.part(50, 2500) == 0.75
    assert budget.part(0, 2500) == 0.5
    assert budget.part(0, 0) == 0


@pytest.mark.parametrize(
    ("dtype", "avro", "item"),
    [
        ("int64", "long", 1),
        ("int32", "int", 1),
        ("float32", "int", 1),  # a float, written as an int by a producer whose schema says so
        ("float64", "long", 1),
        ("bool", "boolean", True),
        ("string", "string", "ab"),
        ("string", "string", "Ā"),
        ("string", "string", ""),
    ],
)
@pytest.mark.parametrize("tensors", [1, 2])
def test_items_that_take_most_for_their_bytes_take_no_more_than_they_count(
    dtype: str, avro: str, item: Any, tensors: int
) -> None:
    size = 1000
    inputs = [TensorInput(f"t{at}", ("x",), True, dtype, (size,), max_length=size) for at in range(tensors)]
    # An object for each text, as there is for what is decoded.
    table = table_of({"x": ListOf(dtype_of(avro))}, x=[[item] * size])
    columns: list[Ragged] = list(to_tensors(table, inputs, allow_nan=False).tensors.values())
    taken = sum(column.values.nbytes + column.offsets.nbytes for column in columns)
    if dtype == "string":
        taken += sum(sys.getsizeof(text) for column in columns for text in column.values.tolist() if len(text) > 0)
    value = io.BytesIO()
    fastavro.schemaless_writer(value, {"type": "array", "items": avro}, [item] * size)
    length = len(value.getvalue())
    weight = record_cost_of(Signature(tuple(inputs), ()), {})
    assert length + taken <= weight.copies * length + weight.overhead
    # Else most of the memory that the operator allows would never be used.
    assert weight.copies * length <= 4 * (length + taken) or item == ""


def test_record_of_a_model_without_inputs_of_varying_length_counts_twice() -> None:
    scalars, vector = (TensorInput(f"t{at}", ("x",), bool(at), "int64", (1,)) for at in range(2))
    assert record_cost_of(Signature((scalars, vector), ()), {"x": "int64", "s": "string"}) == MEASURED_COST


@pytest.mark.parametrize(("avro", "item"), [("string", ""), ("long", 1), ("boolean", True), ("float", 0.5)])
def test_included_lists_take_no_more_memory_than_they_count(avro: str, item: Any) -> None:
    dtype = ListOf(dtype_of(avro))
    column = table_of({"x": dtype}, x=[[item, None] * 500])["x"]
    assert isinstance(column, ListColumn)
    items = column.items
    assert isinstance(items, NumberColumn | StringColumn)
    assert items.valid is not None
    taken = items.valid.nbytes
    if isinstance(items, StringColumn):
        taken += items.packed.buffer.nbytes + items.packed.starts.nbytes + items.packed.lengths.nbytes
    else:
        taken += items.values.nbytes
    value = io.BytesIO()
    fastavro.schemaless_writer(value, {"type": "array", "items": avro}, [item] * 1000)  # none has a union's byte
    length = len(value.getvalue())
    weight = record_cost_of(Signature((), ()), {"x": dtype})
    assert length + taken <= weight.copies * length + weight.overhead


def test_backlog_is_an_event_that_waits_for_long_or_a_quarter_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, in_flight)
    budget = InFlightBudget(100, 1000)
    assert not budget.has_backlog()
    budget.add(1, 1, clock.now)
    clock.now += BACKLOG_AFTER
    assert not budget.has_backlog()
    clock.now += 0.1
    assert budget.has_backlog()
    budget.release(1, 1)
    assert not budget.has_backlog()
    budget.add(25, 25, clock.now)
    assert not budget.has_backlog()
    budget.add(1, 1, clock.now)
    assert budget.has_backlog()


def test_waiting_for_room_ends_when_there_is_room() -> None:
    budget = InFlightBudget(2, 100)
    budget.add(2, 2, 0.0)
    found: list[bool] = []
    waiting = running(lambda: found.append(budget.wait_for_room(30)))
    budget.release(2, 2)
    assert ended(waiting)
    assert found == [True]


def test_topic_of_little_weight_is_paused_first_and_read_on_at_half_of_its_share() -> None:
    quotas = TopicQuotas({"urgent": 3.0, "bulk": 1.0}, 40)
    for _ in range(10):
        assert quotas.full == frozenset()
        for topic in ("urgent", "bulk"):
            quotas.add(topic, 1)
    assert quotas.full == {"bulk"}
    quotas.add("urgent", 20)
    assert quotas.full == {"urgent", "bulk"}
    for left in range(9, 4, -1):
        assert "bulk" in quotas.full
        quotas.remove("bulk", 1)
        assert ("bulk" in quotas.full) is (left > 5)
    assert quotas.full == {"urgent"}


@given(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.01, 100), min_size=1),
    st.integers(1, 100),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=30),
)
def test_no_topic_is_full_with_nothing_waiting(
    weights: dict[str, float], records: int, reads: list[tuple[str, int]]
) -> None:
    """Whatever its weight: it would never be read again."""
    quotas = TopicQuotas(weights, records)
    waiting = dict.fromkeys(weights, 0)
    for topic, count in reads:
        if topic in weights and topic not in quotas.full:
            quotas.add(topic, count)
            waiting[topic] += count
    for topic, count in waiting.items():
        if count:
            quotas.remove(topic, count)
    assert quotas.full == frozenset()
    assert quotas.least >= 1
