"""A column gives back the values that it was made of, whatever was taken and joined in between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.column import column_of
from millstream.schemas.dtypes import ListOf, RecordOf
from tests.schemas.tables import dtype_of_column

if TYPE_CHECKING:
    from millstream.schemas.dtypes import Dtype

DTYPES: st.SearchStrategy[Dtype] = st.recursive(
    st.sampled_from(["boolean", "int32", "int64", "float32", "float64", "string", "binary"]),
    lambda inner: (
        inner.map(ListOf)
        | st.lists(inner, max_size=2).map(lambda of: RecordOf(tuple((f"f{at}", one) for at, one in enumerate(of))))
    ),
    max_leaves=4,
)


def values_of(dtype: Dtype) -> st.SearchStrategy[Any]:
    """Values of a type, nulls among them at any depth."""
    if isinstance(dtype, ListOf):
        return st.none() | st.lists(values_of(dtype.items), max_size=3)
    if isinstance(dtype, RecordOf):
        names = [name for name, _ in dtype.fields]
        rows = st.tuples(*(values_of(of) for _, of in dtype.fields))
        return st.none() | rows.map(lambda row: dict(zip(names, row, strict=True)))
    return (
        st.none()
        | {
            "boolean": st.booleans(),
            "int32": st.integers(-(2**31), 2**31 - 1),
            "int64": st.integers(-(2**63), 2**63 - 1),
            "float32": st.floats(width=32),
            "float64": st.floats(),
            "string": st.text(max_size=4),
            "binary": st.binary(max_size=4),
        }[str(dtype)]
    )


@given(st.data())
def test_values_taken_and_joined_are_those_of_the_lists(data: st.DataObject) -> None:
    dtype = data.draw(DTYPES)
    one, other = (data.draw(st.lists(values_of(dtype), max_size=5)) for _ in range(2))
    column, behind = column_of(one, dtype), column_of(other, dtype)
    rows = data.draw(st.lists(st.integers(0, len(one) - 1), max_size=6)) if one else []
    taken = column.take(np.array(rows, np.int64))
    for found, values in (
        (column, one),
        (taken, [one[row] for row in rows]),
        (column.joined([behind, taken]), [*one, *other, *(one[row] for row in rows)]),
    ):
        assert dtype_of_column(found) == dtype
        assert len(found) == len(values)
        assert repr(found.to_list()) == repr(values)  # tells -0.0 from 0.0, and takes NaN for equal


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *(("1", "int32"), (1.0, "int32"), (2**31, "int32"), (2**63, "int64"), ("1", "float32"), (b"1", "float64")),
        *((1, "boolean"), ("true", "boolean"), (1, "string"), (b"x", "string"), ("\ud800", "string"), ("x", "binary")),
        *(("ab", ListOf("string")), ({"a": 1}, ListOf("string")), ([1, "x"], ListOf("int32"))),
        *((5, RecordOf((("a", "int32"),))), ({"a": "x"}, RecordOf((("a", "int32"),)))),
    ],
    ids=repr,
)
@pytest.mark.parametrize("beside", [[], [None]], ids=["alone", "beside a null"])
def test_values_of_another_type_are_refused(value: object, dtype: Dtype, beside: list[None]) -> None:
    with pytest.raises((TypeError, ValueError)):
        column_of([*beside, value], dtype)


def test_numbers_become_floats_as_numpy_has_it() -> None:
    found = column_of([2**53 + 1, True, 1e300, -(2**60 + 2**36 + 1)], "float32").to_list()
    assert found == [float(2**53), 1.0, math.inf, float(np.float32(float(-(2**60 + 2**36 + 1))))]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("float32", "float32"),
        (ListOf(ListOf("string")), "list(list(string))"),
        (RecordOf((("a", "int32"), ("b", ListOf("boolean")))), "struct({'a': int32, 'b': list(boolean)})"),
    ],
)
def test_types_are_told_in_words(dtype: Dtype, text: str) -> None:
    assert str(dtype) == text
