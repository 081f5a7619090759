"""Ragged arrays do what lists of lists do."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.ragged import Ragged

DTYPES = {
    "float32": st.integers(-9, 9).map(float),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "object": st.text(max_size=3),
}


@st.composite
def events(draw: st.DrawFn, dtype: str | None = None) -> tuple[list[list[Any]], Ragged]:
    """Events as lists of items, and the same ragged; at times as a part of more events."""
    dtype = dtype or draw(st.sampled_from(sorted(DTYPES)))
    made = draw(st.lists(st.lists(DTYPES[dtype], max_size=5), max_size=8))
    before, behind = (draw(st.lists(st.lists(DTYPES[dtype], max_size=2), max_size=2)) for _ in range(2))
    whole = ragged([*before, *made, *behind], dtype)
    return made, whole[len(before) : len(before) + len(made)]


def ragged(made: list[list[Any]], dtype: str) -> Ragged:
    items = np.array([item for event in made for item in event], np.dtype(dtype))
    return Ragged.of_lengths(items, np.array([len(event) for event in made], np.int64))


def lists(array: Ragged) -> list[list[Any]]:
    """Each event's items."""
    ends = array.offsets.tolist()
    return [array.values[start:stop].tolist() for start, stop in pairwise(ends)]


@given(events())
def test_lengths_and_items_are_those_of_the_events(case: tuple[list[list[Any]], Ragged]) -> None:
    made, array = case
    assert lists(array) == made
    assert len(array) == len(made)
    assert array.lengths.tolist() == [len(event) for event in made]
    assert array.items.tolist() == [item for event in made for item in event]


@given(events(), st.slices(8))
def test_slice_has_the_events_that_a_list_has(case: tuple[list[list[Any]], Ragged], rows: slice) -> None:
    made, array = case
    assert lists(array[rows]) == made[rows]


@given(events(), st.data())
def test_rows_are_taken_in_their_order_and_as_often_as_asked(
    case: tuple[list[list[Any]], Ragged], data: st.DataObject
) -> None:
    made, array = case
    rows = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=10) if made else st.just([]))
    assert lists(array[np.array(rows, np.int64)]) == [made[row] for row in rows]
    kept = data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made)))
    assert lists(array[np.array(kept, np.bool_)]) == [event for event, keep in zip(made, kept, strict=True) if keep]


@given(st.sampled_from(sorted(DTYPES)).flatmap(lambda dtype: st.lists(events(dtype), min_size=1, max_size=4)))
def test_parts_end_to_end_are_all_events_in_order(parts: list[tuple[list[list[Any]], Ragged]]) -> None:
    joined = Ragged.concatenate([array for _, array in parts])
    assert lists(joined) == [event for made, _ in parts for event in made]
    assert joined.values.dtype == parts[0][1].values.dtype
    assert len(joined.values) == len(joined.items)  # nothing of the wholes that the parts were cut from


@given(events(), st.integers(0, 3))
def test_padding_stands_behind_the_items(case: tuple[list[list[Any]], Ragged], beyond: int) -> None:
    made, array = case
    pad: Any = "pad" if array.values.dtype == object else -1
    size = max(map(len, made), default=0) + beyond
    mask = array.mask(size)
    assert mask.tolist() == [[True] * len(event) + [False] * (size - len(event)) for event in made]
    dense = array.padded(mask, pad)
    assert dense.dtype == array.values.dtype
    assert dense.tolist() == [event + [pad] * (size - len(event)) for event in made]


def test_event_longer_than_the_mask_is_an_error() -> None:
    array = ragged([[1.0, 2.0, 3.0]], "float32")
    with pytest.raises(ValueError, match="cannot assign"):
        array.padded(array.mask(2), 0)


def test_slice_is_a_view() -> None:
    array = ragged([[1.0], [2.0, 3.0], [4.0]], "float32")
    assert np.shares_memory(array[1:].values, array.values)
    assert np.shares_memory(array[1:2].items, array.values)
