"""Schemas that would stop a worker or take its memory are refused: from a registry, from a folder, and for reading with."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.limits import MAX_FIXED, MAX_TEXT, definition_of, parsed_within_limits, types_of
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.errors import BadSchemaError
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import frame
from tests.fuzz.damage import zigzag
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, Store, decoder, record, schemas, written
from tests.schemas.tables import dicts_of


def _doubling(levels: int, *, side_by_side: bool = False) -> dict[str, Any]:
    """A record for each level with two fields of the record before."""
    fields: list[tuple[str, AvroType]] = [("x", "int")]
    inner: AvroType = record(("a", "int"), ("b", "int"), name="R0")
    for level in range(1, levels):
        if side_by_side:
            fields.append((f"r{level}", inner))
            inner = f"R{level - 1}"
        inner = record(("a", inner), ("b", f"R{level - 1}"), name=f"R{level}")
    return record(*fields, ("y", inner))


def _nested(levels: int) -> AvroType:
    inner: AvroType = "int"
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return inner


def _chained(levels: int) -> dict[str, Any]:
    """Records that are not nested in the text, each with a field of the one before."""
    fields = [("r0", record(("a", "int"), name="R0"))]
    fields += [(f"r{level}", record(("a", f"R{level - 1}"), name=f"R{level}")) for level in range(1, levels)]
    return record(("x", "int"), *fields)


def _fixed(size: object) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


TOO_LARGE = [
    (_doubling(20), "at most 10,000 types, found 2,"),
    (_doubling(20, side_by_side=True), "at most 10,000 types, found"),
    (_doubling(60, side_by_side=True), "found more than a billion"),
    (record(("x", "int"), *[(f"f{i}", "int") for i in range(10_000)]), "at most 10,000 types, found 10,002"),
    (record(("x", "int"), ("y", _nested(65))), "at most 64 levels deep, found 67"),
    (record(("x", "int"), ("y", _nested(900))), "JSON at most 256 levels deep"),
    (_chained(80), "at most 64 levels deep, found 82"),
    ({**record(("x", "int")), "doc": json.loads("[" * 300 + "]" * 300)}, "JSON at most 256 levels deep"),
    *[
        (record(("x", "int"), ("f", _fixed(size))), f"size from 0 to {MAX_FIXED} for the fixed type F, found")
        for size in (2**70, 2**31, -1, "7", None, True, 1.5, 10**4000)
    ],
    (record(("x", "int"), ("y", "int"), ("x", "null")), "fields of different names in Event, found x twice"),
    (record(("r", {**record(("z", "long"), ("z", "long")), "name": "In"})), "found z twice"),
    (record(("x", "int"), ("u", [["null", "int"], "null"])), "no union directly within a union"),
    ({**record(("x", "R9")), "__fastavro_parsed": True, "__named_schemas": {}}, "fastavro's internal keys"),
    (record(("x", {"type": ["null", {**record(name="R"), "__fastavro_parsed": True}]})), "fastavro's internal keys"),
]
NO_SCHEMA: list[AvroType] = [
    None,
    5,
    1.5,
    "garbage",
    {},
    {"type": []},
    {"type": "record"},
    record(("x", "R9")),
    record(("x", "int"), ("u", ["null", {"type": ["null", "int"]}])),
    record({"name": [], "type": "int"}),
    record({"name": "\ud800", "type": "int"}),
    record({"name": "", "type": "int"}),
    record(("x", record(name="\ud800"))),
    record(("x", {"type": "enum", "name": "E", "symbols": {"A": 1}})),
]


@pytest.mark.parametrize(("definition", "said"), TOO_LARGE, ids=[said for _, said in TOO_LARGE])
def test_schema_beyond_the_limits_is_refused_wherever_it_comes_from(
    tmp_path: Path, definition: AvroType, said: str
) -> None:
    with pytest.raises(BadSchemaError, match=f"here: .*{said}"):
        definition_of("here", json.dumps(definition))
    (tmp_path / "1-event.avsc").write_text(json.dumps(definition))
    with pytest.raises(BadSchemaError, match=rf"1-event\.avsc: .*{said}"):
        DirectoryStore(tmp_path)
    with pytest.raises(BadSchemaError, match=f"schema 8 'reader': .*{said}"):
        AvroDecoder(Store(), Schema(READER_ID, "reader", definition), ["x"])
    found = decoder(definition, record(("x", "int"))).decode([frame(WRITER_ID) + b"\x02"])
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"]
    assert said in found.bad[0].error


@pytest.mark.parametrize("definition", NO_SCHEMA, ids=repr)
def test_what_is_no_schema_is_refused(definition: AvroType) -> None:
    with pytest.raises(BadSchemaError, match=r"here: expected (an Avro schema|text as the name|a list as the symbols)"):
        definition_of("here", json.dumps(definition))
    found = decoder(definition, record(("x", "int"))).decode([frame(WRITER_ID) + b"\x02"])
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"]


@pytest.mark.parametrize(
    "text", ["[" * 990 + "]" * 990, "[" * 200_000, '{"a":' * 200_000, "{", "nul", "9" * 5000], ids=lambda text: text[:9]
)
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadSchemaError, match="here: "):
        definition_of("here", text, bare_name=True)


def test_text_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    text = json.dumps({**record(("x", "int")), "doc": "d" * MAX_TEXT})
    with pytest.raises(BadSchemaError, match="at most 1,048,576 characters"):
        definition_of("here", text)
    (tmp_path / "1-event.avsc").write_text(text * 5)
    with pytest.raises(BadSchemaError, match=r"1-event\.avsc: .*at most 1,048,576 characters"):
        DirectoryStore(tmp_path)


def test_large_schemas_within_the_limits_are_read() -> None:
    wide = record(("x", "int"), *[(f"f{i}", ["null", "double"]) for i in range(3000)])
    assert types_of(parsed_within_limits("here", wide)) == 2 + 3 * 3000
    values = written(Schema(WRITER_ID, "", wide), [{"x": 5} | {f"f{i}": None for i in range(3000)}])
    assert decoder(wide, record(("x", "int"))).decode(values).table["x"].to_list() == [5]
    deep = record(("x", "int"), ("y", _nested(60)))
    assert decoder(deep, record(("x", "int"))).decode([frame(WRITER_ID) + b"\x0a\x00"]).table["x"].to_list() == [5]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_damaged_schema_makes_the_decoder_fail(draw: st.DataObject) -> None:
    definition = draw.draw(schemas())
    path: list[Any] = []
    node: Any = definition
    while isinstance(node, dict | list) and len(node):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        path.append((node, draw.draw(st.sampled_from(list(keys)))))
        node = path[-1][0][path[-1][1]]
        if draw.draw(st.booleans()):
            break
    other = st.sampled_from([None, 5, -1, 2**63, "", "x", "null", "string", [], {}, [[]], {"type": "null"}, definition])
    holder, key = path[-1]
    holder[key] = draw.draw(other)
    try:
        json.dumps(definition)
    except ValueError:
        return  # contains itself, as no text can
    found = decoder(definition, record({"name": "f0", "type": ["null", "int"], "default": None}))
    values = [frame(WRITER_ID) + draw.draw(st.binary(max_size=20)) for _ in range(3)]
    decoded = found.decode(values)
    assert len(decoded.rows) + len(decoded.bad) == 3


# Records of schemas within the limits


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("item", "count"),
    [
        (_fixed(2**30), 2**33),  # 2^63: below 0 in 64 bits
        (record(("a", _fixed(2**30)), ("b", {**_fixed(2**30), "name": "G"}), name="Two"), 2**33),  # 2^64: 0
        (record(("a", _fixed(2**31 - 1)), ("b", {**_fixed(1), "name": "G"}), name="Two"), 2**33),  # 2^64: 0
        (_fixed(2**31 - 1), 2**34 - 1),
        ("double", 2**34 - 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("negative", [False, True])
def test_count_of_more_items_than_fit_is_undecodable(item: AvroType, count: int, negative: bool) -> None:
    schema = record(("m", "int"), ("a", {"type": "array", "items": item}), ("x", "int"))
    of_block = bytes([zigzag(count)[0] - 1]) + zigzag(count)[1:] + b"\x00" if negative else zigzag(count)
    good = frame(WRITER_ID) + b"\x00\x00\x0a"
    found = decoder(schema, fields=["x"]).decode([good, frame(WRITER_ID) + b"\x00" + of_block + b"\x00\x00\x0a"])
    assert found.table["x"].to_list() == [5]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "undecodable")]


@pytest.mark.usefixtures("way")
def test_enum_without_symbols_is_undecodable() -> None:
    schema = record(("m", "int"), ("e", {"type": "enum", "name": "E", "symbols": []}), ("x", "int"))
    found = decoder(schema, fields=["x"]).decode([frame(WRITER_ID) + b"\x00\x00\x0a"])
    assert [bad.reason for bad in found.bad] == ["undecodable"]


def test_many_fields_without_bytes_are_refused() -> None:
    nulls = record(*[(f"n{i}", "null") for i in range(101)], name="Nulls")
    schema = record(("x", "int"), ("m", {"type": "map", "values": nulls}))
    found = decoder(schema, record(("x", "int"))).decode([frame(WRITER_ID) + b"\x0a\x00"])
    assert [bad.reason for bad in found.bad] == ["schema_incompatible"]
    assert "at most 100 fields without bytes" in found.bad[0].error


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["nulls beside a boolean", "a boolean 58 records deep"])
def test_memory_is_by_a_records_bytes_not_by_its_types(kind: str) -> None:
    """As dicts of all records and fields these 20 kB would be 200 MB."""
    item: AvroType = record(("b", "boolean"), *[(f"n{i}", "null") for i in range(99)], name="Item")
    if "deep" in kind:
        item = "boolean"
        for level in range(58):
            item = record(("r", item), name=f"R{level}")
    schema = record(("x", "int"), ("a", {"type": "array", "items": item}))
    values = [frame(WRITER_ID) + b"\x0a" + zigzag(20_000) + b"\x01" * 20_000 + b"\x00"]
    reads = decoder(schema, record(("x", "int")))
    tracemalloc.start()
    try:
        assert reads.decode(values).table["x"].to_list() == [5]
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("way")
def test_many_arrays_of_many_blocks_are_passed_over() -> None:
    arrays = [(f"a{i}", {"type": "array", "items": "int"}) for i in range(101)]
    schema = record(("x", "int"), *arrays)
    found = decoder(schema, fields=["x"]).decode([frame(WRITER_ID) + b"\x0a" + (b"\x02\x00" * 300 + b"\x00") * 101])
    assert found.table["x"].to_list() == [5]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("namespace", ["some.where", ""])
def test_names_of_ours_are_told_from_those_of_the_schema(namespace: str) -> None:
    """Fields that are passed over get types with names that are made up; here the schema has such names itself."""
    inner = record(("p", "int"), ("q", "string"), name="Same1")
    enum = {"type": "enum", "name": "Same_1", "symbols": ["A", "B"]}
    schema = record(
        ("x", inner), ("m", {"type": "map", "values": inner["name"]}), ("e", enum), ("o", enum["name"]), ("n", "Same1")
    )
    schema = schema | {"namespace": namespace}
    event = {"x": {"p": 1, "q": "a"}, "m": {"k": {"p": 2, "q": "b"}}, "e": "A", "o": "B", "n": {"p": 3, "q": "c"}}
    values = written(Schema(WRITER_ID, "", schema), [event])
    found = decoder(schema, fields=["n", "o"]).decode(values)
    assert (found.bad, dicts_of(found.table)) == ([], [{"n": event["n"], "o": "B"}])
