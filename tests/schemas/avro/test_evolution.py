"""What resolution would do silently: a default in all records of a writer, a time in another unit."""

import logging
from typing import Any

import pytest

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.evolution import silent_defaults
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.errors import Unreadable
from millstream.schemas.store import AvroType, Schema
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, Store, record, written
from tests.schemas.tables import dicts_of


def schemas(old: AvroType, new: AvroType) -> tuple[Schema, Schema]:
    return Schema(WRITER_ID, "old", old), Schema(READER_ID, "new", new)


def found(old: AvroType, new: AvroType, *paths: str) -> dict[str, Any]:
    writer, reader = schemas(old, new)
    return silent_defaults(writer, reader, wanted_columns(reader, paths).fields)


def field(name: str, of: AvroType, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": of, **more}


def time(logical: str, of: str = "long") -> AvroType:
    return {"type": of, "logicalType": logical}


def within(kind: str, inner: AvroType) -> AvroType:
    """A type with this one inside; `PATHS` has the path to it."""
    match kind:
        case "array":
            return {"type": "array", "items": inner}
        case "map":
            return {"type": "map", "values": inner}
        case "nullable":
            return ["null", inner]
    return inner


PATHS = {"plain": "x{}", "nullable": "x{}", "array": "x[]{}", "map": "x.key{}"}


def test_wanted_fields_that_the_writer_lacks_are_found_with_their_defaults() -> None:
    old = record(("id", "string"), ("sum", "int"))
    new = record(
        ("id", "string"),
        field("amount", "double", default=3.0),
        field("unused", "int", default=1),
        field("note", ["null", "string"], default=None),
        field("total", "int", default=0, aliases=["sum"]),
    )
    assert found(old, new, "id", "amount", "note") == {"amount": 3.0}
    assert found(old, new, "total") == {}


@pytest.mark.parametrize("kind", PATHS)
def test_defaults_of_nested_fields_are_found(kind: str) -> None:
    inner = [record(("a", "int"), *more, name="Inner") for more in ([], [field("b", "int", default=7)])]
    old, new = (record(("x", within(kind, each))) for each in inner)
    assert found(old, new, PATHS[kind].format(".b")) == {PATHS[kind].format(".b"): 7}
    assert found(old, new, PATHS[kind].format(".a")) == {}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (time("timestamp-micros"), time("timestamp-millis")),
        (time("local-timestamp-millis"), time("timestamp-micros")),
        (time("local-timestamp-millis"), time("timestamp-millis")),
        (time("timestamp-millis"), time("local-timestamp-millis")),
        (time("date", "int"), time("timestamp-millis")),
        (["null", time("timestamp-nanos")], ["null", time("timestamp-millis")]),
    ],
)
def test_time_in_another_unit_is_refused(kind: str, theirs: AvroType, ours: AvroType) -> None:
    if kind == "nullable" and isinstance(theirs, list):
        kind = "plain"
    old, new = (record(("x", within(kind, each))) for each in (theirs, ours))
    path = PATHS[kind].format("")
    with pytest.raises(
        Unreadable, match=r"schema 7 'old', which the record was written with, has .* wants .*"
    ) as refused:
        found(old, new, path)
    assert f"at `{path}`" in str(refused.value)
    assert refused.value.reason == "schema_incompatible"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (time("timestamp-millis"), time("timestamp-millis")),
        (time("local-timestamp-millis"), time("local-timestamp-millis")),
        ("long", time("timestamp-millis")),
        (time("timestamp-millis"), "long"),
        (["null", time("timestamp-millis")], time("timestamp-millis")),
        (["null", time("timestamp-millis"), "string"], ["null", "string", time("timestamp-millis")]),
        ({"type": "int", "logicalType": "of our own"}, time("timestamp-millis")),
        (time("timestamp-seconds"), time("timestamp-millis")),
        (time("datetime", "string"), time("date-of-birth", "string")),
        (time("date", "string"), time("timestamp-millis", "string")),
        ([time("date", "int"), "string"], ["string", "int", time("timestamp-millis")]),
    ],
)
def test_time_in_the_same_unit_or_without_one_is_read(theirs: AvroType, ours: AvroType) -> None:
    assert found(record(("x", theirs), ("y", "int")), record(("x", ours)), "x") == {}


@pytest.mark.parametrize("other", [time("time-millis", "int"), "string"])
def test_time_in_another_unit_is_refused_also_beside_other_types(other: AvroType) -> None:
    old, new = (record(("x", [time(f"timestamp-{unit}"), other])) for unit in ("micros", "millis"))
    with pytest.raises(Unreadable, match="has timestamp-micros at `x`, where schema 8 'new' wants timestamp-millis"):
        found(old, new, "x")


@pytest.mark.parametrize("kind", ["plain", "array", "map"])
def test_union_of_several_types_is_looked_into(kind: str) -> None:
    old, new = (record(("t", time(f"timestamp-{unit}")), name="Inner") for unit in ("micros", "millis"))
    new["fields"].append(field("added", "int", default=7))
    theirs, ours = record(("x", ["null", "string", within(kind, old)])), record(("x", within(kind, new)))
    with pytest.raises(
        Unreadable, match=r"has timestamp-micros at `x.*t`, where schema 8 'new' wants timestamp-millis"
    ):
        found(theirs, ours, PATHS[kind].format(".t"))
    path = PATHS[kind].format(".added")
    assert found(theirs, ours, path) == {path: 7}


@pytest.mark.usefixtures("way")
def test_record_of_another_name_in_a_union_has_no_say() -> None:
    """Resolution refuses such records. So their units don't matter, and they get no defaults."""
    ordered = record(("t", time("timestamp-millis")), ("sum", "int"), name="Ordered")
    paid = record(("t", time("timestamp-micros")), name="Paid")
    ours = record(("t", time("timestamp-millis")), field("sum", "int", default=0), name="Bought")
    writer, reader = schemas(record(("x", [ordered, paid])), record(("x", ours | {"aliases": ["Ordered"]})))
    assert found(writer.definition, reader.definition, "x.t", "x.sum") == {}
    values = written(writer, [{"x": ("Ordered", {"t": 1, "sum": 2})}, {"x": ("Paid", {"t": 3})}])
    decoded = AvroDecoder(Store(writer, reader), reader, ["x.t"]).decode(values)
    assert dicts_of(decoded.table) == [{"x.t": 1}]
    assert [(bad.row, bad.reason) for bad in decoded.bad] == [(1, "schema_incompatible")]


def test_unused_time_may_have_any_unit() -> None:
    old, new = (record(("x", time(f"timestamp-{unit}")), ("y", "int")) for unit in ("micros", "millis"))
    assert found(old, new, "y") == {}


@pytest.mark.usefixtures("way")
def test_decoder_warns_once_for_each_schema_of_a_producer_and_rejects_other_units(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    lacking = Schema(WRITER_ID, "old", record(("id", "string")))
    micros = Schema(WRITER_ID + 2, "micros", record(("id", "string"), ("at", time("timestamp-micros"))))
    reader = Schema(
        READER_ID,
        "new",
        record(("id", "string"), field("at", time("timestamp-millis"), default=5), ("z", ["null", "int"])),
    )
    decoder = AvroDecoder(Store(lacking, micros, reader), reader, ["id", "at"])
    for _ in range(2):
        decoded = decoder.decode(
            [
                *written(lacking, [{"id": "a"}]),
                *written(micros, [{"id": "b", "at": 1}]),
                *written(reader, [{"id": "c", "at": 9, "z": None}]),
            ]
        )
        assert dicts_of(decoded.table) == [{"id": "a", "at": 5}, {"id": "c", "at": 9}]
        assert [(bad.row, bad.reason) for bad in decoded.bad] == [(1, "schema_incompatible")]
        assert "has timestamp-micros at `at`, where schema 8 'new' wants timestamp-millis" in decoded.bad[0].error
    assert [one.getMessage() for one in caplog.records] == [
        "schema 7 'old' lacks `at` (default 5): all its records get the default of schema 8 'new'. If the producer renamed a "
        "field, write the old and the new name as in `millstream docs registry#when-schemas-change`"
    ]
