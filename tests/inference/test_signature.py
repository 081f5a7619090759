import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import ModelConfigError
from millstream.inference.fallbacks import Fields
from millstream.inference.features import Features, _fill_scalars, to_tensors
from millstream.inference.signature import DTYPES, Signature, TensorInput, TensorOutput, check_fields
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.table import Table
from tests.schemas.tables import table_of

WIDE = 20_000  # items of an event
NUMBERS = ("float32", "float64", "int32", "int64")
SCALARS = TensorInput("scalars", ("a", "b"), array=False, dtype="float32", shape=(2,))
VECTOR = TensorInput("vector", ("v",), array=True, dtype="float32", shape=(3,))


def slow_value(value: Any, dtype: str, *, allow_nan: bool) -> tuple[Any, bool]:
    """One element as the tensor takes it, and whether it does: the rule of docs/models.md, an element at a time."""
    if value is None:
        return None, False
    if dtype in {"string", "bool"}:
        return value, True
    if dtype.startswith("int"):
        limit = 2**31 if dtype == "int32" else 2**63
        return int(value), -limit <= value < limit
    with np.errstate(over="ignore"):
        number = float(DTYPES[dtype].type(value))
    return number, allow_nan or math.isfinite(number)


def slow_fit(columns: dict[str, list[Any]], inputs: Sequence[TensorInput], *, allow_nan: bool) -> tuple[Any, list[int]]:
    """Tensors as nested lists, and the rows that fit."""
    good: list[int] = []
    tensors: dict[str, list[list[Any]]] = {entry.tensor: [] for entry in inputs}
    for row in range(len(next(iter(columns.values())))):
        filled = {}
        for entry in inputs:
            values = columns[entry.fields[0]][row] if entry.array else [columns[field][row] for field in entry.fields]
            taken = [slow_value(value, entry.dtype, allow_nan=allow_nan) for value in values or []]
            if len(taken) == entry.width and all(fits for _, fits in taken):
                filled[entry.tensor] = [value for value, _ in taken]
        if len(filled) == len(inputs):
            good.append(row)
            for name, values in filled.items():
                tensors[name].append(values)
    return tensors, good


def elements(dtype: str) -> tuple[Dtype, st.SearchStrategy[Any]]:
    """A field type that fills a tensor of this type, and values of it; nulls, extremes and what is no number among them."""
    if dtype == "string":
        return "string", st.none() | st.text(max_size=3)
    if dtype == "bool":
        return "boolean", st.none() | st.booleans()
    near = st.sampled_from([0, 1, -(2**31) - 1, -(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1])
    whole = st.none() | st.integers(-5, 5) | near
    if dtype.startswith("int"):
        return "int64", whole
    return "float64", st.none() | st.floats(width=64) | st.just(1.0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Table, dict[str, list[Any]], list[TensorInput]]:
    """A table, the same as lists, and one to three inputs that it may or may not fill."""
    events = draw(st.integers(0, 6))
    columns: dict[str, list[Any]] = {}
    types: dict[str, Dtype] = {}
    inputs = []
    for at in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(list(DTYPES)))
        field_type, values = elements(dtype)
        shape = draw(st.sampled_from([(1,), (2,), (2, 1)]))
        array = draw(st.booleans())
        fields = (f"v{at}",) if array else tuple(f"s{at}_{column}" for column in range(math.prod(shape)))
        for field in fields:
            width = math.prod(shape)
            lists = st.none() | st.lists(values, min_size=width, max_size=width) | st.lists(values, max_size=3)
            columns[field] = draw(st.lists(lists if array else values, min_size=events, max_size=events))
            types[field] = ListOf(field_type) if array else field_type
        inputs.append(TensorInput(f"t{at}", fields, array, dtype, shape))
    return table_of(types, **columns), columns, inputs


@given(case=cases(), allow_nan=st.booleans())
def test_exactly_the_wrong_events_are_unfit_and_the_rest_are_the_tensors(
    case: tuple[Table, dict[str, list[Any]], list[TensorInput]], allow_nan: bool
) -> None:
    table, columns, inputs = case
    fitted = to_tensors(table, inputs, allow_nan=allow_nan)
    tensors, good = slow_fit(columns, inputs, allow_nan=allow_nan)
    assert fitted.rows.tolist() == good
    assert [unfit.row for unfit in fitted.unfit] == sorted(set(range(len(table))) - set(good))
    for entry in inputs:
        found = fitted.tensors[entry.tensor]
        assert found.dtype == DTYPES[entry.dtype]
        assert found.shape == (len(good), *entry.shape)
        expected = np.array(tensors[entry.tensor], found.dtype).reshape(found.shape)
        np.testing.assert_array_equal(found, expected)  # takes NaN for equal to NaN
    for unfit in fitted.unfit:
        names = [(entry.tensor, entry.fields) for entry in inputs]
        assert any(f"`{t}`" in unfit.error and any(f"`{f}`" in unfit.error for f in fields) for t, fields in names)
        alone = to_tensors(table.take(np.array([unfit.row])), inputs, allow_nan=allow_nan)
        assert [one.error for one in alone.unfit] == [unfit.error]


def fitted_scalars(a: Any, b: Any, entry: TensorInput = SCALARS) -> Features:
    return to_tensors(table_of({"a": "float64", "b": "float64"}, a=a, b=b), [entry], allow_nan=False)


def test_events_wrong_in_different_ways_are_all_found() -> None:
    """A null is found before a NaN is looked for; the event with the NaN must not slip through beside it."""
    fitted = fitted_scalars([None, 1.0, 2.0], [1.0, math.nan, 3.0])
    assert [unfit.row for unfit in fitted.unfit] == [0, 1]
    assert fitted.rows.tolist() == [2]
    assert fitted.tensors["scalars"].tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("a", "dtype", "says"),
    [
        (None, "float32", "field `a` is absent or null, but tensor `scalars` needs a value"),
        (math.nan, "float32", "field `a` is NaN or infinite, which tensor `scalars` does not take"),
        (1e300, "float32", "field `a` is 1e+300, too large for float32, which tensor `scalars` does not take"),
        (2**31, "int32", "field `a` is 2147483648, out of range for int32, but tensor `scalars` needs a value"),
    ],
)
def test_unfit_scalar_names_field_tensor_and_what_was_found(a: float | None, dtype: str, says: str) -> None:
    kind = "int64" if dtype == "int32" else "float64"
    (unfit,) = to_tensors(
        table_of({"a": kind, "b": kind}, a=[a], b=[1]),
        [TensorInput("scalars", ("a", "b"), False, dtype, (2,))],
        allow_nan=False,
    ).unfit
    assert unfit.error == says


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (None, "field `v` is absent or null, but tensor `vector` needs 3 values"),
        ([], "field `v` has 0 values, but tensor `vector` needs 3 values"),
        ([1.0, 2.0], "field `v` has 2 values, but tensor `vector` needs 3 values"),
        ([1.0, 2.0, None], "field `v`[2] is absent or null, but tensor `vector` needs a value"),
        ([1.0, math.inf, 0.0], "field `v`[1] is NaN or infinite, which tensor `vector` does not take"),
        ([1.0, 2.0, -1e39], "field `v`[2] is -1e+39, too large for float32, which tensor `vector` does not take"),
    ],
)
def test_unfit_array_names_field_place_tensor_and_what_was_found(values: list[float | None] | None, says: str) -> None:
    (unfit,) = to_tensors(table_of({"v": ListOf("float64")}, v=[values]), [VECTOR], allow_nan=False).unfit
    assert unfit.error == says


def test_whole_number_too_large_for_its_tensor_is_not_cut_off() -> None:
    table = table_of({"v": ListOf("int64")}, v=[[1, 2**31], [2, 2**31 - 1]])
    fitted = to_tensors(table, [TensorInput("ids", ("v",), True, "int32", (2,))], allow_nan=False)
    assert [unfit.error for unfit in fitted.unfit] == [
        "field `v`[1] is 2147483648, out of range for int32, but tensor `ids` needs a value"
    ]
    assert fitted.tensors["ids"].tolist() == [[2, 2**31 - 1]]


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("longest", [None, WIDE])
def test_events_full_of_what_does_not_fit_take_little_memory_and_one_reason_each(
    value: float | None, longest: int | None
) -> None:
    entry = TensorInput("wide", ("v",), True, "float32", (WIDE,), longest)
    table = table_of({"v": ListOf("float32")}, v=[[1.0] * WIDE, *[[1.0] + [value] * (WIDE - 1)] * 9])
    tracemalloc.start()
    try:
        fitted = to_tensors(table, [entry], allow_nan=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fitted.rows.tolist() == [0]
    assert [(unfit.row, "`v`[1] is" in unfit.error) for unfit in fitted.unfit] == [(row, True) for row in range(1, 10)]
    assert peak < 8 * 10 * WIDE  # bytes: twice what the items take


def test_event_without_any_of_a_thousand_fields_is_told_one_reason_and_costs_no_more() -> None:
    fields = tuple(f"f{place}" for place in range(1000))
    table = table_of(dict.fromkeys(fields, "float32"), **{field: [1.0, None] for field in fields})
    problems = Counted()
    _fill_scalars(Fields(table), TensorInput("t", fields, False, "float32", (1000,)), problems, {}, None)
    assert problems.keys() == {1}
    assert problems.added == 1


class Counted(dict[int, str]):
    """Problems, and how many were made."""

    added = 0

    def setdefault(self, row: int, error: str = "") -> str:
        self.added += 1
        return super().setdefault(row, error)


def test_problems_of_all_fields_are_told_where_a_length_is_wrong() -> None:
    table = table_of(
        {"v": ListOf("float64"), "a": "float64", "b": "float64"},
        v=[[1.0], [1.0, math.nan, 1.0], [1.0, 2.0, 3.0]],
        a=[1.0, 1.0, math.inf],
        b=[1.0] * 3,
    )
    fitted = to_tensors(table, [VECTOR, SCALARS], allow_nan=False)
    assert [unfit.error.partition(",")[0] for unfit in fitted.unfit] == [
        "field `v` has 1 values",
        "field `v`[1] is NaN or infinite",
        "field `a` is NaN or infinite",
    ]
    assert not len(fitted.rows)


def test_event_is_told_the_first_of_its_problems_only() -> None:
    fitted = fitted_scalars([None], [math.nan])
    assert len(fitted.unfit) == 1


def test_table_without_events_gives_tensors_without_events() -> None:
    empty = table_of({"a": "float64", "b": "float64", "v": ListOf("float64")})
    fitted = to_tensors(empty, [SCALARS, VECTOR], allow_nan=False)
    assert {name: array.shape for name, array in fitted.tensors.items()} == {"scalars": (0, 2), "vector": (0, 3)}


def test_nan_and_infinity_pass_where_they_are_allowed() -> None:
    table = table_of({"a": "float64", "b": "float64"}, a=[math.nan, -math.inf], b=[1.0, 2.0])
    found = to_tensors(table, [SCALARS], allow_nan=True).tensors["scalars"]
    np.testing.assert_array_equal(found, [[math.nan, 1.0], [-math.inf, 2.0]])


def test_fields_of_a_tensor_keep_their_places_and_mix_types() -> None:
    table = table_of({"a": "boolean", "b": "int64"}, a=[True, False], b=[7, 8])
    assert to_tensors(table, [SCALARS], allow_nan=False).tensors["scalars"].tolist() == [
        [1.0, 7.0],
        [0.0, 8.0],
    ]


def test_signature_lists_each_field_once() -> None:
    again = TensorInput("again", ("b", "c"), array=False, dtype="float32", shape=(2,))
    assert Signature((SCALARS, again), (TensorOutput("y", "y"),)).fields == ["a", "b", "c"]


FILLS: dict[str, list[Dtype]] = {
    "float16": ["int32", "int64", "float32", "float64", "boolean"],
    "float32": ["int32", "int64", "float32", "float64", "boolean"],
    "float64": ["int32", "int64", "float32", "float64", "boolean"],
    "int32": ["int32", "int64"],
    "int64": ["int32", "int64"],
    "bool": ["boolean"],
    "string": ["string"],
}
FIELD_TYPES: list[Dtype] = ["int32", "int64", "float32", "float64", "boolean", "string", "binary"]


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("found", FIELD_TYPES, ids=str)
def test_field_fills_a_tensor_whose_type_keeps_its_meaning(dtype: str, found: Dtype, array: bool) -> None:
    signature = Signature((TensorInput("x", ("f",), array, dtype, (1,)),), ())
    columns = {"f": ListOf(found) if array else found}
    if found in FILLS[dtype]:
        check_fields(signature, columns, "model m", "flight")
    else:
        with pytest.raises(
            ModelConfigError, match=f"model m: tensor `x` takes .*{dtype} from .* field `f`, .* `flight`"
        ):
            check_fields(signature, columns, "model m", "flight")


@pytest.mark.parametrize("column", ["mixed", ListOf("mixed")])
def test_values_of_several_types_need_type_any(column: Dtype) -> None:
    entry = VECTOR if isinstance(column, ListOf) else replace(SCALARS, fields=("v",), shape=(1,))
    with pytest.raises(ModelConfigError, match=r"values of several types there\. Write `\{field: v, type: any\}`, or"):
        check_fields(Signature((entry,), ()), {"v": column}, "model m", "flight")


def test_field_of_bytes_or_decimals_is_refused_with_what_producers_can_send() -> None:
    entry = TensorInput("x", ("v",), False, "float32", (1,))
    with pytest.raises(ModelConfigError, match="No tensor takes bytes or decimals: let the producer send a double"):
        check_fields(Signature((entry,), ()), {"v": "binary"}, "model m", "flight")


@pytest.mark.parametrize(
    ("entry", "columns", "says"),
    [
        (VECTOR, {}, "takes an array of 3 x float32 from the event's field `v`, but schema `flight` has no such field"),
        (VECTOR, {"v": "float32"}, "but schema `flight` has float32 there"),
        (VECTOR, {"v": ListOf("string")}, "but schema `flight` has an array of string there"),
        (
            SCALARS,
            {"a": "int64", "b": "string"},
            "takes float32 from the event's field `b`, but schema `flight` has",
        ),
        (
            SCALARS,
            {"a": ListOf("float32"), "b": "int64"},
            "field `a`, but schema `flight` has list(float32) there",
        ),
    ],
)
def test_field_that_cannot_fill_its_tensor_is_named(entry: TensorInput, columns: dict[str, Dtype], says: str) -> None:
    with pytest.raises(ModelConfigError) as refused:
        check_fields(Signature((entry,), ()), columns, "model m version 1 (m/1/config.yaml)", "flight")
    assert str(refused.value).startswith("model m version 1 (m/1/config.yaml): ")
    assert says in str(refused.value)
    assert "Change the mapping" in str(refused.value)
