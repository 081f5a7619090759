"""A field with a fallback fills a tensor as one field would that has the fallback's values where it has none of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.casts import Cast
from millstream.inference.combined.member_inputs import combined_inputs
from millstream.inference.combined.routing import ByRules, Condition
from millstream.inference.conversions import Conversion, Converter
from millstream.inference.errors import ModelConfigError
from millstream.inference.features import to_tensors
from millstream.inference.ragged import Ragged
from millstream.inference.replaced import Source
from millstream.inference.signature import Signature, TensorInput, check_fields
from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.dtypes import Dtype, ListOf
from tests.inference.test_conversions import CASTS, MISSING, TIMES, VOCABULARIES
from tests.inference.test_mapping import signature_of
from tests.inference.test_tokenizer import PAIRS, needs_tokenizers, pairs_of
from tests.schemas.tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

PLAIN: list[tuple[str, Dtype, Any, None]] = [
    (tensor, column, values, None)
    for column, values, tensor in (
        ("float64", st.floats() | st.sampled_from([1e300, math.nan]), "float32"),
        ("int64", st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), "int32"),
        ("int64", st.integers(-(2**63), 2**63 - 1), "int64"),
        ("int32", st.integers(-9, 9), "float64"),
        ("boolean", st.booleans(), "bool"),
        ("string", st.text(max_size=3), "string"),
    )
]
CASES = [(case.tensor, case.column, case.values, case.converter) for case in CASTS + VOCABULARIES + TIMES]
NULL_LIST = st.none() | st.lists(st.none(), max_size=3)


def is_lacking(value: Any) -> bool:
    if not isinstance(value, list):
        return value is None
    return bool(value) and all(item is None for item in value)


def first_of(own: Any, other: Any) -> Any:
    return other if is_lacking(own) and not is_lacking(other) else own


def elements(tensor: Any) -> Any:
    return [tensor.items.tolist(), tensor.lengths.tolist()] if isinstance(tensor, Ragged) else tensor.tolist()


@given(data=st.data(), case=st.sampled_from([*CASES, *PLAIN]))
def test_fallback_has_the_values_that_the_field_lacks(
    data: st.DataObject, case: tuple[str, Dtype, Any, Converter | None]
) -> None:
    tensor, column, each, converter = case
    form = data.draw(st.sampled_from(["scalar", "array", "varying"]))
    one = st.none() | each
    values = one if form == "scalar" else NULL_LIST | st.lists(one, max_size=5)
    pairs = data.draw(st.lists(st.tuples(values | st.none(), values), max_size=6))
    own, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    missing = data.draw(MISSING.get(tensor, st.sampled_from([None, 0])))
    fixed = {"scalar": (1,), "array": (3,), "varying": (4,)}[form]
    entry = TensorInput(
        "t",
        ("f",),
        form != "scalar",
        tensor,
        fixed,
        4 if form == "varying" else None,
        pad="." if tensor == "string" else 0,
        conversions=(Conversion(converter, missing),),
        pads=form == "array" and data.draw(st.booleans()),
        truncates=form != "scalar" and data.draw(st.booleans()),
    )
    dtype: Dtype = column if form == "scalar" else ListOf(column)
    options: dict[str, Any] = {
        "allow_nan": data.draw(st.booleans()),
        "event_times": np.arange(len(pairs)) * 86_400_000,
    }
    plain = to_tensors(table_of({"f": dtype}, f=list(map(first_of, own, other))), [entry], **options)
    reading = replace(entry, conversions=(replace(entry.conversions[0], fallback="g"),))
    found = to_tensors(table_of({"f": dtype, "g": dtype}, f=own, g=other), [reading], **options)
    assert found.rows.tolist() == plain.rows.tolist()
    assert repr(elements(found.tensors["t"])) == repr(elements(plain.tensors["t"]))
    for one_found, one_plain in zip(found.unfit, plain.unfit, strict=True):
        of_fallback = is_lacking(own[one_found.row]) and not is_lacking(other[one_found.row])
        assert one_found.error.startswith("field `g`" if of_fallback else "field `f`")
        assert (
            one_found.error.replace("`g`", "`f`").replace(", and so is its fallback field `f`", "") == one_plain.error
        )
        both = is_lacking(own[one_found.row]) and is_lacking(other[one_found.row])
        assert (both and "absent or null" in one_plain.error) is ("its fallback field `g`" in one_found.error)
    given_out = {Source(source.field, source.option): of for source, of in found.replaced.sources.items()}
    assert given_out == plain.replaced.sources
    assert {source.fallback for source in found.replaced.sources} <= {"g"}


def test_fallback_of_another_width_keeps_its_values() -> None:
    entry = TensorInput("t", ("f",), False, "float64", (1,), conversions=(Conversion(fallback="g"),))
    for dtypes, own, other, expected in (
        (("int32", "float64"), [1, None], [None, 2.5], [1.0, 2.5]),
        (("float64", "int64"), [1.5, None], [7, 2**40], [1.5, 2.0**40]),
        (("boolean", "int64"), [True, None], [7, 3], [1.0, 3.0]),
    ):
        table = table_of(dict(zip("fg", dtypes, strict=True)), f=own, g=other)
        assert to_tensors(table, [entry], allow_nan=False).tensors["t"].reshape(-1).tolist() == expected


@pytest.mark.parametrize("is_list", [False, True])
def test_number_does_not_depend_on_the_events_beside_it(*, is_list: bool) -> None:
    """As a double, 2^53 + 1 is another number, so that a tensor of ints refuses it in each block of events."""
    conversions = (Conversion(Cast("any", "int"), fallback="g"),)
    entry = TensorInput("t", ("f",), is_list, "int64", (1,), conversions=conversions)
    dtypes: dict[str, Dtype] = {"f": "int64", "g": "float64"}
    own, other = [2**53 + 1, None], [None, 1.0]
    wrap: Any = (lambda value: None if value is None else [value]) if is_list else (lambda value: value)
    dtypes = {name: ListOf(dtype) for name, dtype in dtypes.items()} if is_list else dtypes
    for events in ([0], [0, 1]):
        table = table_of(dtypes, f=[wrap(own[at]) for at in events], g=[wrap(other[at]) for at in events])
        assert [one.row for one in to_tensors(table, [entry], allow_nan=False).unfit] == [0]


def test_errors_name_both_paths_or_the_one_that_has_the_value() -> None:
    conversions = Conversion(Cast("text", "number"), fallback="g"), Conversion(fallback="i")
    entry = TensorInput("t", ("f", "h"), False, "float32", (2,), conversions=conversions)
    dtypes = {"f": "string", "g": "string", "h": "float64", "i": "float64"}
    columns: dict[str, list[Any]] = {
        "f": [None, "x", None, "1", "1", "1"],
        "g": ["y", "2", None, None, None, None],
        "h": [1, 1, 1, None, math.inf, None],
        "i": [1, 1, 1, None, None, 1e300],
    }
    found = to_tensors(table_of(dtypes, **columns), [entry], allow_nan=False)
    number = Cast("text", "number").expected
    assert [one.error for one in found.unfit] == [
        f"field `g` is 'y', but tensor `t` needs {number}",
        f"field `f` is 'x', but tensor `t` needs {number}",
        "field `f` is absent or null, and so is its fallback field `g`, but tensor `t` needs a value",
        "field `h` is absent or null, and so is its fallback field `i`, but tensor `t` needs a value",
        "field `h` is NaN or infinite, which tensor `t` does not take",
        "field `i` is 1e+300, too large for float32, which tensor `t` does not take",
    ]


@needs_tokenizers
def test_texts_of_a_fallback_are_tokenized_but_not_in_place_of_the_other_text(tmp_path: Path) -> None:
    signature = pairs_of(tmp_path, inputs=PAIRS.replace("field: title", "field: title, fallback: heading"))
    columns = {
        "title": ["a", None, None, "a"],
        "heading": ["red", "bird", None, "red"],
        "answer": ["a", "a", "a", None],
    }
    table = table_of(dict.fromkeys(columns, "string"), **columns)
    check_fields(signature, dict.fromkeys(columns, "string"), "model", "schema")
    assert signature.paths == dict.fromkeys(("title", "heading", "answer"), "string")
    found = to_tensors(table, signature.inputs, allow_nan=False)
    assert found.tensors["input_ids"].items.tolist() == [1, 3, 2, 3, 2, 1, 5, 2, 3, 2]
    assert [one.error for one in found.unfit] == [
        "field `title` is absent or null, and so is its fallback field `heading`, but tensor `input_ids` needs a text",
        "field `answer` is absent or null, but tensor `input_ids` needs a text",
    ]


@pytest.mark.parametrize(
    ("inputs", "fields", "sources"),
    [
        ("{tensor: x, fields: [{field: f, fallback: g, missing: 0}], dtype: float32}", None, ["f or g"]),
        ("{tensor: x, field: 'f[]', fallback: 'g[]', dtype: float32, shape: [2]}", None, ["f[] or g[]"]),
        ("{tensor: x, fields: [{field: f, from: shop, fallback: g}], dtype: float32}", None, ["[shop].f or [shop].g"]),
        # Another field of the pipeline file has another fallback, or none.
        ("{tensor: x, fields: [{field: f, fallback: g}], dtype: float32}", ["h"], ["h"]),
        ("{tensor: x, fields: [{field: f, fallback: g}], dtype: float32}", [{"field": "h", "type": "text"}], ["h"]),
        ("{tensor: x, fields: [f], dtype: float32}", [{"field": "f", "fallback": "g"}], ["f or g"]),
        ("{tensor: x, field: f, fallback: g, dtype: float32, shape: [2]}", "h", ["h"]),
        ("{tensor: x, field: f, dtype: float32, shape: [2]}", {"field": "h", "fallback": "g"}, ["h or g"]),
    ],
)
def test_mapping_says_the_fallback(tmp_path: Path, inputs: str, fields: Any, sources: list[str]) -> None:
    signature = signature_of(tmp_path, inputs, fields=None if fields is None else {"x": fields})
    (entry,) = signature.inputs
    assert entry.sources == sources
    assert signature.fields == sources[0].split(" or ")


def test_pipeline_that_adds_a_fallback_keeps_the_other_options(tmp_path: Path) -> None:
    (entry,) = signature_of(
        tmp_path,
        "{tensor: x, fields: [{field: f, type: text, missing: -1}], dtype: float32}",
        fields={"x": [{"field": "f", "fallback": "g"}]},
    ).inputs
    assert entry.conversions == (Conversion(Cast("text", "number"), -1, fallback="g"),)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            "fields: [{field: f, fallback: [g, h]}]",
            r"config.yaml:2: inputs\[0\].fields\[0\].fallback: expected .*text.*, found",
        ),
        ("fields: [f], fallback: g", "`fallback`: options of one field stand beside `field`"),
        ("fields: [f, {field: g, fallback: h, type: text}, h]", "expected one type of field `h` for all tensors"),
    ],
)
def test_wrong_fallback_is_told_with_its_place(tmp_path: Path, options: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, f"{{tensor: x, {options}, dtype: float32}}")


@pytest.mark.parametrize(
    ("dtypes", "says"),
    [
        ({"f": "float64"}, "tensor `t` takes float32 from the event's field `g`, but schema `s` has no such field"),
        ({"f": "float64", "g": "string"}, "from the event's field `g`, but schema `s` has string there"),
    ],
)
def test_type_of_the_fallback_must_fit_the_tensor(tmp_path: Path, dtypes: dict[str, Dtype], says: str) -> None:
    signature = signature_of(tmp_path, "{tensor: t, fields: [{field: f, fallback: g}], dtype: float32}")
    with pytest.raises(ModelConfigError, match=says):
        check_fields(signature, dtypes, "place", "s")


def test_texts_are_no_fallback_of_numbers() -> None:
    conversions = (Conversion(Vocabulary(("a", "7"), None), fallback="g"),)
    signature = Signature((TensorInput("t", ("f",), False, "int64", (1,), conversions=conversions),), ())
    with pytest.raises(
        ModelConfigError, match="field `f` and its fallback `g`: expected texts in both or numbers in both"
    ):
        check_fields(signature, {"f": "int64", "g": "string"}, "place", "s")
    check_fields(signature, {"f": "mixed", "g": "string"}, "place", "s")


def test_missing_counts_the_events_of_the_models_that_read_the_field_so() -> None:
    def reading(fallback: str | None) -> TensorInput:
        return TensorInput(
            "x", ("f",), False, "float64", (1,), conversions=(Conversion(missing=-1.0, fallback=fallback),)
        )

    routing = TensorInput("route", ("to",), False, "float64", (), conversions=(Conversion(missing=0.0),))
    choice = ByRules([([Condition("route", ">=", (1,))], 0)], 1)
    inputs = combined_inputs([("a", [reading("g")]), ("b", [reading(None)])], [False, False], [routing], choice)
    columns: dict[str, Any] = {
        "to": [1, 1, 1, 0, 0],
        "f": [None, None, 3.0, None, 3.0],
        "g": [2.0, None, None, 2.0, None],
    }
    found = inputs.fill(table_of(dict.fromkeys(columns, "float64"), **columns), allow_nan=True)
    assert found.tensors["x"].reshape(-1).tolist()[:3] == [2.0, -1.0, 3.0]
    sources = {
        source: found.replaced.sources[source] for source in (Source("f", "missing", "g"), Source("f", "missing"))
    }
    assert [(own.number, found.replaced.out_of(source)) for source, own in sources.items()] == [(1, 3), (1, 2)]
