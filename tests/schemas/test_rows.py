import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.rows import RowError, decode_row, encode_json_row, encode_row, parse_cells

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "flights",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "distance", "type": "float"},
        {"name": "stops", "type": "int", "default": 0},
        {"name": "tail_number", "type": ["null", "string"], "default": None},
        {"name": "cancelled", "type": ["null", "boolean"], "default": None},
        {"name": "departed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "cabin",
            "type": {"type": "enum", "name": "Cabin", "symbols": ["ECONOMY", "FIRST"]},
            "default": "FIRST",
        },
        {"name": "delays", "type": {"type": "array", "items": "double"}, "default": []},
    ],
}
ROW: dict[str, Any] = {"id": "UA1", "distance": 719, "departed_at": 1_378_012_500_000}
AIRPORT = {"type": "record", "name": "Airport", "fields": [{"name": "code", "type": "string"}]}


def one_field(type_: Any, **field: Any) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "x", "type": type_, **field}]}


def written(type_: Any, value: Any) -> Any:
    """What a reader without our code sees of the value."""
    schema = one_field(type_)
    body = BytesIO(encode_row(schema, 7, {"x": value})[5:])
    datum: Any = fastavro.schemaless_reader(body, fastavro.parse_schema(schema), None)
    assert body.read() == b""
    return datum["x"]


def test_row_is_written_in_the_wire_format_with_defaults() -> None:
    value = encode_row(SCHEMA, 258, ROW)
    assert value[:5] == b"\x00\x00\x00\x01\x02"
    assert decode_row(value, SCHEMA) == {
        "id": "UA1",
        "distance": 719.0,
        "stops": 0,
        "tail_number": None,
        "cancelled": None,
        "departed_at": "2013-09-01T05:15:00Z",
        "cabin": "FIRST",
        "delays": [],
    }


def test_shown_row_can_be_written_again() -> None:
    value = encode_row(SCHEMA, 1, {**ROW, "cabin": "ECONOMY", "delays": [1, 2.5], "cancelled": False})
    assert encode_row(SCHEMA, 1, decode_row(value, SCHEMA)) == value


def test_json_row_is_checked_and_filled_alike() -> None:
    row = {**ROW, "departed_at": "2013-09-01T07:15:00+02:00"}
    assert json.loads(encode_json_row(SCHEMA, row)) == {
        **ROW,
        "stops": 0,
        "tail_number": None,
        "cancelled": None,
        "cabin": "FIRST",
        "delays": [],
    }


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("double", 3, 3.0),
        (["null", {"type": "array", "items": ["null", "int"]}], [1, None], [1, None]),
        ({"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
        (AIRPORT, {"code": "EWR"}, {"code": "EWR"}),
        (["null", AIRPORT, "string"], {"code": "EWR"}, {"code": "EWR"}),
        (["double", "long"], 2**60 + 1, 2**60 + 1),
        (["double", "long"], 1.0, 1.0),
        (["int", "string", "boolean"], True, True),
        ("bytes", "text", b"text"),
        ("bytes", {"base64": "/wA="}, b"\xff\x00"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "12.5", Decimal("12.50")),
        ({"type": "long", "logicalType": "timestamp-micros"}, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "2013-09-01T05:15", "2013-09-01T05:15:00"),
        ({"type": "int", "logicalType": "date"}, "2013-09-01", "2013-09-01"),
        ({"type": "int", "logicalType": "time-millis"}, "05:15:00.250", "05:15:00.250000"),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
    ],
)
def test_value_of_every_type_is_written(type_: Any, value: Any, expected: Any) -> None:
    found = written(type_, value)
    assert (found.isoformat() if hasattr(found, "isoformat") else found) == expected
    assert type(found) is type(expected) or isinstance(expected, str)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int", "5", "expected int: a whole number from -2147483648 to 2147483647, found '5' (str)"),
        ("int", 2**31, "found 2147483648 (int)"),
        ("int", 5.0, "found 5.0 (float)"),
        ("long", True, "found True (bool)"),
        ("long", -(2**63) - 1, "expected long"),
        ("float", 1e39, "expected float: a number that fits in 32 bits, found 1e+39"),
        ("double", 10**400, "expected double: a number that fits in 64 bits, found 1000"),
        ("double", "NaN", "expected double, found 'NaN' (str)"),
        ("boolean", 1, "expected boolean, found 1 (int)"),
        ("string", 1, "expected text, found 1 (int)"),
        ("string", "\ud800", "expected text of valid Unicode"),
        ("null", 0, "expected null, found 0 (int)"),
        ("bytes", 3, 'expected bytes: text, or {"base64": "..."}, found 3 (int)'),
        ("bytes", {"base64": "?"}, "expected bytes"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "expected exactly 2 bytes, found 'abc'"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "expected one of A, B, found 'C'"),
        ({"type": "array", "items": "int"}, "[1]", "expected an array, found '[1]' (str)"),
        ({"type": "array", "items": "int"}, [1, None], "field 'x[1]': expected int"),
        ({"type": "map", "values": "int"}, [], "expected a map (an object), found [] (list)"),
        ({"type": "map", "values": "int"}, {"a": ""}, "field 'x.a': expected int"),
        (AIRPORT, "EWR", "expected a record Airport (an object), found 'EWR'"),
        (AIRPORT, {}, "field 'x.code': expected string, found none"),
        (
            AIRPORT,
            {"code": "EWR", "cdoe": 1},
            "unknown field 'x.cdoe': the schema Airport has code. Did you mean 'code'?",
        ),
        (["null", "int"], "a", "expected int: a whole number"),
        (["int", "boolean"], None, "expected int or boolean, found None"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "2013-09-01", "or ISO 8601 text with its zone, such as"),
        ({"type": "int", "logicalType": "date"}, "soon", "or ISO 8601 text (date), found 'soon'"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "1.234",
            "expected a decimal of at most 4 digits, 2 of them after the point, found '1.234'",
        ),
        ("int", "y" * 500, "yyy... (str)"),
    ],
)
def test_value_of_another_type_is_refused_by_name(type_: Any, value: Any, expected: str) -> None:
    with pytest.raises(RowError) as refusal:
        encode_row(one_field(type_), 1, {"x": value})
    assert expected in str(refusal.value)
    assert "x" in str(refusal.value).split(":")[0]


def test_missing_field_without_default_is_refused() -> None:
    with pytest.raises(RowError, match=r"field 'departed_at': expected long \(timestamp-millis\), found none"):
        encode_row(SCHEMA, 1, {"id": "UA1", "distance": 1})


def test_unknown_column_is_refused_with_the_likely_name() -> None:
    with pytest.raises(RowError, match=r"unknown field 'distnce': .*Did you mean 'distance'\?"):
        encode_json_row(SCHEMA, {**ROW, "distnce": 1})


@pytest.mark.parametrize("field", [{"default": "ÿ"}, {"type_": ["bytes", "null"], "default": "ÿ"}])
def test_default_of_bytes_is_one_byte_per_character(field: dict[str, Any]) -> None:
    schema = one_field(field.pop("type_", "bytes"), **field)
    assert decode_row(encode_row(schema, 1, {}), schema) == {"x": {"base64": "/w=="}}


def test_cells_become_values_of_the_schemas_types() -> None:
    cells = {
        "id": "12",
        "distance": "719.5",
        "stops": "2",
        "tail_number": "N14228",
        "cancelled": "False",
        "departed_at": "1378012500000",
        "cabin": "ECONOMY",
        "delays": "[1, 2]",
    }
    assert parse_cells(SCHEMA, cells) == {
        "id": "12",
        "distance": 719.5,
        "stops": 2,
        "tail_number": "N14228",
        "cancelled": False,
        "departed_at": 1378012500000,
        "cabin": "ECONOMY",
        "delays": [1, 2],
    }


def test_empty_cell_is_null_or_the_default_or_empty_text() -> None:
    cells = {"id": "", "stops": "", "tail_number": "", "cancelled": None, "delays": "", "distance": "1"}
    row = parse_cells(SCHEMA, cells)
    assert row == {"id": "", "tail_number": None, "cancelled": None, "distance": 1.0}
    assert decode_row(encode_row(SCHEMA, 1, {**row, "departed_at": 0}), SCHEMA)["stops"] == 0


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"distance": "far"}, "field 'distance': expected float, found 'far'"),
        ({"distance": ""}, "field 'distance': expected float, found ''"),
        ({"delays": "1, 2"}, "field 'delays': expected an array, found '1, 2'"),
        ({"cancelled": "maybe"}, "field 'cancelled': expected boolean, found 'maybe'"),
        ({"dest": "IAH"}, "unknown field 'dest'"),
        ({"stops": "9" * 5000}, "field 'stops': expected int"),
    ],
)
def test_cell_that_does_not_parse_is_refused_by_the_encoder(cells: dict[str, str], expected: str) -> None:
    good = {"id": "UA1", "distance": "1", "departed_at": "2013-09-01T05:15:00Z"}
    with pytest.raises(RowError) as refusal:
        encode_row(SCHEMA, 1, parse_cells(SCHEMA, good | cells))
    assert expected in str(refusal.value)


def test_cell_of_a_union_takes_the_branch_it_parses_as() -> None:
    schema = one_field(["null", "string", "long", "boolean"])
    values = [parse_cells(schema, {"x": cell})["x"] for cell in ("", "7", "true", "seven")]
    assert values == [None, 7, True, "seven"]


def test_json_row_refuses_numbers_that_json_lacks() -> None:
    with pytest.raises(RowError, match=r"field 'x\[1\]': expected a finite number, found nan"):
        encode_json_row(one_field({"type": "array", "items": "double"}), {"x": [1, float("nan")]})


def test_bytes_are_shown_as_text_where_readable() -> None:
    schema = one_field({"type": "array", "items": "bytes"})
    value = encode_row(schema, 1, {"x": ["née", "tab\t", {"base64": "/w=="}]})
    assert decode_row(value, schema) == {"x": ["née", {"base64": "dGFiCQ=="}, {"base64": "/w=="}]}


def test_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert decode_row(encode_row(SCHEMA, 1, {**ROW, "departed_at": 2**62}), SCHEMA)["departed_at"] == 2**62


def test_shown_row_is_always_json() -> None:
    value = encode_row(SCHEMA, 1, {**ROW, "distance": float("inf"), "delays": [float("nan"), float("-inf")]})
    row = decode_row(value, SCHEMA)
    assert (row["distance"], row["delays"]) == ("Infinity", ["NaN", "-Infinity"])
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize("value", [b"", b"{}", encode_row(SCHEMA, 1, ROW)[:-1], encode_row(SCHEMA, 1, ROW) + b"x"])
def test_record_of_another_shape_is_refused(value: bytes) -> None:
    with pytest.raises(RowError, match=r"the value is no record of schema Flight in the wire format: ") as caught:
        decode_row(value, SCHEMA)
    assert " at 0x" not in str(caught.value), "addresses of objects mean nothing to a reader"
    assert "Expected " not in str(caught.value), "fastavro's message is no clause of ours"


@given(
    st.dictionaries(
        st.sampled_from([*ROW, "stops", "delays", "unknown"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3),
        ),
    )
)
def test_any_json_row_is_written_or_refused(row: dict[str, Any]) -> None:
    try:
        value = encode_row(SCHEMA, 1, row)
    except RowError:
        return
    assert decode_row(value, SCHEMA)["id"] == row["id"]
