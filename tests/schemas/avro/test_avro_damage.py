import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro.record_reader import record_reader
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.types import kind_of
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import frame
from tests.schemas.avro.avro_cases import (
    SYMBOLS,
    WRITER_ID,
    decoder,
    has_program,
    plain,
    record,
    schemas_with_data,
    written,
)
from tests.schemas.tables import dicts_of

LONG_ARRAY = {"type": "array", "items": "long"}
FLOAT_ARRAY = {"type": "array", "items": "float"}
ENUM = {"type": "enum", "name": "E", "symbols": SYMBOLS}


@pytest.mark.parametrize(
    ("field_type", "body", "said"),
    [
        ("boolean", b"\x02", "byte 0 or 1"),
        ("boolean", b"", "ends before the field"),
        ("int", b"\x80\x80\x80\x80\x10", "too large for its type"),  # 2^31
        ("int", b"\x82\x80\x80\x80\x80\x00", "too large for its type"),  # six bytes
        ("long", b"\x82" + b"\x80" * 9 + b"\x00", "too large for its type"),
        ("long", b"\xff" * 9 + b"\x02", "too large for its type"),
        ("long", b"\x80", "ends before the field"),
        ("double", b"\x00" * 7, "ends before the field"),
        ("double", b"\x00" * 9, "1 bytes are left over"),
        ("string", b"\x01a", "negative length"),
        ("string", b"\x06ab", "ends before the field"),
        ("string", b"\xfe\xff\xff\xff\xff\x7fab", "too large for its type"),
        ("string", b"\x04\xc3\x28", "invalid utf"),
        ("string", b"\x06\xed\xa0\x80", "invalid utf"),  # half of a surrogate pair
        (ENUM, b"\x06", "3 symbols"),
        (ENUM, b"\x01", "3 symbols"),
        (["null", ENUM], b"\x02\x06", "3 symbols"),
        (["null", "long"], b"\x04\x02", "2 types"),
        (["null", "long"], b"\x01\x02", "2 types"),
        (["long", "null"], b"\x04", "2 types"),
        (FLOAT_ARRAY, b"\xfe\xff\xff\xff\x7f\x00", "ends before the field"),  # a count of some billions
        (FLOAT_ARRAY, b"\x02\x00\x00\x00\x00", "ends before the field"),  # the block that ends it is missing
        (FLOAT_ARRAY, b"\x01\x0a\x00\x00\x00\x00\x00", "not of the size that it states"),
        (LONG_ARRAY, b"\x04\x02", "ends before the field"),
        (LONG_ARRAY, b"\x04\x02" + b"\x80" * 10 + b"\x00\x00", "too large for its type"),
        (LONG_ARRAY, b"\x04" + b"\x80" * 10 + b"\x00\x02\x00", "too large for its type"),
        ({"type": "map", "values": "long"}, b"\xfe\xff\xff\xff\x7f\x00", "ends before the field"),
        ({"type": "map", "values": "long"}, b"\x02\x01", "negative length"),
        (["int", "string"], b"\x06\x00", "2 types"),
        (["int", "string"], b"\x00\x80\x80\x80\x80\x10\x02", "too large for its type"),
    ],
    ids=repr,
)
def test_malformed_bodies_are_undecodable(field_type: AvroType, body: bytes, said: str) -> None:
    # Where the field can't be a column it is passed over, which must find the same.
    schema = record(("x", field_type), ("end", record(name="Empty")))
    wanted = ["end"] if kind_of(field_type) == "map" or field_type == ["int", "string"] else ["x", "end"]
    found = decoder(schema, fields=wanted).decode([frame(WRITER_ID) + body])
    assert [(bad.row, bad.reason) for bad in found.bad] == [(0, "undecodable")]
    assert said in found.bad[0].error


@pytest.mark.parametrize("around", [None, "null", "array"])
def test_malformed_field_within_a_record_is_named_with_its_parents(around: str | None) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "age", "type": "long"}]}
    field_type = {None: inner, "null": ["null", inner], "array": {"type": "array", "items": inner}}[around]
    schema = record(("f", {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": field_type}]}))
    (bad,) = decoder(schema).decode([frame(WRITER_ID) + b"\x02" * (around is not None)]).bad
    assert bad.error == "field 'f.inner.age': the record ends before the field does"


@pytest.mark.parametrize(
    "items",
    [
        "boolean", "int", "long", "float", "double", "string", "bytes",
        {"type": "fixed", "name": "Four", "size": 4},
        ["null", "long"],
        {"type": "array", "items": "float"},
        record(("a", "double"), name="Item"),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.usefixtures("way")
def test_claim_of_many_items_is_refused_at_once_also_in_a_field_that_nobody_wants(items: AvroType) -> None:
    schema = record(("x", "long"), ("unwanted", {"type": "array", "items": items}))
    claim = b"\x80\x80\x80\x80\x40"  # 2^33 items, of which none is there
    body = b"\x02" + claim
    for rest in (b"", b"\x00" * 8):
        found = decoder(schema, fields=["x"]).decode([frame(WRITER_ID) + body + rest])
        assert [(bad.row, bad.reason) for bad in found.bad] == [(0, "undecodable")]


@pytest.mark.parametrize("items", [[], record(("nothing", []), name="Inner"), {"type": "array", "items": []}], ids=repr)
def test_array_whose_union_has_no_branches_is_read_when_it_is_empty(items: AvroType) -> None:
    schema = record(("x", "long"), ("nobody", {"type": "array", "items": items}))
    found = decoder(schema, fields=["x"]).decode([frame(WRITER_ID) + body for body in (b"\x0a\0", b"\x0a\x02\x02\0\0")])
    assert dicts_of(found.table) == [{"x": 5}]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "undecodable")]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("field_type", "value"),
    [
        ("string", "some text"),
        ("bytes", b"some bytes"),
        ("double", 0.5),
        ({"type": "fixed", "name": "Four", "size": 4}, b"four"),
        ({"type": "array", "items": "double"}, [0.5, 1.5]),
        (["null", "string"], "text"),
    ],
    ids=repr,
)
def test_record_cut_anywhere_is_undecodable_also_in_a_field_that_nobody_wants(field_type: AvroType, value: Any) -> None:
    schema = record(("x", "long"), ("unwanted", field_type))
    [whole] = written(Schema(WRITER_ID, "", schema), [{"x": 7, "unwanted": value}])
    reader = decoder(schema, fields=["x"])
    assert dicts_of(reader.decode([whole]).table) == [{"x": 7}]
    cuts = [whole[:end] for end in range(len(frame(WRITER_ID)), len(whole))]
    found = reader.decode([*cuts, whole])
    assert [(bad.row, bad.reason) for bad in found.bad] == [(row, "undecodable") for row in range(len(cuts))]
    assert dicts_of(found.table) == [{"x": 7}]


@pytest.mark.parametrize(
    ("body", "items"),
    [
        (b"\x02\x02\x02\x04\x00", [1, 2]),  # two blocks
        (b"\x03\x04\x02\x04\x00", [1, 2]),  # a block with its size
        (b"\x03\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
        (b"\x00", []),
        (b"\x02\x82\x80\x00\x00", [1]),  # longer than needed, which is allowed
        (b"\x02\x02" * 300 + b"\x00", [1] * 300),
    ],
)
@pytest.mark.usefixtures("way")
def test_all_forms_of_arrays_are_read(body: bytes, items: list[int]) -> None:
    found = decoder(record(("x", LONG_ARRAY), ("y", FLOAT_ARRAY))).decode(
        [frame(WRITER_ID) + body + b"\x00", frame(WRITER_ID) + b"\x00\x00", frame(WRITER_ID) + body + b"\x00"]
    )
    assert found.bad == []
    assert found.table["x"].to_list() == [items, [], items]


def corrupted(values: list[bytes], rng: random.Random) -> tuple[list[bytes], set[int]]:
    """Damage one value, or move bytes between two neighbours, as a broken producer would; return what was touched."""
    damaged = list(values)
    row = rng.randrange(len(values) - 1)
    body = bytearray(values[row])
    match rng.randrange(5):
        case 0:
            del body[5 + rng.randrange(len(body) - 5) :]
        case 1:
            place = 5 + rng.randrange(len(body) - 5)
            body[place] ^= 1 << rng.randrange(8)
        case 2:
            body += rng.randbytes(rng.randrange(1, 9))
        case 3:
            place = 5 + rng.randrange(len(body) - 5)
            body[place:] = rng.randbytes(rng.randrange(20))
        case _:
            moved = rng.randrange(1, len(body) - 4)
            damaged[row + 1] = values[row + 1][:5] + bytes(body[-moved:]) + values[row + 1][5:]
            damaged[row] = bytes(body[:-moved])
            return damaged, {row, row + 1}
    damaged[row] = bytes(body)
    return damaged, {row}


WIDE = record(
    ("id", "string"),
    ("flag", "boolean"),
    ("count", "int"),
    ("time", "long"),
    ("maybe", ["null", "string"]),
    ("side", ENUM),
    ("values", FLOAT_ARRAY),
    ("inner", record(("a", ["double", "null"]), ("b", LONG_ARRAY), name="Inner")),
    ("raw", "bytes"),
    ("last", "int"),
)


@pytest.mark.usefixtures("way")
def test_damage_stays_with_the_damaged_record(capfd: pytest.CaptureFixture[str]) -> None:
    schema = record(*WIDE["fields"], ("m", {"type": "map", "values": "string"}))
    rng = random.Random(5)
    events = [
        {
            "id": f"event-{row}",
            "flag": row % 2 == 0,
            "count": row * 1000,
            "time": 1_700_000_000_000 + row,
            "maybe": None if row % 3 else "text",
            "side": SYMBOLS[row % 3],
            "values": [float(row)] * row,
            "inner": {"a": None if row % 2 else 0.5, "b": list(range(row * 40, row * 45))},
            "raw": b"\xff" * row,
            "last": row,
            "m": {"k": "v" * row},
        }
        for row in range(8)
    ]
    names = [field["name"] for field in WIDE["fields"]]
    reader = decoder(schema, fields=names)
    values = written(Schema(WRITER_ID, "", schema), events)
    expected = dicts_of(reader.decode(values).table)
    for _ in range(120):
        damaged, touched = corrupted(values, rng)
        found = reader.decode(damaged)
        bad = {record.row for record in found.bad}
        assert sorted([*found.rows.tolist(), *bad]) == list(range(8))
        assert bad <= touched
        by_row = dict(zip(found.rows.tolist(), dicts_of(found.table), strict=True))
        assert all(plain(by_row[row]) == plain(expected[row]) for row in range(8) if row not in touched)
        for row in touched:  # alone as among neighbours
            alone = reader.decode([damaged[row]])
            assert len(alone.bad) == (row in bad)
            assert row in bad or plain(dicts_of(alone.table)) == [plain(by_row[row])]
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@given(st.data(), st.integers())
@settings(max_examples=50, deadline=None)
def test_what_is_accepted_in_c_fastavro_reads_the_same(draw: st.DataObject, seed: int) -> None:
    schema, events = draw.draw(schemas_with_data())
    assert has_program(schema)
    as_schema = Schema(WRITER_ID, "", schema)
    fields = wanted_columns(as_schema, [field["name"] for field in schema["fields"]]).fields
    sources = sources_of(as_schema, as_schema, fields)
    damaged, touched = corrupted(written(as_schema, [*events, events[0]]), random.Random(seed))
    found = decoder(schema).decode(damaged)
    assert {record.row for record in found.bad} <= touched
    one_by_one = record_reader(as_schema, as_schema, sources)
    if len(found.rows):
        again = one_by_one.read([damaged[row] for row in found.rows])
        assert again.bad == []
        assert plain(dicts_of(again.table)) == plain(dicts_of(found.table))


def test_poll_of_nothing_but_damage_is_all_bad() -> None:
    schema = record(("x", "string"))
    found = decoder(schema).decode([frame(WRITER_ID) + b"\x04\xff\xff"] * 100)
    assert [bad.row for bad in found.bad] == list(range(100))
    assert {bad.reason for bad in found.bad} == {"undecodable"}


@pytest.mark.usefixtures("one_by_one")
def test_error_of_a_record_read_by_itself_is_the_same_each_time() -> None:
    found = decoder(record(("x", "double")), fields=["x"]).decode([frame(WRITER_ID) + b"\x00"] * 2)
    assert [bad.error for bad in found.bad] == [
        "the Avro body is malformed: field 'x': the record ends before its fields do: within a double"
    ] * 2


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(
    ("body", "field"), [(b"\x02a\x02\xff\x02a", "q"), (b"\x02a\x02b\x63", "r"), (b"\x02a\x02b", "r")]
)
def test_error_of_a_record_read_by_itself_names_the_first_damaged_field(body: bytes, field: str) -> None:
    schema = record(("p", "string"), ("q", "string"), ("r", "string"))
    (bad,) = decoder(schema, fields=["q"]).decode([frame(WRITER_ID) + body]).bad
    assert bad.reason == "undecodable"
    assert bad.error.startswith(f"the Avro body is malformed: field '{field}': ")


@pytest.mark.usefixtures("one_by_one")
def test_damage_is_found_behind_a_field_whose_type_is_used_again() -> None:
    size = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
    schema = record(("first", size), ("second", "Size"), ("x", "double"))
    (bad,) = decoder(schema, fields=["x"]).decode([frame(WRITER_ID) + b"\x00\x02\x00"]).bad
    assert bad.error.startswith("the Avro body is malformed: field 'x': ")


@pytest.mark.usefixtures("way")
def test_error_stays_short_whatever_the_schema_calls_its_fields() -> None:
    name = "x" * 10_000
    found = decoder(record((name, "double"))).decode([frame(WRITER_ID) + b"\x00"])
    assert [(bad.reason, len(bad.error) <= 500) for bad in found.bad] == [("undecodable", True)]


@pytest.mark.usefixtures("one_by_one")
def test_number_that_does_not_fit_its_field_is_told_with_the_field() -> None:
    too_large = frame(WRITER_ID) + b"\x80\x80\x80\x80\x20"  # 2^32 as a zigzag varint
    (bad,) = decoder(record(("x", "int")), fields=["x"]).decode([too_large]).bad
    assert bad.reason == "undecodable"
    assert bad.error.startswith("field 'x': a value doesn't fit its type: ")


def test_damage_behind_a_field_that_the_reader_does_not_take_stays_with_its_record() -> None:
    writer = record(("b", "boolean"), ("m", {"type": "map", "values": "float"}), ("x", "long"))
    reader = record(("x", "long"), ("b", "double"))
    # A block of one entry that claims to have 100 bytes. Read, it has its own length; skipped, it ends behind the record.
    damaged = frame(WRITER_ID) + b"\x01" + b"\x01\xc8\x01\x02k\x00\x00\x00\x00\x00" + b"\x02"
    sound = written(Schema(WRITER_ID, "", writer), [{"b": True, "m": {"k": 1.0}, "x": 1}])
    found = decoder(writer, reader).decode([damaged, *sound])
    assert [(bad.row, bad.reason) for bad in found.bad] == [(0, "schema_incompatible"), (1, "schema_incompatible")]
    assert "boolean" in found.bad[0].error
