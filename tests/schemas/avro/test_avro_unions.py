"""Writers' unions of several types that C reads as one of them: records with values of the others are left to the caller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro.columns import column_reader, why_not_compiled
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.packed import Packed
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import frame
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, has_program, record, written
from tests.schemas.avro.test_avro_mixed import VALUES
from tests.schemas.tables import dicts_of

pytestmark = pytest.mark.skipif(why_not_compiled() is not None, reason="avro_columns.c is not compiled")
PROMOTED = {"double": {"int", "long", "float", "double"}, "string": {"string"}, "boolean": {"boolean"}}


def read(union: AvroType, wanted: AvroType, values: list[bytes]) -> tuple[list[Any], list[int], list[int]]:
    """The values read, their rows, and the bad rows."""
    writer, reader = (Schema(own, "", record(("f", of))) for own, of in ((WRITER_ID, union), (READER_ID, wanted)))
    columns = wanted_columns(reader, ["f"])
    found = column_reader(frame(WRITER_ID), writer, sources_of(writer, reader, columns.fields), of_some=True)
    assert found is not None
    decoded, _ = found.read(Packed.of(values))
    return [row["f"] for row in dicts_of(decoded.table)], decoded.rows.tolist(), [own.row for own in decoded.bad]


@st.composite
def unions(draw: st.DrawFn) -> tuple[list[Any], str, list[Any]]:
    """A union, a type to read it as, and values: a pair of branch and value, or null."""
    number = draw(
        st.sampled_from(["int", "long", "float", "double"])
    )  # fastavro writes a number as the first that takes it
    branches: list[Any] = draw(st.permutations([number, "string", "boolean", "null"]))
    values = [st.none() if name == "null" else st.tuples(st.just(name), VALUES[name]) for name in branches]
    array = st.tuples(st.just("array"), st.lists(st.tuples(st.just("string"), st.text()), max_size=3))
    branches = [*branches, {"type": "array", "items": ["boolean", "string"]}]
    wanted = draw(st.sampled_from(["double", "string", "boolean"]))
    return branches, wanted, draw(st.lists(st.one_of([*values, array]), min_size=1, max_size=12))


@settings(max_examples=100, deadline=None)
@given(unions())
def test_values_of_one_type_and_null_are_read_and_the_others_are_left(case: tuple[list[Any], str, list[Any]]) -> None:
    union, wanted, values = case
    encoded = written(Schema(WRITER_ID, "", record(("f", union))), [{"f": value} for value in values])
    found, rows, bad = read(union, ["null", wanted], encoded)
    good = [row for row, value in enumerate(values) if value is None or value[0] in PROMOTED[wanted]]
    assert rows == good
    read_as = (
        float if wanted == "double" else lambda value: value
    )  # a double rounds a large long, as Avro's promotion does
    assert found == [None if values[row] is None else read_as(values[row][1]) for row in good]
    assert sorted([*rows, *bad]) == list(range(len(values)))


@settings(max_examples=100, deadline=None)
@given(unions(), st.randoms(use_true_random=False))
def test_damaged_values_are_left_too(case: tuple[list[Any], str, list[Any]], random: Any) -> None:
    union, wanted, values = case
    encoded = written(Schema(WRITER_ID, "", record(("f", union))), [{"f": value} for value in values])
    damaged = [
        value[: random.randrange(5, len(value) + 1)] + bytes(random.randrange(256) for _ in range(random.randrange(3)))
        for value in encoded
    ]
    _, rows, bad = read(union, ["null", wanted], damaged)
    assert sorted([*rows, *bad]) == list(range(len(values)))


def test_items_of_an_array_are_read_as_one_type() -> None:
    union = ["double", {"type": "array", "items": ["float", "double", "string"]}]
    values = [("array", [("double", 0.25), ("double", 0.5)]), ("double", 1.0), ("array", [("string", "x")])]
    encoded = written(Schema(WRITER_ID, "", record(("f", union))), [{"f": value} for value in values])
    wanted = ["null", {"type": "array", "items": ["null", "double"]}]
    assert read(union, wanted, encoded) == ([[0.25, 0.5]], [0], [1, 2])


@pytest.mark.parametrize("union", [["double", "string"], ["null", "double", "string"]])
def test_other_decoders_do_not_read_some_types_only(union: AvroType) -> None:
    assert not has_program(record(("f", union)), record(("f", ["null", "double"])))


def test_union_with_a_type_that_looks_like_null_is_not_read() -> None:
    union = ["double", {"type": "fixed", "name": "F", "size": 0}]
    writer, reader = (Schema(own, "", record(("f", of))) for own, of in ((WRITER_ID, union), (READER_ID, "double")))
    sources = sources_of(writer, reader, wanted_columns(reader, ["f"]).fields)
    assert column_reader(frame(WRITER_ID), writer, sources, of_some=True) is None
