"""Conversions of whole columns give what a conversion of each value would give."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.casts import Cast
from millstream.inference.conversions import Conversion, Converter
from millstream.inference.features import to_tensors
from millstream.inference.ragged import Ragged
from millstream.inference.signature import TensorInput
from millstream.inference.times import Part, Time
from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.column import NumberColumn, column_of
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.json.decoder import JsonDecoder
from tests.schemas.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WRONG = object()
MAX_LENGTH = 4


@dataclass(frozen=True)
class Case:
    """A converter, values that it may get, and the rule for one of them."""

    converter: Converter
    column: Dtype
    values: st.SearchStrategy[Any]
    rule: Callable[[Any, int], Any]  # takes the value and the event's time in ms; returns the element, or WRONG
    tensor: str


def number_of_text(text: str) -> Any:
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", text.strip(" \t\n\r")):
        return WRONG
    number = float(text)
    return number if math.isfinite(number) else WRONG


def int_of_text(text: str) -> Any:
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)", text.strip(" \t\n\r")):
        return WRONG
    return int(text) if -(2**63) <= int(text) < 2**63 else WRONG


def int_of_number(number: float) -> Any:
    return int(number) if math.isfinite(number) and number == int(number) and abs(number) < 2**53 else WRONG


def boolean_of_text(text: str) -> Any:
    return {"true": True, "1": True, "false": False, "0": False}.get(text, WRONG)


def boolean_of_number(number: float) -> Any:
    return bool(number) if number in {0, 1} else WRONG


NUMBER_TEXTS = (
    st.floats(allow_nan=False).map(repr)
    | st.integers(-(2**64), 2**64).map(str)
    | st.sampled_from(
        ["33.5", "-0", "1e999", "+5", ".5", "5.", "007", "1,2", "[1]", "", " 1 ", "nan", "Infinity", "1_000"]
    )
    | st.text(max_size=3)
)
FLOATS = st.floats() | st.sampled_from([0.0, 1.0, 33.0, 2.0**63, -(2.0**63), 2.0**53 + 2])
INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 2)
CASTS = [
    Case(Cast("text", "number"), "string", NUMBER_TEXTS, lambda value, _: number_of_text(value), "float64"),
    Case(Cast("text", "int"), "string", NUMBER_TEXTS, lambda value, _: int_of_text(value), "int64"),
    Case(
        Cast("text", "boolean"),
        "string",
        st.sampled_from(["true", "false", "1", "0", "True", "yes", ""]) | st.text(max_size=3),
        lambda value, _: boolean_of_text(value),
        "bool",
    ),
    Case(Cast("number", "int"), "float64", FLOATS, lambda value, _: int_of_number(value), "int64"),
    Case(Cast("number", "int"), "int64", INTS, lambda value, _: value, "int64"),
    Case(Cast("number", "boolean"), "float64", FLOATS, lambda value, _: boolean_of_number(value), "bool"),
    Case(Cast("int", "boolean"), "int64", INTS, lambda value, _: boolean_of_number(value), "bool"),
    Case(Cast("boolean", "int"), "boolean", st.booleans(), lambda value, _: int(value), "int64"),
    Case(Cast("boolean", "number"), "boolean", st.booleans(), lambda value, _: float(value), "float64"),
    Case(Cast("text", "text"), "string", st.text(max_size=3), lambda value, _: value, "string"),
]
TEXTS_OF_ANY = NUMBER_TEXTS | st.sampled_from(["true", "false", "True", "7"])
BITS = {"true": "1", "false": "0"}
CASTS += [
    Case(Cast("any", "number"), "mixed", TEXTS_OF_ANY, lambda v, _: number_of_text(BITS.get(v, v)), "float64"),
    Case(Cast("any", "int"), "mixed", TEXTS_OF_ANY, lambda v, _: int_of_text(BITS.get(v, v)), "int64"),
    Case(Cast("any", "boolean"), "mixed", TEXTS_OF_ANY, lambda v, _: boolean_of_text(v), "bool"),
    Case(Cast("any", "text"), "mixed", TEXTS_OF_ANY, lambda v, _: v, "string"),
    Case(Cast("any", "int"), "float64", FLOATS, lambda v, _: int_of_number(v), "int64"),
    Case(Cast("any", "boolean"), "int64", INTS, lambda v, _: boolean_of_number(v), "bool"),
    Case(Cast("any", "number"), "boolean", st.booleans(), lambda v, _: float(v), "float64"),
]
ENTRIES = ("no", "se", "7", "-3", "007", "é", "", str(2**63), str(-(2**63)))
VALUES_OF_ENTRIES = st.sampled_from(ENTRIES) | st.text(max_size=2)
NUMBERS_OF_ENTRIES = st.sampled_from([7, -3, 8, -(2**63), 2**63 - 1]) | INTS


def index_with(unknown: int | None) -> Callable[[Any, int], Any]:
    otherwise = WRONG if unknown is None else unknown
    return lambda value, _: ENTRIES.index(str(value)) if str(value) in ENTRIES else otherwise


VOCABULARIES = [
    Case(
        Vocabulary(ENTRIES, unknown),
        column,
        values,
        index_with(unknown),
        tensor,
    )
    for unknown in (None, 0, 99)
    for column, values in (("string", VALUES_OF_ENTRIES), ("int64", NUMBERS_OF_ENTRIES))
    for tensor in ("int64", "float32")
]
MOMENTS = st.datetimes(datetime(1901, 1, 1), datetime(2199, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def part_of(moment: datetime, part: str, event_time: int, *, whole: bool) -> Any:
    match part:
        case "hour":
            return moment.hour
        case "weekday":
            return moment.weekday()
        case "day":
            return moment.day
        case "month":
            return moment.month
        case "age":
            seconds = (event_time - microseconds(moment) // 1000) / 1000
        case _:
            seconds = microseconds(moment) / 1_000_000
    return math.floor(seconds) if whole else seconds


def time_case(form: str, part: Part, *, whole: bool) -> Case:
    units = {"seconds": 1_000_000, "milliseconds": 1000, "microseconds": 1, "days": 86_400_000_000}

    def of_number(value: int, event_time: int) -> Any:
        us = value // 1000 if form == "nanoseconds" else value * units[form]
        try:
            moment = EPOCH + timedelta(microseconds=us)
        except OverflowError:  # datetime has the years 1 to 9999, too
            return WRONG
        return part_of(moment, part, event_time, whole=whole)

    def of_text(value: str, event_time: int) -> Any:
        try:
            return part_of(datetime.fromisoformat(value), part, event_time, whole=whole)
        except ValueError:
            return WRONG

    column: Dtype = "int64"
    values: st.SearchStrategy[Any]
    rule: Callable[[Any, int], Any]
    if form == "iso8601":
        column, values = "string", MOMENTS.map(datetime.isoformat) | st.sampled_from(["", "yesterday", "2026-13-01"])
        rule = of_text
    else:
        values = MOMENTS.map(
            lambda moment: microseconds(moment) * 1000 if form == "nanoseconds" else microseconds(moment) // units[form]
        )
        if form != "nanoseconds":  # of another unit
            values |= MOMENTS.map(microseconds)
        rule = of_number
    return Case(Time(form, part, whole), column, values, rule, "int64" if whole else "float64")


TIMES = [
    time_case(form, part, whole=whole)
    for form in ("iso8601", "seconds", "milliseconds", "microseconds", "nanoseconds", "days")
    for part in get_args(Part)
    for whole in (False, True)
]
MISSING: dict[str, st.SearchStrategy[Any]] = {
    "float32": st.sampled_from([None, math.nan, -1.0]),
    "float64": st.sampled_from([None, math.nan, -1.0]),
    "int64": st.sampled_from([None, -1]),
    "bool": st.sampled_from([None, True]),
    "string": st.sampled_from([None, "-"]),
}


def element(case: Case, missing: Any, value: Any, event_time: int) -> Any:
    """The tensor's element, or WRONG."""
    if value is None:
        return WRONG if missing is None else missing
    return case.rule(value, event_time)


@given(st.lists(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), min_size=1, max_size=6))
def test_seconds_since_1970_are_the_nearest_float_in_all_years(times: list[int]) -> None:
    converter = Time("microseconds", "epoch", whole=False)
    column = NumberColumn(np.array(times, np.int64), None)
    found = converter.convert(column, lambda: np.empty(0, np.int64)).column
    assert isinstance(found, NumberColumn)
    assert found.values.tolist() == [time / 1_000_000 for time in times]


@given(data=st.data(), case=st.sampled_from(CASTS + VOCABULARIES + TIMES))
def test_scalars_are_converted_as_each_alone(data: st.DataObject, case: Case) -> None:
    missing = data.draw(MISSING[case.tensor])
    values = data.draw(st.lists(st.none() | case.values, max_size=6))
    times = data.draw(st.lists(st.integers(0, 2**41), min_size=len(values), max_size=len(values)))
    entry = TensorInput("t", ("f",), False, case.tensor, (1,), conversions=(Conversion(case.converter, missing),))
    table = table_of({"f": case.column}, f=values)
    found = to_tensors(table, [entry], allow_nan=False, event_times=np.array(times, np.int64))
    expected = [element(case, missing, value, time) for value, time in zip(values, times, strict=True)]
    assert [unfit.row for unfit in found.unfit] == [row for row, one in enumerate(expected) if one is WRONG]
    assert all("field `f` is " in unfit.error and "tensor `t` needs" in unfit.error for unfit in found.unfit)
    fitting = [one for one in expected if one is not WRONG]
    np.testing.assert_array_equal(found.tensors["t"][:, 0], np.array(fitting, found.tensors["t"].dtype))


@given(data=st.data(), case=st.sampled_from(CASTS + VOCABULARIES + TIMES))
def test_items_of_fixed_arrays_are_converted_padded_and_cut_as_each_alone(data: st.DataObject, case: Case) -> None:
    missing = data.draw(MISSING[case.tensor])
    pads, cuts = data.draw(st.booleans()), data.draw(st.booleans())
    lists = data.draw(st.lists(st.none() | st.lists(st.none() | case.values, max_size=5), max_size=5))
    times = np.arange(len(lists)) * 86_400_000
    pad: Any = "." if case.tensor == "string" else 0
    entry = TensorInput(
        "t",
        ("f",),
        True,
        case.tensor,
        (3,),
        pad=pad,
        conversions=(Conversion(case.converter, missing),),
        pads=pads,
        truncates=cuts,
    )
    found = to_tensors(table_of({"f": ListOf(case.column)}, f=lists), [entry], allow_nan=False, event_times=times)
    fitting, unfit = [], []
    for row, (items, time) in enumerate(zip(lists, times.tolist(), strict=True)):
        row_of = [WRONG if missing is None else missing] * 3
        if items is not None:
            row_of = [element(case, missing, item, time) for item in (items[:3] if cuts else items)]
            row_of += [pad] * (3 - len(row_of)) if pads else []
        if len(row_of) != 3 or any(one is WRONG for one in row_of):
            unfit.append(row)
        else:
            fitting.append(row_of)
    assert [one.row for one in found.unfit] == unfit
    tensor = found.tensors["t"]
    np.testing.assert_array_equal(tensor, np.array(fitting, tensor.dtype).reshape(-1, 3))


@given(data=st.data(), case=st.sampled_from(CASTS + VOCABULARIES + TIMES))
def test_items_of_ragged_arrays_are_converted_and_cut_as_each_alone(data: st.DataObject, case: Case) -> None:
    missing, cuts = data.draw(MISSING[case.tensor]), data.draw(st.booleans())
    lists = data.draw(st.lists(st.none() | st.lists(st.none() | case.values, max_size=6), max_size=5))
    times = np.arange(len(lists)) * 86_400_000
    conversions = (Conversion(case.converter, missing),)
    entry = TensorInput(
        "t", ("f",), True, case.tensor, (MAX_LENGTH,), MAX_LENGTH, conversions=conversions, truncates=cuts
    )
    found = to_tensors(table_of({"f": ListOf(case.column)}, f=lists), [entry], allow_nan=False, event_times=times)
    fitting, unfit = [], []
    for row, (items, time) in enumerate(zip(lists, times.tolist(), strict=True)):
        kept = items if items is None else items[: MAX_LENGTH if cuts else None]
        converted = [element(case, missing, item, time) for item in kept or []]
        is_there = items is not None or missing is not None
        if not is_there or len(converted) > MAX_LENGTH or any(one is WRONG for one in converted):
            unfit.append(row)
        else:
            fitting.append(converted)
    assert [one.row for one in found.unfit] == unfit
    tensor = found.tensors["t"]
    assert isinstance(tensor, Ragged)
    assert tensor.lengths.tolist() == [len(items) for items in fitting]
    np.testing.assert_array_equal(
        tensor.items, np.array([one for items in fitting for one in items], tensor.items.dtype)
    )


@pytest.mark.parametrize(
    ("dtype", "missing"), [("float32", math.nan), ("float32", 0.5), ("int64", -1), ("bool", True), ("string", "none")]
)
def test_missing_value_stands_in_place_of_a_null(dtype: str, missing: Any) -> None:
    column = {"float32": "float64", "int64": "int64", "bool": "boolean", "string": "string"}[dtype]
    value: Any = {"float32": 2.0, "int64": 2, "bool": False, "string": "two"}[dtype]
    entry = TensorInput("t", ("f", "g"), False, dtype, (2,), conversions=(Conversion(missing=missing), Conversion()))
    table = table_of({"f": column, "g": column}, f=[None, value, None], g=[value, value, None])
    found = to_tensors(table, [entry], allow_nan=False)
    np.testing.assert_array_equal(
        found.tensors["t"], np.array([[missing, value], [value, value]], found.tensors["t"].dtype)
    )
    assert [one.error for one in found.unfit] == ["field `g` is absent or null, but tensor `t` needs a value"]


def test_nan_of_the_event_is_refused_beside_nan_for_a_missing_value() -> None:
    entry = TensorInput("t", ("f",), False, "float32", (1,), conversions=(Conversion(missing=math.nan),))
    found = to_tensors(table_of({"f": "float64"}, f=[None, math.nan, 1.0]), [entry], allow_nan=False)
    assert [(one.row, one.error) for one in found.unfit] == [
        (1, "field `f` is NaN or infinite, which tensor `t` does not take")
    ]
    np.testing.assert_array_equal(found.tensors["t"], np.array([[math.nan], [1.0]], np.float32))


@pytest.mark.parametrize(("max_length", "shape"), [(None, (1,)), (4, (4,))])
def test_text_of_a_number_that_the_tensor_cannot_hold_is_too_large(
    max_length: int | None, shape: tuple[int, ...]
) -> None:
    conversions = (Conversion(Cast("any", "number")),)
    entry = TensorInput("t", ("f",), True, "float32", shape, max_length, conversions=conversions)
    found = to_tensors(table_of({"f": ListOf("mixed")}, f=[["1e300"], ["1"]]), [entry], allow_nan=False)
    assert [(one.row, one.error) for one in found.unfit] == [
        (0, "field `f`[0] is '1e300', too large for float32, which tensor `t` does not take")
    ]


def test_decoded_columns_are_left_as_they_are() -> None:
    table = table_of({"f": "int64"}, f=[None, 1, 2])
    before = json.dumps(table["f"].to_list())
    entry = TensorInput("t", ("f",), False, "int64", (1,), conversions=(Conversion(missing=7),))
    found = to_tensors(table, [entry], allow_nan=False)
    found.tensors["t"][:] = 9
    assert json.dumps(table["f"].to_list()) == before


AS_DOUBLE = ", and not too large for a double"


@pytest.mark.parametrize(
    ("converter", "column", "value", "says"),
    [
        (
            Cast("text", "number"),
            "string",
            "old",
            "field `a.b` is 'old', but tensor `t` needs text with a number, such as 33.5 (as in JSON: no leading zeros, no plus "
            "sign, and not too large for a double)",
        ),
        *(
            (
                cast,
                "string",
                text,
                f"field `a.b` is '{text}', but tensor `t` needs {needs} (as in JSON: no leading zeros, no plus sign{end})",
            )
            for cast, text, needs, end in (
                (Cast("text", "number"), "0012.50", "text with a number, such as 33.5", AS_DOUBLE),
                (Cast("text", "number"), "+5", "text with a number, such as 33.5", AS_DOUBLE),
                (Cast("text", "number"), "1e999", "text with a number, such as 33.5", AS_DOUBLE),
                (Cast("text", "int"), "007", "text with a whole number of 64 bits, such as 33", ""),
                (
                    Cast("any", "number"),
                    "00",
                    "a number, true or false, or text with a number, such as 33.5",
                    AS_DOUBLE,
                ),
            )
        ),
        (
            Cast("number", "int"),
            "float64",
            1.5,
            "field `a.b` is the number 1.5, but tensor `t` needs a whole number between -2^53 and 2^53: not all larger ones are "
            "doubles (in JSON, `type: int` takes them)",
        ),
        (
            Vocabulary(("no", "se"), None),
            "string",
            "fi",
            "field `a.b` is 'fi', but tensor `t` needs an entry of the vocabulary",
        ),
        (
            Time("iso8601", "hour", True),
            "string",
            "soon",
            "field `a.b` is 'soon', but tensor `t` needs a valid time with separators (years 1 to 9999), such as "
            "2026-01-31T09:30:00Z",
        ),
    ],
)
def test_value_that_cannot_be_converted_is_named_beside_its_neighbours(
    converter: Converter, column: Dtype, value: Any, says: str
) -> None:
    good: Any = {"string": "1", "float64": 1.0}[str(column)]
    if isinstance(converter, Vocabulary):
        good = "no"
    if isinstance(converter, Time):
        good = "2026-01-31T09:30:00Z"
    entry = TensorInput("t", ("a.b",), False, "int64", (1,), conversions=(Conversion(converter),))
    found = to_tensors(table_of({"a.b": column}, **{"a.b": [good, value, good]}), [entry], allow_nan=False)
    assert [(one.row, one.error) for one in found.unfit] == [(1, says)]
    assert found.rows.tolist() == [0, 2]
    lists = TensorInput("t", ("a.b",), True, "int64", (2,), conversions=(Conversion(converter),))
    table = table_of({"a.b": ListOf(column)}, **{"a.b": [[good, good], [good, value]]})
    assert [one.error for one in to_tensors(table, [lists], allow_nan=False).unfit] == [
        says.replace("`a.b`", "`a.b`[1]")
    ]


def test_any_takes_no_double_for_a_whole_number_that_the_event_may_not_have() -> None:
    events = ["33.0", "9007199254740993.0", "9007199254740993", '"9007199254740993"', "-1e17"]
    read = JsonDecoder.of_types({"x": "mixed"}).decode([b'{"x": %b}' % event.encode() for event in events])
    entry = TensorInput("t", ("x",), False, "int64", (1,), conversions=(Conversion(Cast("any", "int")),))
    found = to_tensors(read.table, [entry], allow_nan=False)
    assert found.tensors["t"].tolist() == [[33], [9007199254740993], [9007199254740993]]
    assert [one.row for one in found.unfit] == [1, 4]
    assert found.unfit[0].error == (
        "field `x` is 9007199254740992.0, but tensor `t` needs a whole number of 64 bits (with a decimal point or an exponent: "
        "between -2^53 and 2^53, because not all larger ones are doubles), true or false, or text with a whole number, such as "
        "33 (as in JSON: no leading zeros, no plus sign)"
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("12", "12"),
        ("0.5", "0.5"),
        ("1e3", "1000"),
        ('"12"', "12"),
        ('"1e3"', "'1e3'"),
        ('"012"', "'012'"),
        ('"maybe"', "'maybe'"),
    ],
)
def test_number_in_a_field_of_any_type_is_told_without_quotes(value: str, said: str) -> None:
    """Only the text of the value is known, so a text that a number has, too, may be either."""
    found = _unfit_boolean("x", value, "mixed", array=False)
    assert found == f"field `x` is {said}, but tensor `t` needs true, false, 1 or 0, also as text"
    found = _unfit_boolean("x", f"[{value}]", ListOf("mixed"), array=True)
    assert found == f"field `x`[0] is {said}, but tensor `t` needs true, false, 1 or 0, also as text"


def _unfit_boolean(field: str, value: str, column: Dtype, *, array: bool) -> str:
    """Why this value, in JSON, of a field of the type `any` doesn't fit."""
    path = f"{field}[]" if array else field
    read = JsonDecoder.of_types({path: "mixed"}).decode([f'{{"{field}": {value}}}'.encode()])
    entry = TensorInput("t", (field,), array, "bool", (1,), conversions=(Conversion(Cast("any", "boolean")),))
    table = table_of({field: column}, **{field: read.table[path].to_list()})
    (unfit,) = to_tensors(table, [entry], allow_nan=False).unfit
    return unfit.error


def test_number_that_the_tensor_cannot_hold_is_told_without_quotes() -> None:
    entry = TensorInput("t", ("f",), False, "float32", (1,), conversions=(Conversion(Cast("any", "number")),))
    (unfit,) = to_tensors(table_of({"f": "mixed"}, f=["1e+300"]), [entry], allow_nan=False).unfit
    assert unfit.error == "field `f` is 1e+300, too large for float32, which tensor `t` does not take"


def test_text_of_digits_keeps_its_quotes_where_the_field_is_a_text() -> None:
    entry = TensorInput("t", ("f",), False, "bool", (1,), conversions=(Conversion(Cast("text", "boolean")),))
    (unfit,) = to_tensors(table_of({"f": "string"}, f=["12"]), [entry], allow_nan=False).unfit
    assert unfit.error.startswith("field `f` is '12', but")


@pytest.mark.parametrize("part", ["epoch", "age"])
def test_whole_seconds_are_exact_far_from_1970(part: Part) -> None:
    """A double would round 253402300799.999999 up."""
    texts = ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000001Z"]
    moments = [253402300799, -62135596800]
    made = Time("iso8601", part, True).convert(column_of(texts, "string"), lambda: np.array([999, 999]))
    expected = moments if part == "epoch" else [-253402300799, 62135596800]
    assert made.column.to_list() == expected
