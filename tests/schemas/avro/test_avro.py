import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro import decoder as avro
from millstream.schemas.avro.columns import column_reader
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.record_reader import record_reader
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.column import ListColumn, NumberColumn
from millstream.schemas.dtypes import Dtype, ListOf, RecordOf
from millstream.schemas.errors import BadFieldError, BadSchemaError, SchemaUnavailable
from millstream.schemas.packed import Chained, Packed
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import frame
from tests.fuzz.damage import zigzag
from tests.schemas.avro.avro_cases import (
    READER_ID,
    SCALARS,
    SYMBOLS,
    WRITER_ID,
    Names,
    Store,
    data,
    decoder,
    evolved,
    has_program,
    nested_evolution,
    plain,
    read_by_fastavro,
    record,
    scalar,
    schemas_with_data,
    written,
)
from tests.schemas.tables import dicts_of, dtypes_of, rows_of

# What good records give


@given(schemas_with_data())
@settings(max_examples=40, deadline=None)
def test_columns_hold_what_was_written(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, events = case
    reader = decoder(schema)
    found = reader.decode(written(Schema(WRITER_ID, "", schema), events))
    assert found.bad == []
    assert found.rows.tolist() == list(range(len(events)))
    assert plain(dicts_of(found.table)) == plain(events)
    assert dtypes_of(found.table) == reader.columns


@given(
    st.sampled_from(["float", "double"]), st.lists(st.lists(st.floats(width=32), max_size=5), min_size=1, max_size=4)
)
@settings(deadline=None)
def test_numbers_of_arrays_are_known_to_be_finite_only_if_all_are(kind: str, vectors: list[list[float]]) -> None:
    schema = record(("vector", {"type": "array", "items": kind}))
    values = written(Schema(WRITER_ID, "", schema), [{"vector": vector} for vector in vectors])
    column = decoder(schema).decode([*values, values[0] + b"left over"]).table["vector"]
    assert isinstance(column, ListColumn)
    assert isinstance(column.items, NumberColumn)
    numbers = [number for vector in vectors for number in vector]
    assert column.items.values.tolist() == pytest.approx(numbers, nan_ok=True)
    assert column.items.is_finite == (any(map(len, vectors)) and all(map(math.isfinite, numbers)))


def as_value(value: Any, dtype: Dtype) -> Any:
    """A value as its column gives it back: a float is nearest to the double."""
    if value is None:
        return None
    if isinstance(dtype, ListOf):
        return [as_value(item, dtype.items) for item in value]
    if isinstance(dtype, RecordOf):
        return {name: as_value(value[name], of) for name, of in dtype.fields}
    if dtype in {"float32", "float64"}:
        return float(np.float32(float(value)) if dtype == "float32" else value)
    return value


def check_that_both_ways_agree(writer: dict[str, Any], reader: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Columns made in C, where there is a program, records read one by one, and fastavro alone."""
    as_writer, as_reader = Schema(WRITER_ID, "", writer), Schema(READER_ID, "", reader)
    fields = wanted_columns(as_reader, [field["name"] for field in reader["fields"]]).fields
    sources = sources_of(as_writer, as_reader, fields)
    values = written(as_writer, events)
    one_by_one = record_reader(as_writer, as_reader, sources).read(values).table
    by_fastavro = read_by_fastavro(writer, reader, values)
    expected = [{one.name: as_value(event[one.name], one.dtype) for one in fields} for event in by_fastavro]
    in_c = column_reader(frame(WRITER_ID), as_writer, sources)
    for found in (one_by_one, None if in_c is None else in_c.read(Packed.of(values))[0].table):
        if found is not None:
            assert dtypes_of(found) == {field.name: field.dtype for field in fields}
            assert plain(dicts_of(found)) == plain(expected)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_both_ways_give_the_same_columns_also_after_evolution(draw: st.DataObject) -> None:
    writer, events = draw.draw(schemas_with_data())
    check_that_both_ways_agree(writer, draw.draw(evolved(writer)), events)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_both_ways_give_the_same_columns_after_evolution_within_a_field(draw: st.DataObject) -> None:
    writer, reader = draw.draw(nested_evolution())
    check_that_both_ways_agree(writer, reader, draw.draw(st.lists(data(writer), min_size=1, max_size=4)))


@pytest.mark.parametrize(
    "field_type",
    [
        *[scalar(kind, Names()) for kind in SCALARS],
        *[["null", scalar(kind, Names())] for kind in SCALARS],
        *[[scalar(kind, Names()), "null"] for kind in SCALARS],
        {"type": "array", "items": "float"},
        {"type": "array", "items": "long"},
        ["null", {"type": "array", "items": "double"}],
        ["null", record(("a", "string"), ("b", ["null", "int"]), name="Inner")],
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "string", "logicalType": "uuid"},
    ],
    ids=str,
)
def test_types_of_feature_events_become_columns_in_c(field_type: AvroType) -> None:
    assert has_program(record(("x", field_type), ("unused", "null")), fields=["x"])


@pytest.mark.parametrize(
    ("field_type", "values"),
    [
        ({"type": "map", "values": "int"}, [{"a": 1}, {}]),
        (["null", "long", "string"], [None, 5, "x"]),
        (["string"], ["x"]),
        ({"type": "array", "items": {"type": "array", "items": "string"}}, [[["a"], []], []]),
    ],
    ids=str,
)
def test_types_that_no_column_can_hold_are_passed_over(field_type: AvroType, values: list[Any]) -> None:
    schema = record(("other", field_type), ("x", "string"))
    assert has_program(schema, fields=["x"])
    found = decoder(schema, fields=["x"]).decode(
        written(Schema(WRITER_ID, "", schema), [{"other": value, "x": str(value)} for value in values])
    )
    assert found.table["x"].to_list() == list(map(str, values))


def test_logical_types_stay_what_they_are_on_the_wire() -> None:
    schema = record(
        ("time", {"type": "long", "logicalType": "timestamp-millis"}), ("day", {"type": "int", "logicalType": "date"})
    )
    values = written(Schema(WRITER_ID, "", record(("time", "long"), ("day", "int"))), [{"time": 1_700, "day": 3}])
    found = decoder(schema).decode(values)
    assert dtypes_of(found.table) == {"time": "int64", "day": "int32"}
    assert rows_of(found.table) == [(1_700, 3)]


def test_references_to_named_types_are_followed() -> None:
    side = {"type": "enum", "name": "Side", "symbols": ["LEFT", "RIGHT"]}
    schema = record(("first", side), ("second", "geo.Side"), ("third", ["null", "Side"])) | {"namespace": "geo"}
    assert has_program(schema)
    events: list[dict[str, Any]] = [
        {"first": "LEFT", "second": "RIGHT", "third": None},
        {"first": "LEFT", "second": "LEFT", "third": "LEFT"},
    ]
    assert dicts_of(decoder(schema).decode(written(Schema(WRITER_ID, "", schema), events)).table) == events


@pytest.mark.parametrize(
    ("named", "value"),
    [
        ({"type": "fixed", "name": "N", "size": 3}, b"abc"),
        ({"type": "enum", "name": "N", "symbols": SYMBOLS}, "A"),
        (record(("a", "int"), name="N"), {"a": 1}),
    ],
    ids=["fixed", "enum", "record"],
)
def test_reader_may_allow_null_where_the_writer_names_a_type_again(named: AvroType, value: Any) -> None:
    """Read one by one, fastavro wants the type defined in the same place in both schemas."""
    writer = record(("f0", named), ("f1", "N"), ("m", {"type": "map", "values": "long"}))
    values = written(Schema(WRITER_ID, "", writer), [{"f0": value, "f1": value, "m": {}}])
    found = decoder(writer, record(("f1", ["null", named]), ("f0", "N"))).decode(values)
    assert dicts_of(found.table) == [{"f1": value, "f0": value}]


def test_wrong_default_in_a_writers_schema_does_not_matter() -> None:
    named = record(("a", "int"), name="N")
    fields = ("f0", named), {"name": "f1", "type": "N", "default": 5}
    wanted = record(
        {"name": "b", "type": "int", "default": 0}, ("a", "int"), name="N"
    )  # `b` is not written: no program
    found = decoder(record(*fields), record(("f1", wanted))).decode([frame(WRITER_ID) + b"\x02\x02"])
    assert found.table["f1"].to_list() == [{"b": 0, "a": 1}]


def test_only_wanted_fields_are_columns_in_the_order_asked_for() -> None:
    schema = record(("a", "int"), ("b", "string"), ("c", "double"))
    values = written(Schema(WRITER_ID, "", schema), [{"a": 1, "b": "x", "c": 2.5}])
    found = decoder(schema, fields=["c", "a"]).decode(values).table
    assert list(found.columns) == ["c", "a"]
    assert rows_of(found) == [(2.5, 1)]


def test_no_values_give_an_empty_table_of_the_same_types() -> None:
    found = decoder(record(("a", "int"), ("b", ["null", "string"]))).decode([])
    assert dtypes_of(found.table) == {"a": "int32", "b": "string"}
    assert (len(found.table), len(found.rows), found.bad) == (0, 0, [])


@pytest.mark.parametrize("values", [[None], [None, "B"], ["A", "C"]], ids=str)
def test_enums_may_be_null(values: list[Any]) -> None:
    schema = record(("x", ["null", scalar("enum", Names())]))
    found = decoder(schema).decode(written(Schema(WRITER_ID, "", schema), [{"x": value} for value in values]))
    assert found.table["x"].to_list() == values


def test_reader_may_know_more_symbols_than_the_writer() -> None:
    old = record(("x", {"type": "enum", "name": "E", "symbols": ["B", "A"]}))
    new = record(("x", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}))
    assert has_program(old, new)
    values = written(Schema(WRITER_ID, "", old), [{"x": "A"}, {"x": "B"}])
    assert decoder(old, new).decode(values).table["x"].to_list() == ["A", "B"]


def test_several_writer_schemas_in_one_poll_keep_the_order() -> None:
    old, new = record(("x", "int")), record(("x", "long"), {"name": "y", "type": "string", "default": "none"})
    olds = written(Schema(WRITER_ID, "", old), [{"x": 0}, {"x": 2}])
    news = written(Schema(READER_ID, "", new), [{"x": 1, "y": "a"}, {"x": 4, "y": "b"}])
    found = decoder(old, new).decode([olds[0], news[0], olds[1], frame(99) + b"\x02", news[1], b"", olds[1][:-1]])
    assert rows_of(found.table) == [(0, "none"), (1, "a"), (2, "none"), (4, "b")]
    assert found.rows.tolist() == [0, 1, 2, 4]
    assert [(bad.row, bad.reason) for bad in found.bad] == [
        (3, "unknown_schema"),
        (5, "undecodable"),
        (6, "undecodable"),
    ]


@pytest.mark.usefixtures("way")
def test_values_of_two_polls_are_read_as_if_they_lay_end_to_end() -> None:
    definition = record(("a", "string"), ("b", {"type": "array", "items": "float"}))
    polls = [written(Schema(WRITER_ID, "", definition), [{"a": f"{poll}", "b": [poll, 0.5]}] * 2) for poll in range(2)]
    polls[1].insert(1, polls[1][0] + b"x")
    polls[0].append(b"")
    together = decoder(definition).decode([value for poll in polls for value in poll])
    found = decoder(definition).decode(Chained([Packed.of(poll) for poll in polls]))
    assert found.rows.tolist() == together.rows.tolist() == [0, 1, 3, 5]
    assert found.bad == together.bad
    assert dicts_of(found.table) == dicts_of(together.table)


@pytest.mark.parametrize("items", [600, 100])
def test_long_vectors_become_columns_of_memory_that_no_other_call_fills(items: int) -> None:
    definition = record(("x", {"type": "array", "items": "double"}), ("other", "bytes"))
    reader = decoder(definition, fields=["x"])
    events = [{"x": [float(row)] * items, "other": bytes(4800 - 8 * items)} for row in range(300)]
    found = reader.decode(written(Schema(WRITER_ID, "", definition), events)).table
    reader.decode(written(Schema(WRITER_ID, "", definition), [{"x": [-1.0] * 600, "other": b""}] * 300))
    assert found["x"].to_list() == [event["x"] for event in events]


def test_values_of_another_schema_are_never_taken_for_those_before() -> None:
    old, new = record(("a", "float"), ("b", "float")), record(("b", "float"), ("a", "float"))
    reader = decoder(old, new)
    olds = written(Schema(WRITER_ID, "", old), [{"a": 1.0, "b": 2.0}] * 2)
    news = written(Schema(READER_ID, "", new), [{"a": 3.0, "b": 4.0}] * 2)
    for _ in range(2):  # the second time their readers are known
        for values in (olds, news, [*olds, *news], [olds[0], news[0], olds[1]]):
            found = reader.decode(values)
            assert found.bad == []
            assert found.table["a"].to_list() == [1.0 if value in olds else 3.0 for value in values]
    found = reader.decode([olds[0], frame(99) + olds[0][5:]])
    assert found.rows.tolist() == [0]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "unknown_schema")]


@pytest.mark.parametrize(
    ("field_type", "default", "expected"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\u0000\u00fe", b"\x00\xfe"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ("double", 1, 1.0),
        (["null", "long"], None, None),
        (
            record({"name": "x", "type": "int", "default": 5}, ("y", "bytes"), name="J"),
            {"y": "\u00ff"},
            {"x": 5, "y": b"\xff"},
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "within", [lambda inner: inner, lambda inner: ["null", inner], lambda inner: {"type": "array", "items": inner}]
)
def test_field_added_to_a_nested_record_has_its_default(
    field_type: AvroType, default: Any, expected: Any, within: Callable[[AvroType], AvroType]
) -> None:
    added = {"name": "added", "type": field_type, "default": default}
    old = record(("x", within(record(("a", "int"), name="Inner"))))
    new = record(("x", within(record(("a", "int"), added, name="Inner"))))
    inner: Any = {"a": 1}
    found_inner: Any = {"a": 1, "added": expected}
    if "items" in old["fields"][0]["type"]:
        inner, found_inner = [inner], [found_inner]
    found = decoder(old, new).decode(written(Schema(WRITER_ID, "", old), [{"x": inner}]))
    assert found.bad == []
    assert dicts_of(found.table) == [{"x": found_inner}]


def test_nested_default_that_is_no_value_of_its_type_makes_records_incompatible() -> None:
    added = {"name": "added", "type": record(("y", "bytes"), name="J"), "default": {}}
    old, new = (record(("x", record(("a", "int"), *more, name="Inner"))) for more in ([], [added]))
    found = decoder(old, new).decode(written(Schema(WRITER_ID, "", old), [{"x": {"a": 1}}]))
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"]
    assert "schema 8 'reader': a nested field's default is no value of its type" in found.bad[0].error


def test_float_columns_are_nearest_by_way_of_double() -> None:
    number = 2**60 + 2**36 + 1  # as a float: nearest to the double, which drops the last 1, is the even neighbour
    writer = record(("x", "long"))
    found = decoder(writer, record(("x", "float"))).decode(written(Schema(WRITER_ID, "", writer), [{"x": number}]))
    assert found.table["x"].to_list() == [float(np.float32(float(number)))]


# What bad records give


def test_field_without_value_or_default_makes_records_incompatible() -> None:
    old, new = record(("x", "int")), record(("x", "int"), ("y", "string"))
    found = decoder(old, new).decode(written(Schema(WRITER_ID, "", old), [{"x": 0}, {"x": 2}]))
    assert [(bad.row, bad.reason) for bad in found.bad] == [(0, "schema_incompatible"), (1, "schema_incompatible")]
    assert "schema 7 'writer'" in found.bad[0].error
    assert "lacks the field 'y' that schema 8 'reader' wants" in found.bad[0].error
    assert dtypes_of(found.table) == {"x": "int32", "y": "string"}


@pytest.mark.usefixtures("way")
def test_null_that_the_reader_does_not_allow_is_incompatible() -> None:
    writer = record(("x", ["null", "int"]), ("other", "long"))
    reader = record(("x", "int"))
    values = written(
        Schema(WRITER_ID, "", writer), [{"x": 1, "other": 1}, {"x": None, "other": 1}, {"x": 3, "other": 1}]
    )
    found = decoder(writer, reader).decode(values)
    assert found.table["x"].to_list() == [1, 3]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "schema_incompatible")]


@pytest.mark.usefixtures("way")
def test_nested_null_that_the_reader_does_not_allow_is_incompatible() -> None:
    old, new = (record(("x", record(("a", of), name="Inner"))) for of in (["null", "int"], "int"))
    values = written(Schema(WRITER_ID, "", old), [{"x": {"a": 1}}, {"x": {"a": None}}, {"x": {"a": 3}}])
    found = decoder(old, new).decode(values)
    assert found.table["x"].to_list() == [{"a": 1}, {"a": 3}]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "schema_incompatible")]


NESTED = record(("a", "int"), name="Inner")
LACKING = record(("a", "int"), ("d", "string"), name="Inner")


def of_type(inner: AvroType) -> AvroType:
    """A record with a field `b` of this type."""
    return record(("a", "int"), ("b", inner), name="Inner")


LONGS, INTS = ({"type": "array", "items": items} for items in ("long", "int"))


@pytest.mark.parametrize(
    ("written_as", "wanted", "value", "says"),
    [
        ("string", "int", "a", "x': it is written as string, and the reader schema wants int"),
        (
            ["null", "double"],
            ["null", "float"],
            0.1,
            "x': it is written as null or double, and the reader schema wants null or float",
        ),
        (NESTED, LACKING, {"a": 1}, "x.d': its record Inner lacks 'd', for which the reader schema has no default"),
        (
            LONGS,
            INTS,
            [1],
            """x': it is written as {"type": "array", "items": "long"}, and the reader schema wants {"type": "array\"""",
        ),
        (
            ["null", of_type(["null", "long"])],
            ["null", of_type(["null", "int"])],
            {"a": 1, "b": 2},
            "x.b': it is written as null or long, and the reader schema wants null or int",
        ),
        (
            {"type": "array", "items": of_type("long")},
            {"type": "array", "items": of_type("int")},
            [{"a": 1, "b": 2}],
            "x[].b': it is written as long, and the reader schema wants int",
        ),
    ],
)
def test_field_that_the_reader_schema_does_not_take_is_named(
    written_as: AvroType, wanted: AvroType, value: Any, says: str
) -> None:
    old, new = (record(("first", "int"), ("x", of)) for of in (written_as, wanted))
    rows = [{"first": 1, "x": value}] * 3
    found = decoder(old, new).decode(written(Schema(WRITER_ID, "", old), rows))
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"] * 3
    for bad in found.bad:
        assert f"a record of schema 7 'writer' can't be read with schema 8 'reader': field '{says}" in bad.error


def test_schema_that_comes_later_is_found_then() -> None:
    schema = record(("x", "int"))
    store = Store()
    reader = AvroDecoder(store, Schema(READER_ID, "reader", schema), ["x"])
    values = written(Schema(WRITER_ID, "", schema), [{"x": 5}])
    assert [bad.reason for bad in reader.decode(values).bad] == ["unknown_schema"]
    store.schemas[WRITER_ID] = Schema(WRITER_ID, "writer", schema)
    assert reader.decode(values).table["x"].to_list() == [5]


def test_schemas_of_most_records_are_looked_up_first() -> None:
    schema = record(("x", "int"))
    store = Store(Schema(WRITER_ID, "writer", schema))
    reader = AvroDecoder(store, Schema(READER_ID, "reader", schema), ["x"])
    heads = [100, 101, 101, WRITER_ID, 102, WRITER_ID, 103, WRITER_ID]
    found = reader.decode([b"", b"\x01", *[frame(head) + b"\x02" for head in heads], b"\x00\x00"])
    assert store.asked == [WRITER_ID, 101, 100, 102, 103]
    assert found.rows.tolist() == [5, 7, 9]
    assert [bad.row for bad in found.bad] == [0, 1, 2, 3, 4, 6, 8, 10]
    assert [bad.reason for bad in found.bad] == ["undecodable"] * 2 + ["unknown_schema"] * 5 + ["undecodable"]


@pytest.mark.parametrize("refused", [False, True], ids=["read", "refused"])
def test_readers_used_least_recently_are_made_anew(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    monkeypatch.setattr("millstream.schemas.avro.decoder.MAX_CACHE_SIZE", 30)  # two of them
    writer = record(("x", "string" if not refused else {"type": "array", "items": "null"}))
    store = Store(*[Schema(schema_id, "", writer) for schema_id in (1, 2, 3)])
    reader = AvroDecoder(store, Schema(READER_ID, "reader", record(("x", "string"))), ["x"])
    for schema_id in (1, 2, 1, 3, 1, 2):
        reader.decode([frame(schema_id) + b"\x02a"])
    assert store.asked == [1, 2, 3, 2]


def test_outage_of_the_store_is_raised_not_blamed_on_records() -> None:
    schema = record(("x", "int"))
    store = Store(Schema(WRITER_ID, "writer", schema))
    store.down = True
    reader = AvroDecoder(store, Schema(READER_ID, "reader", schema), ["x"])
    values = written(Schema(WRITER_ID, "", schema), [{"x": 5}])
    with pytest.raises(SchemaUnavailable):
        reader.decode(values)
    store.down = False
    assert reader.decode(values).table["x"].to_list() == [5]


@pytest.mark.parametrize(
    "writer",
    [
        record(("x", "int"), ("next", ["null", "Event"])),
        record(("x", "int"), ("nothing", {"type": "array", "items": "null"})),
        {"type": "string"},
    ],
    ids=["contains itself", "items without bytes", "no record"],
)
def test_schemas_whose_records_cannot_be_bounded_are_refused(writer: AvroType) -> None:
    found = decoder(writer, record(("x", "int"))).decode([frame(WRITER_ID) + b"\x02\x00"])
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"]


# Settings


@pytest.mark.parametrize("aliases", [[5], [["y"]]], ids=str)
def test_aliases_that_are_no_names_are_refused(aliases: object) -> None:
    with pytest.raises(BadFieldError, match=r"field 'x' of schema 8 'reader': expected names as its aliases"):
        decoder(record({"name": "x", "type": "int", "aliases": aliases}))


def test_unknown_fields_are_refused_with_those_that_exist() -> None:
    with pytest.raises(BadFieldError, match=r"schema 8 'reader' has no field 'z'; it has x, y"):
        decoder(record(("x", "int"), ("y", "int")), fields=["x", "z"])


@pytest.mark.parametrize(
    ("field_type", "default"),
    [
        *(("int", "x"), ("double", "x"), ("bytes", 5), ("int", 2**40), (["null", "string"], 5)),
        *(({"type": "array", "items": "string"}, [None]), (record(("a", "int"), name="R"), {})),
        *((record(("a", "boolean"), name="R"), {"a": 1}), ("long", 10**40)),
    ],
    ids=str,
)
def test_defaults_of_another_type_are_refused(field_type: AvroType, default: object) -> None:
    with pytest.raises((BadFieldError, BadSchemaError), match=r"[Dd]efault"):
        decoder(record({"name": "x", "type": field_type, "default": default}))


@pytest.mark.parametrize("field_type", [{"type": "map", "values": "int"}, ["null", "int", "bytes"], "null"], ids=str)
def test_fields_that_no_column_can_hold_are_refused(field_type: AvroType) -> None:
    with pytest.raises(BadFieldError, match="field 'x' of schema 8 'reader': no column can hold"):
        decoder(record(("x", field_type)))


def test_schema_that_is_away_names_the_first_record_that_waits_for_it() -> None:
    class Away:
        """Gives the first schema only."""

        def by_id(self, schema_id: int) -> Schema:
            if schema_id == first.id:
                return first
            raise SchemaUnavailable("the registry is away")

    first = Schema(1, "r", {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    values = [frame(1) + b"\x02", frame(1) + b"\x04", frame(2) + b"\x02", frame(1) + b"\x06", frame(2) + b"\x04"]
    with pytest.raises(SchemaUnavailable) as raised:
        AvroDecoder(Away(), first, ["n"]).decode(values)  # type: ignore[arg-type]
    assert raised.value.row == 2


class Many:
    """A schema for each ID, of so many fields that nobody wants."""

    def __init__(self, fields: int) -> None:
        self._fields = [{"name": f"f{number}", "type": "boolean"} for number in range(fields)]

    def by_id(self, schema_id: int) -> Schema:
        fields = [{"name": "n", "type": "int"}, *self._fields]
        return Schema(schema_id, f"s{schema_id}", {"type": "record", "name": "R", "fields": fields})


def test_many_large_schemas_at_a_time_are_given_up_and_the_known_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes long to prepare, and their number is up to the producer."""
    monkeypatch.setattr(avro, "COMPILE_BUDGET", {"share": 0.0, "burst": 0.2})
    store = Many(3000)
    decoder = AvroDecoder(store, store.by_id(1), ["n"])  # type: ignore[arg-type]
    body = b"\x02" + bytes(3000)
    values = [frame(1) + body] * 3 + [frame(schema_id) + body for schema_id in range(2, 60)]
    found = decoder.decode(values)
    assert found.rows.tolist()[:3] == [0, 1, 2]
    assert len(found.bad) > 20
    assert {bad.reason for bad in found.bad} == {"unknown_schema"}
    assert "Replay this record later" in found.bad[0].error
    assert len(decoder.decode([frame(1) + body] * 3).rows) == 3


@pytest.mark.usefixtures("one_by_one")
def test_record_that_would_take_hundreds_of_megabytes_as_objects_is_refused() -> None:
    schema = Schema(1, "m", record(("n", "int"), ("m", {"type": "map", "values": "int"})))
    decoder = AvroDecoder(Store(schema), schema, ["n"])
    entry = b"\x02a\x00"
    body = [b"\x02" + zigzag(count) + entry * count + b"\x00" for count in (10, 1_000_000)]
    found = decoder.decode([frame(1) + one for one in body])
    assert found.rows.tolist() == [0]
    assert "expected at most 2,097,152 bytes, because records of this schema are read one by one" in found.bad[0].error


@pytest.mark.usefixtures("one_by_one")
def test_values_beyond_their_type_are_found_among_records_read_one_by_one() -> None:
    """fastavro reads an int of any size."""
    schema = Schema(1, "m", record(("n", "int")))
    values = [frame(1) + (zigzag(2**40) if row in {3, 4, 9} else zigzag(row)) for row in range(11)]
    found = AvroDecoder(Store(schema), schema, ["n"]).decode(values)
    assert [bad.row for bad in found.bad] == [3, 4, 9]
    assert found.table["n"].to_list() == [0, 1, 2, 5, 6, 7, 8, 10]
    assert found.rows.tolist() == [0, 1, 2, 5, 6, 7, 8, 10]
