from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.reorder_buffer import Ordering, ReorderBuffer
from millstream.consumers.sink.watermark import Watermark

KEYS = st.sets(st.sampled_from("abcdef"), max_size=3)


@st.composite
def flights(draw: st.DrawFn) -> tuple[list[set[str]], list[int]]:
    """The keys of batches in their order of departure, and the order in which their results come."""
    keys = draw(st.lists(KEYS, min_size=1, max_size=12))
    return keys, draw(st.permutations(range(len(keys))))


def released(ordering: Ordering, keys: Sequence[set[str]], arrivals: Sequence[int]) -> list[int]:
    """The order in which results leave."""
    flying: ReorderBuffer[int] = ReorderBuffer(ordering)
    for number, of in enumerate(keys):
        flying.submit(number, of)
    left = [answer for number in arrivals for answer in flying.complete({number: number})]
    assert len(flying) == 0
    return left


@given(flights())
def test_by_partition_results_leave_in_the_order_of_departure(given_: tuple[list[set[str]], list[int]]) -> None:
    keys, arrivals = given_
    assert released("partition", keys, arrivals) == list(range(len(keys)))


@given(flights())
def test_by_key_no_result_passes_another_of_its_keys(given_: tuple[list[set[str]], list[int]]) -> None:
    keys, arrivals = given_
    left = released("key", keys, arrivals)
    assert sorted(left) == list(range(len(keys)))
    for key in "abcdef":
        with_key = [number for number in left if key in keys[number]]
        assert with_key == sorted(with_key)


@given(flights())
def test_without_order_results_leave_as_they_come(given_: tuple[list[set[str]], list[int]]) -> None:
    keys, arrivals = given_
    assert released("none", keys, arrivals) == arrivals


def test_by_key_a_result_passes_those_of_other_keys() -> None:
    flying: ReorderBuffer[str] = ReorderBuffer("key")
    flying.submit(0, "a")
    flying.submit(1, "b")
    flying.submit(2, "ab")
    assert flying.complete({1: "second"}) == ["second"]
    assert flying.complete({2: "third"}) == []
    assert flying.complete({0: "first"}) == ["first", "third"]


@given(st.permutations(range(12)))
def test_watermark_passes_what_is_done_in_order_and_never_a_gap(finished: list[int]) -> None:
    watermark: Watermark[int] = Watermark()
    passed: list[int] = []
    done: set[int] = set()
    for number in finished:
        done.add(number)
        passed += watermark.done(number, number)
        gap = min(set(range(13)) - done)
        assert passed == list(range(gap))


@pytest.mark.parametrize("ordering", ["partition", "key", "none"])
def test_batches_may_depart_while_others_are_out(ordering: Ordering) -> None:
    flying: ReorderBuffer[int] = ReorderBuffer(ordering)
    flying.submit(0, "a")
    assert flying.complete({0: 0}) == [0]
    flying.submit(1, "a")
    assert len(flying) == 1
    assert flying.complete({1: 1}) == [1]


def test_results_that_arrive_together_go_on_together_in_order_of_submission() -> None:
    flying: ReorderBuffer[str] = ReorderBuffer("partition")
    for number in range(4):
        flying.submit(number)
    assert flying.complete({3: "fourth", 1: "second"}) == []
    assert flying.complete({2: "third", 0: "first"}) == ["first", "second", "third", "fourth"]
    assert not flying
