"""Columns of paths hold what a walk along the path finds in each event: in Avro, in JSON, in C and one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.avro import decoder as avro_module
from millstream.schemas.avro import wanted
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.decoded import Decoded, Decoder
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json import decoder as json_module
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.packed import Packed
from millstream.schemas.paths import MAX_STEPS, parse_path
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import frame
from tests.native import with_native
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, Store, plain, record, written
from tests.schemas.path_cases import data, path_into, schemas, value_at
from tests.schemas.tables import dicts_of, dtypes_of

IN_JSON = ("long", "string", "double", "boolean", "int", "enum")


@pytest.fixture(scope="module", autouse=True, params=["in C", "one by one"])
def reading(request: pytest.FixtureRequest) -> Iterator[None]:
    with with_native(on=request.param == "in C"):
        yield


def avro_decoder(writer: AvroType, *paths: str, reader: AvroType = None) -> AvroDecoder:
    schema = Schema(READER_ID, "reader", reader or writer)
    return AvroDecoder(Store(Schema(WRITER_ID, "writer", writer), schema), schema, paths)


def json_decoder(schema: AvroType, *paths: str) -> JsonDecoder:
    return JsonDecoder.of_schema(Schema(3, "event", schema), paths)


def in_avro(schema: AvroType, *events: Mapping[str, Any]) -> list[bytes]:
    return written(Schema(WRITER_ID, "", schema), events)


def in_json(*events: Any) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def found(decoded: Decoded) -> list[dict[str, Any]]:
    assert decoded.bad == []
    return [plain(row) for row in dicts_of(decoded.table)]


def expected(events: list[dict[str, Any]], paths: list[str]) -> list[dict[str, Any]]:
    return [{path: plain(value_at(event, parse_path(path).steps)) for path in paths} for event in events]


@given(schemas(), st.data(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_avro_columns_hold_what_a_walk_finds(schema: dict[str, Any], draw: st.DataObject, rng: Random) -> None:
    events = draw.draw(st.lists(data(schema), min_size=1, max_size=4))
    paths = list(dict.fromkeys(path_into(schema, rng) for _ in range(3)))
    try:
        decoder = avro_decoder(schema, *paths)
    except BadFieldError:  # a map within what a path names
        return
    decoded = decoder.decode(in_avro(schema, *events))
    assert found(decoded) == expected(events, paths)
    assert dtypes_of(decoded.table) == decoder.columns


@given(schemas(IN_JSON), st.data(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_json_columns_are_those_of_avro(schema: dict[str, Any], draw: st.DataObject, rng: Random) -> None:
    events = draw.draw(st.lists(data(schema), min_size=1, max_size=4))
    paths = list(dict.fromkeys(path_into(schema, rng) for _ in range(3)))
    try:
        decoder = json_decoder(schema, *paths)
    except BadFieldError:
        return
    decoded = decoder.decode(in_json(*events))
    assert found(decoded) == expected(events, paths)
    assert dtypes_of(decoded.table) == decoder.columns


ITEM = record(("price", "double"), ("tags", {"type": "array", "items": "string"}), name="Item")
EVENT = record(
    (
        "customer",
        ["null", record(("name", "string"), ("age", ["null", "int"]), ("unused", "string"), name="Customer")],
    ),
    ("items", {"type": "array", "items": ITEM}),
    ("attributes", {"type": "map", "values": "double"}),
    ("id", "string"),
)  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {
        "customer": {"name": "Ann", "age": 5, "unused": ""},
        "items": [{"price": 1.5, "tags": ["x", "y"]}, {"price": 2.5, "tags": []}],
        "attributes": {"color": 7.0, "my.key": 8.0},
        "id": "1",
    },
    {"customer": None, "items": [], "attributes": {}, "id": "2"},
    {
        "customer": {"name": "", "age": None, "unused": ""},
        "items": [{"price": 3.5, "tags": ["z"]}],
        "attributes": {"other": 1.0, "color": 9.0},
        "id": "3",
    },
]
COLUMNS: dict[str, list[Any]] = {
    "id": ["1", "2", "3"],
    "customer.age": [5, None, None],
    "customer.name": ["Ann", None, ""],
    "items[0].price": [1.5, None, 3.5],
    "items[-1].price": [2.5, None, 3.5],
    "items[1].tags[0]": [None, None, None],
    "items[].price": [[1.5, 2.5], [], [3.5]],
    "items[].tags": [[["x", "y"], []], [], [["z"]]],
    "items[].tags[0]": [["x", None], [], ["z"]],
    "attributes.color": [7.0, None, 9.0],
    'attributes["my.key"]': [8.0, None, None],
}


def test_paths_are_columns() -> None:
    for decoded in (
        avro_decoder(EVENT, *COLUMNS).decode(in_avro(EVENT, *EVENTS)),
        json_decoder(EVENT, *COLUMNS).decode(in_json(*EVENTS)),
    ):
        assert {name: column.to_list() for name, column in decoded.table.columns.items()} == COLUMNS


def test_a_field_may_be_wanted_whole_and_by_parts() -> None:
    paths = ["customer.age", "customer"]
    decoded = avro_decoder(EVENT, *paths).decode(in_avro(EVENT, *EVENTS))
    assert found(decoded) == expected(EVENTS, paths)


def test_only_wanted_text_is_checked_for_utf8() -> None:
    [value] = in_avro(EVENT, EVENTS[0] | {"customer": {"name": "Ann", "age": 5, "unused": "zz"}})
    damaged = value.replace(b"zz", b"\xff\xff")
    assert avro_decoder(EVENT, "customer.age").decode([damaged]).bad == []
    [bad] = avro_decoder(EVENT, "customer.unused").decode([damaged]).bad
    assert bad.reason == "undecodable"


def test_fields_in_another_order_and_fields_with_defaults_are_read() -> None:
    inner = record(("b", "int"), {"name": "new", "type": "int", "default": 9}, ("a", "string"), name="Inner")
    writer = record(("x", record(("a", "string"), ("b", "int"), name="Inner")))
    for paths, row in ((["x.b", "x.a"], [1, "t"]), (["x.new", "x.a"], [9, "t"])):
        decoded = avro_decoder(writer, *paths, reader=record(("x", inner))).decode(
            in_avro(writer, {"x": {"a": "t", "b": 1}})
        )
        assert found(decoded) == [dict(zip(paths, row, strict=True))]


def test_one_type_may_be_wanted_by_different_parts() -> None:
    address = record(("city", "string"), ("zip", "string"), name="Address")
    schema = record(
        ("billing", ["null", address]), ("shipping", "Address"), ("other", {"type": "map", "values": "Address"})
    )
    event = {
        "billing": {"city": "A", "zip": "1"},
        "shipping": {"city": "B", "zip": "2"},
        "other": {"k": {"city": "C", "zip": "3"}},
    }
    paths = ["billing.city", "shipping.zip", "other.k.city"]
    assert found(avro_decoder(schema, *paths).decode(in_avro(schema, event))) == expected([event], paths)


def test_path_into_a_union_of_several_types_is_refused_with_them() -> None:
    card, cash = record(("amount", "int"), name="Card"), record(("amount", "int"), name="Cash")
    with pytest.raises(
        BadFieldError, match="a record or a map at `pay`, found a union of record, record: no path leads into"
    ):
        avro_decoder(record(("pay", ["null", card, cash])), "pay.amount")


def test_a_wanted_key_that_occurs_twice_is_malformed() -> None:
    schema = record(("m", {"type": "map", "values": "int"}))

    def value(*keys: bytes) -> bytes:
        return frame(WRITER_ID) + bytes([2 * len(keys)]) + b"".join(b"\x02" + key + b"\x04" for key in keys) + b"\x00"

    decoded = avro_decoder(schema, "m.a", "m.b").decode([value(b"a", b"b"), value(b"a", b"a"), value(b"c", b"c", b"b")])
    assert dicts_of(decoded.table) == [{"m.a": 2, "m.b": 2}, {"m.a": None, "m.b": 2}]
    [bad] = decoded.bad
    assert (bad.row, bad.reason, bad.error) == (1, "undecodable", "field 'm[\"a\"]': the map has this key twice")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "customer.agee",
            r"has no field 'customer.agee' \(did you mean 'customer.age'\?\); `customer` has name, age, unused",
        ),
        (
            "customr.age",
            r"has no field 'customr.age' \(did you mean 'customer'\?\); it has customer, items, attributes, id",
        ),
        ("id.x", "field 'id.x' of .*: expected a record or a map at `id`, found string"),
        ("customer[0]", "expected an array at `customer`, found record"),
        ("attributes", r"no column can hold the Avro type map.*name a key of the map, such as `attributes.key`"),
        ("items[", "path `items.`, character 7: expected"),
    ],
)
def test_mistakes_in_paths_are_reported(path: str, message: str) -> None:
    for make in (avro_decoder, json_decoder):
        with pytest.raises(BadFieldError, match=message):
            make(EVENT, path)


# JSON without a schema

TYPES = {
    "id": "scalar",
    "customer.age": "int64",
    "items[].price": "float64",
    "items[-1].price": "float64",
    "flags[0]": "boolean",
    'attributes["my.key"]': "string",
}


def test_json_without_a_schema() -> None:
    events = [
        {
            "id": 18446744073709551615,
            "customer": {"age": 5, "x": []},
            "items": [{"price": 1}, {}, None, {"price": 2.5}],
            "y": {},
        },
        {"id": -0, "flags": [True], "attributes": {"my.key": "v"}, "items": None, "customer": {"age": None}},
        {"id": "a", "customer": None, "items": [], "flags": [], "attributes": {"my.key": None}},
        {"id": -(2**63)},
        {},
    ]
    decoded = JsonDecoder.of_types(TYPES).decode(in_json(*events))
    assert decoded.bad == []
    assert {name: column.to_list() for name, column in decoded.table.columns.items()} == {
        "id": ["18446744073709551615", "0", "a", "-9223372036854775808", None],
        "customer.age": [5, None, None, None, None],
        "items[].price": [[1.0, None, None, 2.5], None, [], None, None],
        "items[-1].price": [2.5, None, None, None, None],
        "flags[0]": [None, True, None, None, None],
        'attributes["my.key"]': [None, "v", None, None, None],
    }
    assert dtypes_of(decoded.table) == JsonDecoder.of_types(TYPES).columns


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ('{"customer": {"age": "5"}}', "customer.age: expected an integer from -2^63 to 2^63 - 1, found text '5'"),
        ('{"customer": 5}', "customer: expected an object, found the number 5"),
        ('{"customer": []}', "customer: expected an object, found an array"),
        ('{"items": {}}', "items: expected an array, found an object"),
        ('{"items": [{"price": 1}, {"price": "1"}]}', "items[1].price: expected a number that fits into a double, "
         "found text '1'"),
        ('{"items": [{"price": 1e999}]}', "items[0].price: expected a number that fits into a double, found a number that is "
         "too large for a double"),
        ('{"customer": {"age": 9223372036854775808}}',
         "customer.age: expected an integer from -2^63 to 2^63 - 1, found the number 9223372036854775808"),
        ('{"customer": {"age": 1.5}}', "customer.age: expected an integer from -2^63 to 2^63 - 1, found the number 1.5"),
        ('{"flags": [1]}', "flags[0]: expected true or false, found the number 1"),
        ('{"id": true}', "id: expected text or an integer, found true"),
        ('{"id": 1.0}', "id: expected text or an integer, found the number 1.0"),
        ('{"attributes": {"my.key": {}}}', 'attributes["my.key"]: expected text, found an object'),
        ("[]", "expected a JSON object, found an array"),
        ('{"other": NaN}', "malformed JSON: NaN is no JSON value: send null"),
    ],
)  # fmt: skip
def test_values_of_other_types_are_refused_with_their_path(value: str, error: str) -> None:
    decoded = JsonDecoder.of_types(TYPES).decode([b"{}", value.encode()])
    assert [(bad.row, bad.reason, bad.error) for bad in decoded.bad] == [(1, "undecodable", error)]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"a": "string", "a.b": "int64"}, "paths `a` and `a.b`: .* found a single value and an object. Correct one"),
        ({"a.b": "string", "a[0]": "int64"}, "found an object and a list"),
        ({"a[0]": "string", "a[]": "int64"}, r"found `type: text` and `type: int`. Write .* beside `a\[0\]` and `a\[\]`."),
        ({"a[0]": "mixed", "a[1]": "string"}, r"found `type: any` and `type: text`. Write `type: any` beside `a\[1\]`."),
        ({"a[0]": "scalar", "a[]": "boolean"}, r"a whole number and `type: boolean`. Write `type: any` beside `a\[0\]` and"),
        ({"a.b": "string", 'a["b"]': "int64"}, "value at the same place, found `type: text` and `type: int`. Correct one"),
        ({"a..b": "string"}, "character 3: expected a name"),
    ],
)  # fmt: skip
def test_paths_that_contradict_each_other_are_refused(types: dict[str, str], message: str) -> None:
    with pytest.raises(BadFieldError, match=message):
        JsonDecoder.of_types(types)


def test_the_head_of_a_schema_registry_is_skipped() -> None:
    head = frame(77)
    values = [head + b'{"id": 1}', b'{"id": 2}', head, b"\0", head + b"{}"]
    decoded = JsonDecoder.of_types({"id": "int64"}).decode(Packed.of(values))
    assert decoded.table["id"].to_list() == [1, 2, None]
    assert [bad.row for bad in decoded.bad] == [2, 3]


def test_large_and_deep_events_are_read() -> None:
    text = "x" * 10_000_000
    deep = "[" * 900 + "]" * 900
    values = [
        json.dumps({"id": text}).encode(),
        f'{{"other": {deep}, "id": "y"}}'.encode(),
        b'{"id": ' + b"[" * 100_000,
    ]
    decoded = JsonDecoder.of_types({"id": "scalar"}).decode(values)
    assert decoded.table["id"].to_list() == [text, "y"]
    [bad] = decoded.bad
    assert bad.row == 2
    assert bad.error.startswith("nested too deeply: expected at most about 900")


ITEMS = record(
    {"name": "items", "type": {"type": "array", "items": record({"name": "a", "type": ["null", "long"]}, name="Item")}},
    name="Basket",
)


@pytest.mark.parametrize("path", ["items[0].a", "items[-1].a", "items[].a"])
def test_values_are_the_same_if_few_are_decoded_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"items": [{"a": number} for number in range(row % 4)]} for row in range(50)]
    values = in_avro(ITEMS, *events), in_json(*events)
    decoders: list[Decoder] = [avro_decoder(ITEMS, path), JsonDecoder.of_types({path: "int64"})]
    together = [found(decoder.decode(of)) for decoder, of in zip(decoders, values, strict=True)]
    monkeypatch.setattr(wanted, "PIECE_CELLS", 60)
    assert [found(decoder.decode(of)) for decoder, of in zip(decoders, values, strict=True)] == together


def test_event_of_very_many_objects_is_refused_and_its_neighbours_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_module, "MAX_CELLS", 100)
    good, bad = in_json({"items": [{"a": 1}]}), in_json({"items": [{}] * 101})
    decoded = JsonDecoder.of_types({"items[0].a": "int64"}).decode([*good, *bad, *good])
    assert [(one.row, one.reason) for one in decoded.bad] == [(1, "undecodable")]
    assert (
        "expected at most 100 objects in an event, because 1 paths lead into items of arrays, found 102"
        in decoded.bad[0].error
    )
    assert decoded.rows.tolist() == [0, 2]
    assert decoded.table["items[0].a"].to_list() == [1, 1]


def test_avro_record_that_could_have_very_many_items_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_module, "MAX_CELLS", 100)
    good, bad = in_avro(ITEMS, {"items": [{"a": 1}]}), in_avro(ITEMS, {"items": [{"a": None}] * 200})
    decoded = avro_decoder(ITEMS, "items[0].a").decode([*bad, *good])
    assert [(one.row, one.reason) for one in decoded.bad] == [(0, "undecodable")]
    assert "expected at most 100 bytes" in decoded.bad[0].error
    assert decoded.table["items[0].a"].to_list() == [1]


@pytest.mark.parametrize("path", ["a." * 99 + "a", "a[]." * 49 + "a[]", "a[0]." * 49 + "a[0]"])
def test_the_deepest_path_is_read_without_a_schema(path: str) -> None:
    steps = parse_path(path).steps
    assert len(steps) == MAX_STEPS
    event: Any = 1.5
    for step in reversed(steps):
        event = {step: event} if isinstance(step, str) else [event]
    decoded = JsonDecoder.of_types({path: "float64"}).decode(in_json(event))
    [value] = decoded.table.columns[path].to_list()
    while isinstance(value, list):
        [value] = value
    assert value == 1.5
