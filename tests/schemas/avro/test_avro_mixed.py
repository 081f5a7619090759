"""Unions of texts, numbers and booleans: a column of the text of each value, as the same values in JSON make it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.store import Schema
from tests.schemas.avro.avro_cases import WRITER_ID, decoder, record, written
from tests.schemas.tables import dicts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.schemas.store import AvroType

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(),
}


@st.composite
def unions_with_values(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, Any] | None]]:
    """A union of several types, and values of its branches: pairs of branch and value, as fastavro writes them; or null."""
    # Avro resolves a number to the first branch that takes it. So each of these unions has one type of numbers.
    number = draw(st.sampled_from(["int", "long", "float", "double"]))
    branches = draw(st.permutations([number, "string", *draw(st.sets(st.sampled_from(["null", "boolean"])))]))
    of_branches = [st.none() if name == "null" else st.tuples(st.just(name), VALUES[name]) for name in branches]
    return branches, draw(st.lists(st.one_of(of_branches), min_size=1, max_size=20))


def texts(writer: AvroType, values: Sequence[Any], reader: AvroType = None) -> list[str | None]:
    """The column of a field of this type."""
    avro = record(("f", writer))
    read = decoder(avro, record(("f", reader or writer)))
    found = read.decode(written(Schema(WRITER_ID, "", avro), [{"f": value} for value in values]))
    assert found.bad == []
    assert read.columns == {"f": "mixed"}
    return [row["f"] for row in dicts_of(found.table)]


@given(unions_with_values())
@settings(max_examples=60, deadline=None)
def test_values_of_a_union_have_the_texts_that_they_have_in_json(case: tuple[list[str], list[Any]]) -> None:
    union, values = case
    plain = [value if value is None else value[1] for value in values]
    in_json = JsonDecoder.of_types({"f": "mixed"}).decode([json.dumps({"f": value}).encode() for value in plain])
    assert in_json.bad == []
    assert texts(union, values) == [row["f"] for row in dicts_of(in_json.table)]


def test_all_digits_of_a_long_stay_in_a_union_that_has_doubles_too() -> None:
    assert texts(["long", "double", "string"], [2**62 + 1, 0.1, 7.0, "x"]) == [str(2**62 + 1), "0.1", "7", "x"]


def test_numbers_that_json_lacks_are_named() -> None:
    assert texts(["double", "string"], [math.nan, math.inf, -math.inf]) == ["NaN", "Infinity", "-Infinity"]


def test_writer_with_one_of_the_types_is_read_as_the_union() -> None:
    assert texts("int", [1, -2], ["null", "double", "string"]) == ["1", "-2"]
    assert texts("string", ["a"], ["null", "double", "string"]) == ["a"]


def test_unions_are_read_inside_lists_records_and_maps() -> None:
    union = ["null", "double", "string"]
    inner = record(("x", union), name="Inner")
    writer = record(
        ("list", {"type": "array", "items": union}),
        ("map", {"type": "map", "values": ["double", "string"]}),
        ("inner", ["null", inner]),
        {"name": "defaulted", "type": ["double", "string"], "default": 2.5},
    )
    event = {"list": [1.5, "a", None], "map": {"k": 2.0, "other": "b"}, "inner": {"x": "c"}, "defaulted": "d"}
    paths = ["list[]", "map.k", "map.none", "inner.x", "defaulted"]
    read = decoder(writer, fields=paths)
    found = read.decode(written(Schema(WRITER_ID, "", writer), [event]))
    assert found.bad == []
    [row] = dicts_of(found.table)
    assert row == {"list[]": ["1.5", "a", None], "map.k": "2", "map.none": None, "inner.x": "c", "defaulted": "d"}


def test_default_of_a_union_counts_for_writers_without_the_field() -> None:
    reader = record(("id", "string"), {"name": "f", "type": ["double", "string"], "default": 2.5})
    writer = record(("id", "string"))
    found = decoder(writer, reader).decode(written(Schema(WRITER_ID, "", writer), [{"id": "a"}]))
    assert dicts_of(found.table) == [{"id": "a", "f": "2.5"}]


@pytest.mark.parametrize(
    "union", [["double", "bytes"], ["null", "string", {"type": "array", "items": "int"}], ["null"]]
)
def test_union_that_no_column_holds_is_refused_with_those_that_do(union: AvroType) -> None:
    with pytest.raises(BadFieldError, match=r"field 'f' of .*union of numbers, booleans, strings and enums"):
        decoder(record(("f", union)))


def test_json_events_of_a_schema_with_such_a_field_are_refused_with_what_to_do() -> None:
    with pytest.raises(BadFieldError, match=r"leave out `input\.schema`, and write `type: any`"):
        JsonDecoder.of_schema(Schema(WRITER_ID, "", record(("f", ["double", "string"]))), ["f"])
