"""Packed byte strings are the strings that they were made of, however they lie in the buffer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.packed import Packed

STRINGS = st.one_of(
    st.lists(st.binary(max_size=5), max_size=6),
    st.integers(0, 4).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width), max_size=6)),
)
PLACES = st.integers(-8, 8) | st.none()


@given(STRINGS)
def test_as_a_sequence_they_are_the_strings(strings: list[bytes]) -> None:
    packed = Packed.of(strings)
    assert list(packed) == strings
    assert [packed[place] for place in range(len(packed))] == strings
    assert packed.longest == max(map(len, strings), default=0)
    assert Packed.of(packed) is packed


@given(STRINGS, PLACES, PLACES)
def test_a_slice_is_of_the_same_strings(strings: list[bytes], start: int | None, stop: int | None) -> None:
    assert list(Packed.of(strings)[start:stop]) == strings[start:stop]


@given(STRINGS)
def test_each_lies_in_the_buffer_where_it_says(strings: list[bytes]) -> None:
    packed = Packed.of(strings)
    whole = packed.buffer.tobytes()
    starts, lengths = packed.starts.tolist(), packed.lengths.tolist()
    assert [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)] == strings


@given(st.integers(0, 5), st.integers(1, 5), st.randoms())
def test_rows_of_a_table_are_its_strings(rows: int, width: int, random: np.random.RandomState) -> None:
    cells = np.array([random.randint(0, 255) for _ in range(rows * width)], np.uint8).reshape(rows, width)
    assert list(Packed.table(cells)) == [row.tobytes() for row in cells]


def test_strings_of_one_width_that_do_not_lie_end_to_end() -> None:
    packed = Packed(np.frombuffer(b"aa-bb", np.uint8), np.array([0, 3]), np.array([2, 2]))
    assert list(packed) == [b"aa", b"bb"]
