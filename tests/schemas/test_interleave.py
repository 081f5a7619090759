"""Rows are their pieces end to end, as they come out of C and without it; numbers are their digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.compiled import compiled
from millstream.schemas.decimals import decimals
from millstream.schemas.interleave import LIBRARY, Piece, interleave
from millstream.schemas.packed import Packed
from tests.native import with_native

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["compiled", "python"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with with_native(on=request.param == "compiled"):
        if request.param == "compiled":
            compiled(LIBRARY, "interleave")  # a machine that runs this has a compiler
        yield


def piece_of(strings: list[bytes], kind: str) -> Piece:
    """A piece of these strings; of equal ones also as a constant, of equally long ones as a table."""
    width = len(strings[0])
    if kind == "constant" and strings == strings[:1] * len(strings):
        return strings[0]
    if kind == "table" and {width} == set(map(len, strings)):
        return np.frombuffer(b"".join(strings), np.uint8).reshape(len(strings), width)
    apart = Packed.of([part for string in strings for part in (string, b"between")])
    return apart.take(np.arange(0, 2 * len(strings), 2))  # with gaps


@pytest.mark.usefixtures("_way")
@given(st.data(), st.integers(1, 6))
def test_row_is_its_part_of_each_piece(data: st.DataObject, rows: int) -> None:
    width = st.one_of(
        st.just(st.binary(max_size=4)), st.integers(0, 3).map(lambda n: st.binary(min_size=n, max_size=n))
    )
    columns = [
        data.draw(st.lists(data.draw(width), min_size=rows, max_size=rows)) for _ in range(data.draw(st.integers(1, 4)))
    ]
    pieces = [piece_of(column, data.draw(st.sampled_from(["constant", "table", "packed"]))) for column in columns]
    assert list(interleave(pieces, rows)) == [b"".join(parts) for parts in zip(*columns, strict=True)]


@pytest.mark.usefixtures("_way")
def test_no_rows_give_none() -> None:
    assert list(interleave([b"head", Packed.of([])], 0)) == []


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 200), max_size=9))
def test_decimals_are_what_python_writes(numbers: list[int]) -> None:
    assert list(decimals(np.array(numbers, np.int64))) == [b"%d" % number for number in numbers]


@pytest.mark.parametrize("places", [[2, 0, 0, 1, 2], []])
@pytest.mark.parametrize("strings", [[b"ab", b"cd", b"ef"], [b"a", b"", b"long enough" * 20]])
def test_packed_in_another_order(strings: list[bytes], places: list[Any]) -> None:
    order = np.array(places, np.int64)
    assert list(Packed.of(strings).reordered(order)) == [strings[place] for place in places]
