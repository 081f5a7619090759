import random
import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro.block import BlockReader
from millstream.schemas.avro.plan import block_reader, resolve
from millstream.schemas.avro.types import wanted_fields
from millstream.schemas.errors import FaultyRecords, Unreadable
from millstream.schemas.packed import Packed
from millstream.schemas.store import AvroType, Schema
from tests.schemas.avro.avro_cases import SYMBOLS, WRITER_ID, data, decoder, plain, record, written
from tests.schemas.avro.test_avro_damage import corrupted

FLOATS = {"type": "array", "items": "float"}
INNER = record(("a", "float"), ("b", ["null", "long"]), name="Inner")


def blocks_of(schema: AvroType, fields: list[str] | None = None) -> BlockReader:
    as_schema = Schema(WRITER_ID, "", schema)
    names = fields or [field["name"] for field in schema["fields"]]
    reader = block_reader(as_schema, resolve(as_schema, as_schema, wanted_fields(as_schema, names)))
    assert reader is not None
    return reader


def both_ways(reader: BlockReader, values: list[bytes]) -> tuple[Any, Any]:
    """What the layouts read, None where they don't, and what the block reader reads, None where it finds a fault."""
    alike = reader.read_alike(values)
    try:
        block = reader.read(values)
    except (FaultyRecords, Unreadable):
        block = None
    return columns(alike), columns(block)


def columns(frame: pl.DataFrame | None) -> Any:
    return None if frame is None else {one.name: (one.dtype, plain(one.to_list())) for one in frame}


# Values of one layout, whatever they are: texts of one length, integers of one length, no nulls.
LONGS = st.integers(-(2**63), -(2**62) - 1) | st.integers(2**62, 2**63 - 1)
UUIDS = ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
FIXED = {
    "id": ("string", st.text("abcÄ", min_size=1, max_size=1).map(lambda one: one * 4 if one == "Ä" else one * 8)),
    "flag": ("boolean", st.booleans()),
    "small": ("int", st.integers(-64, 63)),
    "large": ("int", st.integers(2**30, 2**31 - 1)),
    "time": ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(2**41, 2**42)),
    "day": ({"type": "int", "logicalType": "date"}, st.integers(8192, 1_048_575)),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.sampled_from(UUIDS)),
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 9}, st.binary(min_size=4, max_size=4)),
    "far": (["null", "long"], LONGS),
    "half": ("float", st.floats(width=32)),
    "whole": (["double", "null"], st.floats()),
    "raw": ({"type": "fixed", "name": "Raw", "size": 3}, st.binary(min_size=3, max_size=3)),
    "x": (FLOATS, st.lists(st.floats(width=32), min_size=5, max_size=5)),
    "y": ({"type": "array", "items": "double"}, st.lists(st.floats(), min_size=2, max_size=2)),
    "inner": (INNER, st.fixed_dictionaries({"a": st.floats(width=32), "b": st.integers(0, 63)})),
}
ALL = record(*[(name, of) for name, (of, _) in FIXED.items()])
READ = [name for name in FIXED if name not in {"raw", "inner", "price"}]
EVENTS = st.lists(st.fixed_dictionaries({name: one for name, (_, one) in FIXED.items()}), min_size=1, max_size=6)


@given(EVENTS)
@settings(max_examples=60, deadline=None)
def test_records_laid_out_alike_are_read_as_by_the_block_reader(events: list[dict[str, Any]]) -> None:
    alike, block = both_ways(blocks_of(ALL, READ), written(Schema(WRITER_ID, "", ALL), events))
    assert alike is not None
    assert alike == block


@given(EVENTS, st.integers())
@settings(max_examples=200, deadline=None)
def test_layouts_accept_no_damage_that_the_block_reader_finds(events: list[dict[str, Any]], seed: int) -> None:
    reader = blocks_of(ALL, READ)
    values = written(Schema(WRITER_ID, "", ALL), [*events, events[0]])
    assert reader.layouts is not None
    assert reader.layouts.read(values) is not None  # the layout is known from here on
    damaged, _ = corrupted(values, random.Random(seed))
    alike, block = both_ways(reader, damaged)
    assert alike is None or alike == block


@given(EVENTS, st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=300)), max_size=12), st.integers())
@settings(max_examples=100, deadline=None)
def test_records_that_are_laid_out_as_most_are_read_as_each_by_itself(
    events: list[dict[str, Any]], strangers: list[tuple[int, bytes]], seed: int
) -> None:
    """Whatever stands among them: damaged records of the same length, and others."""
    reader = blocks_of(ALL, READ)
    values = written(Schema(WRITER_ID, "", ALL), events * 3)
    values += corrupted(values, random.Random(seed))[0][:1]
    for place, stranger in strangers:
        values.insert(place % len(values), values[0][:5] + stranger)
    found = reader.read_most(Packed.of(values))
    if 2 * len(strangers) < len(events):
        assert found is not None
    if found is None:
        return
    frame, rows = found
    assert 2 * len(rows) >= len(values)
    for row, place in enumerate(rows.tolist()):
        assert columns(frame[row]) == columns(reader.read([values[place]]))


@pytest.mark.parametrize("at", range(7))
def test_one_odd_record_leaves_the_others_to_the_layout(at: int) -> None:
    schema = record(("id", "string"), ("n", "long"))
    reader = blocks_of(schema)
    values = written(Schema(WRITER_ID, "", schema), [{"id": "ab", "n": n} for n in range(6)])
    values.insert(at, values[0][:-1] + b"\x80")  # of their length, and cut within an integer
    found = reader.read_most(Packed.of(values))
    assert found is not None
    frame, rows = found
    assert rows.tolist() == [row for row in range(7) if row != at]
    assert frame["n"].to_list() == list(range(6))


def test_text_that_is_not_utf8_is_told_by_its_record() -> None:
    schema = record(("id", "string"), ("n", "long"))
    values = written(Schema(WRITER_ID, "", schema), [{"id": "a" * n, "n": n} for n in (1, 2, 3, 4)])
    values[2] = values[2].replace(b"aaa", b"a\xffa")
    with pytest.raises(FaultyRecords) as raised:
        blocks_of(schema).read(values)
    assert raised.value.faults == {2: "field 'id': invalid utf-8 in its text"}


@given(EVENTS, st.data())
@settings(max_examples=200, deadline=None)
def test_any_byte_may_be_another(events: list[dict[str, Any]], draw: st.DataObject) -> None:
    reader = blocks_of(ALL, READ)
    values = written(Schema(WRITER_ID, "", ALL), events)
    row, byte = draw.draw(st.integers(0, len(values) - 1)), draw.draw(st.integers(0, 255))
    at = draw.draw(st.integers(5, len(values[row]) - 1))
    values[row] = values[row][:at] + bytes([byte]) + values[row][at + 1 :]
    alike, block = both_ways(reader, values)
    assert alike is None or alike == block


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_lone_record_of_any_schema_is_read_the_same(draw: st.DataObject) -> None:
    kinds: list[AvroType] = [
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "string",
        FLOATS,
        ["null", "long"],
        ["string", "null"],
    ]
    kinds += [{"type": "long", "logicalType": "timestamp-micros"}, ["null", {"type": "int", "logicalType": "date"}]]
    unread = [{"type": "enum", "name": "E", "symbols": SYMBOLS}, "bytes", INNER]
    chosen = draw.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    schema = record(*[(f"f{at}", of) for at, of in enumerate(chosen)], ("u", draw.draw(st.sampled_from(unread))))
    reader = blocks_of(schema, [f"f{at}" for at in range(len(chosen))])
    alike, block = both_ways(reader, written(Schema(WRITER_ID, "", schema), [draw.draw(data(schema))]))
    assert alike is None or alike == block


@pytest.mark.parametrize(
    ("events", "read"),
    [
        ([{"id": "a", "n": 1}, {"id": "b", "n": 2}], True),
        ([{"id": "a", "n": 1}, {"id": "bb", "n": 2}], False),  # of another length
        ([{"id": "a", "n": 64}, {"id": "bb", "n": 2}], False),  # of the same, and its fields elsewhere
        ([{"id": "", "n": 1}], False),
        ([{"id": "\ud800", "n": 1}], False),  # half of a surrogate pair
    ],
)
def test_only_records_laid_out_alike_are_read(events: list[dict[str, Any]], read: bool) -> None:
    reader = blocks_of(record(("id", "string"), ("n", "long")))
    values = [
        b"\0" + struct.pack(">I", WRITER_ID) + body
        for body in (
            bytes([len(text) << 1]) + text + (bytes([event["n"] << 1]) if event["n"] < 64 else b"\x80\x01")
            for event in events
            for text in [event["id"].encode("utf-8", "surrogatepass")]
        )
    ]
    assert reader.layouts is not None
    assert (reader.layouts.read(values) is not None) == read


@pytest.mark.parametrize("known", [False, True], ids=["first seen", "known"])
@given(EVENTS, st.binary(min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_trailing_bytes_are_left_over_whether_the_layout_is_known_or_not(
    known: bool, events: list[dict[str, Any]], rest: bytes
) -> None:
    values = written(Schema(WRITER_ID, "", ALL), events)
    reader = blocks_of(ALL, READ)
    if known:
        assert both_ways(reader, values)[0] is not None
    assert both_ways(reader, [value + rest for value in values]) == (None, None)
    found = decoder(ALL, fields=READ).decode([values[0], *(value + rest for value in values)])
    assert found.rows.tolist() == [0]
    assert [bad.row for bad in found.bad] == list(range(1, len(values) + 1))
    assert all(f"{len(rest)} bytes are left over" in bad.error for bad in found.bad)


def test_bytes_behind_a_shorter_record_are_not_those_of_a_longer_ones_last_field() -> None:
    """The record ends one byte earlier than those before it, and has one too many behind."""
    schema = record(("n", "long"), ("id", "string"))
    reader = blocks_of(schema)
    assert reader.layouts is not None
    longer, shorter = (written(Schema(WRITER_ID, "", schema), [{"n": 1, "id": text}] * 2) for text in ("abc", "ab"))
    assert reader.layouts.read(longer) is not None
    assert reader.layouts.read([value + b"c" for value in shorter]) is None
    assert reader.layouts.read([longer[0], shorter[0] + b"c"]) is None
    found = decoder(schema).decode([*longer, *(value + b"c" for value in shorter)])
    assert found.rows.tolist() == [0, 1]
    assert [bad.row for bad in found.bad] == [2, 3]


@pytest.mark.parametrize(
    ("of", "fields"),
    [
        ({"type": "array", "items": "long"}, ["id"]),  # integers end anywhere
        ("bytes", ["f"]),  # not read so
        (INNER, ["f"]),
    ],
    ids=repr,
)
def test_other_schemas_have_no_layouts(of: AvroType, fields: list[str]) -> None:
    assert blocks_of(record(("id", "string"), ("f", of)), fields).layouts is None


def test_a_layout_that_changes_is_learnt_anew() -> None:
    schema = record(("n", "long"), ("m", "long"))
    reader = blocks_of(schema)
    assert reader.layouts is not None
    for n, m in [(1, 64), (64, 1), (1, 64)]:  # four bytes in all
        values = written(Schema(WRITER_ID, "", schema), [{"n": n, "m": m}] * 3)
        found = reader.layouts.read(values)
        assert found is not None
        assert [one.to_list() for one in found] == [[n] * 3, [m] * 3]
