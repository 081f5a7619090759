import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.errors import BadFieldError
from millstream.schemas.json import columns as json_columns
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.json.each import TOGETHER
from millstream.schemas.store import AvroType, Schema
from tests.native import with_native
from tests.schemas.avro.avro_cases import WRITER_ID, decoder, json_cases, plain, record, written
from tests.schemas.tables import dicts_of, dtypes_of

EVENT = record(
    ("class", "int"),  # a Python keyword
    ("f0", "long"),
    {"name": "ratio", "type": ["null", "float"], "default": None},
    {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["A", "B"]}, "default": "B"},
    {"name": "values", "type": {"type": "array", "items": ["null", "double"]}, "default": [1, None]},
    {
        "name": "inner",
        "type": record({"name": "x", "type": "int", "default": 7}, ("y", "string"), name="Inner"),
        "default": {"y": "k"},
    },
)
REQUIRED = '"class": 1, "f0": 2'


@pytest.fixture(scope="module", autouse=True, params=["many at a time", "one by one"])
def reading(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways that events are read, the second by turning native parts off."""
    if request.param == "many at a time":
        if not json_columns.LIBRARY.exists():
            pytest.skip("schemas/json/json_columns.c is not compiled: no C compiler")
        yield
        return
    with with_native(on=False):
        yield


def json_decoder(definition: AvroType = EVENT, *fields: str) -> JsonDecoder:
    return JsonDecoder.of_schema(
        Schema(3, "event", definition), fields or [field["name"] for field in definition["fields"]]
    )


def test_fields_have_their_values_or_the_schemas_defaults() -> None:
    found = json_decoder().decode(
        [
            b'{"class": 1, "f0": 2, "other": [{}]}',
            b'{"f0": 9223372036854775807, "class": -2147483648, "ratio": 3, "side": "A", "values": [2.5, null, 3], '
            b'"inner": {"y": "z", "x": 1}}',
        ]
    )
    assert found.bad == []
    assert found.rows.tolist() == [0, 1]
    assert dicts_of(found.table) == [
        {"class": 1, "f0": 2, "ratio": None, "side": "B", "values": [1.0, None], "inner": {"x": 7, "y": "k"}},
        {
            "class": -(2**31),
            "f0": 2**63 - 1,
            "ratio": 3.0,
            "side": "A",
            "values": [2.5, None, 3.0],
            "inner": {"x": 1, "y": "z"},
        },
    ]
    assert dtypes_of(found.table) == json_decoder().columns


def test_columns_have_the_types_of_the_avro_decoder() -> None:
    assert json_decoder().columns == decoder(EVENT).columns
    assert dtypes_of(json_decoder().decode([]).table) == json_decoder().columns


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "expected a JSON object, found an empty value"),
        (b" \n", "expected a JSON object, found an empty value"),
        ('{"class": 1}'.encode("utf-16"), "expected UTF-8 text, found bytes of another encoding, such as UTF-16"),
        ('{"class": 1}'.encode("utf-16-be"), "expected UTF-8 text, found bytes of another encoding, such as UTF-16"),
        (b"nothing", "malformed JSON: invalid character (byte 4)"),
        (b'{"id": "x", broken}', "malformed JSON: expected a key in quotes (byte 12)"),
        (b'{"play": {"tags": ["ja\\ud800"]}}', "play.tags[0]: expected whole characters, found half of one"),
        (b'{"tags": ["\\udc00x"], "more": "text behind it"}', "tags[0]: expected whole characters, found half of one"),
        (b'{"\\ud800": 1, "class": 1, "f0": 2}', "expected whole characters, found half of one"),
        (b'{"tags": ["\\ud800"', "malformed JSON: "),
        (b"[1]", "expected a JSON object, found an array"),
        (b"null", "expected a JSON object, found null"),
        (b'{"class": 1}', "f0: expected a value, found none"),
        (b"{%b} x" % REQUIRED.encode(), "malformed JSON: trailing characters"),
        (b'{"class": "1", "f0": 2}', "class: expected an integer from -2^31 to 2^31 - 1, found text '1'"),
        (b'{"class": 1.0, "f0": 2}', "found the number 1.0"),
        (b'{"class": true, "f0": 2}', "found true"),
        (b'{"class": null, "f0": 2}', "found null"),
        (b'{"class": 2147483648, "f0": 2}', "found the number 2147483648"),
        (b'{"class": 1, "f0": 9223372036854775808}', "f0: expected an integer from -2^63 to 2^63 - 1"),
        (b'{"class": 1, "f0": -9223372036854775809}', "f0: expected an integer"),
        (
            b'{"class": 1, "f0": %b}' % (b"9" * 5000),
            "f0: expected an integer from -2^63 to 2^63 - 1, found a number that is too large for a double",
        ),
        (b'{%b, "ratio": NaN}' % REQUIRED.encode(), "malformed JSON: NaN is no JSON value: send null"),
        (b'{%b, "ratio": 3.5e38}' % REQUIRED.encode(), "ratio: expected a number that fits into a float"),
        (
            b'{%b, "ratio": 1e999}' % REQUIRED.encode(),
            "ratio: expected a number that fits into a float, found a number that is too large for a double",
        ),
        (b'{%b, "side": "C"}' % REQUIRED.encode(), "side: expected one of the enum's symbols, found 'C'"),
        (
            b'{%b, "values": [1, 2, "x"]}' % REQUIRED.encode(),
            "values[2]: expected a number that fits into a double, found text 'x'",
        ),
        (b'{%b, "inner": {"y": 5}}' % REQUIRED.encode(), "inner.y: expected text, found the number 5"),
        (b'{%b, "inner": {"y": "\xff"}}' % REQUIRED.encode(), "expected text in UTF-8, found the byte 0xff as byte 39"),
        # Each version of msgspec raises other errors for such texts.
        (
            b'{%b, "inner": {"y": "\xff\\ud800"}}' % REQUIRED.encode(),
            "expected text in UTF-8, found the byte 0xff as byte 39",
        ),
        (b"\xef\xbb\xbf{%b}" % REQUIRED.encode(), "found a UTF-8 byte-order mark before it"),
        (b'{"class": "x", "class": 1, "f0": 2}', "class: expected an integer"),
        (b"\0\0\0\0\1[1]", "expected a JSON object, found an array"),
        (b"\0\0\0\0\1{", "malformed JSON"),
        (
            b"\0\0\0\0\1\x0cr20000\0\0",
            "expected JSON, found what looks like Avro. If all events are Avro, write `format: avro`",
        ),
        (b"\0\0\0\0\1", "expected JSON, found what looks like Avro."),
        ('{"class": 1}'.encode("utf-32-be"), "expected UTF-8 text, found bytes of another encoding, such as UTF-16"),
        (
            b'{%b, "deep": %b' % (REQUIRED.encode(), b"[" * 200_000),
            "nested too deeply: expected at most about 900",
        ),
    ],
    ids=repr,
)
def test_what_is_no_such_event_is_undecodable_and_says_where(value: bytes, said: str) -> None:
    good = b"{%b}" % REQUIRED.encode()
    found = json_decoder().decode([good, value, good])
    assert found.rows.tolist() == [0, 2]
    assert len(found.table) == 2
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "undecodable")]
    assert said in found.bad[0].error


@pytest.mark.parametrize("digits", [60, 308, 309, 400, 401, 4300, 4301, 5000])
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (b'%b, "inner": {"y": %b}', "inner.y: expected text"),
        (b'%b, "inner": %b', "inner: expected an object"),
        (b'%b, "values": %b', "values: expected an array"),
        (b'%b, "values": [%b]', ""),
        (b'%b, "side": %b', "side: expected one of the enum's symbols"),
        (b'%b, "class": %b', "class: expected an integer from -2^31 to 2^31 - 1"),
    ],
)
def test_whole_number_of_many_digits_is_told_like_any_other(place: bytes, expected: str, digits: int) -> None:
    for sign in (b"", b"-"):
        found = json_decoder().decode([b"{%b}" % (place % (REQUIRED.encode(), sign + b"9" * digits))])
        if not expected and digits <= 308:
            assert found.bad == []
            continue
        (bad,) = found.bad
        assert bad.reason == "undecodable"
        which = "of too many digits" if digits <= 308 else "that is too large for a double"
        assert (
            bad.error == f"{expected or 'values[0]: expected a number that fits into a double'}, found a number {which}"
        )


def test_largest_float_is_no_error() -> None:
    found = json_decoder(record(("x", "float"))).decode([b'{"x": 3.4028235e38}', b'{"x": -3.4028235e38}'])
    assert found.bad == []
    assert all(math.isfinite(value) for value in found.table["x"].to_list())


@pytest.mark.parametrize(
    "field_type",
    [
        "bytes",
        ["null", "bytes"],
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "array", "items": "bytes"},
        record(("y", "bytes"), name="Inner"),
    ],
    ids=str,
)
def test_bytes_are_refused_before_the_first_event(field_type: AvroType) -> None:
    with pytest.raises(BadFieldError, match="field 'x' of schema 3 'event': JSON has no"):
        json_decoder(record(("x", field_type)))
    assert json_decoder(record(("x", field_type), ("z", "int")), "z").columns == {"z": "int32"}


def test_empty_objects_that_defaults_would_fill_without_bound_are_refused() -> None:
    filled = [{"name": f"f{i}", "type": {"type": "array", "items": "long"}, "default": [1, 2, 3]} for i in range(50)]
    schema = record(("a", {"type": "array", "items": record(*filled, name="Item")}))
    few, many = (b'{"a":[' + b",".join([b"{}"] * count) + b"]}" for count in (2, 100_000))
    found = json_decoder(schema).decode([few, many])
    assert found.table["a"].to_list() == [[{f"f{i}": [1, 2, 3] for i in range(50)}] * 2]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, "undecodable")]
    assert "defaults could add more than 200,000 lists and records" in found.bad[0].error


@pytest.mark.parametrize(("field_type", "default"), [("string", "\ud800"), ("long", 10**30)], ids=str)
def test_defaults_within_records_must_be_of_their_type(field_type: str, default: object) -> None:
    inner = record({"name": "y", "type": field_type, "default": default}, name="Inner")
    with pytest.raises(
        BadFieldError, match=r"field 'y' within field 'x' of schema 3 'event': the default .* correct it"
    ):
        json_decoder(record(("x", {"type": "array", "items": ["null", inner]})))


def test_default_of_a_record_must_fit_the_fields_within() -> None:
    inner = {"name": "x", "type": record(("y", "float"), name="Inner"), "default": {"y": 1e39}}
    with pytest.raises(BadFieldError, match="default"):
        json_decoder(record(inner))


def test_unknown_fields_are_refused_with_those_that_exist() -> None:
    with pytest.raises(BadFieldError, match="has no field 'nothing'; it has class, f0"):
        json_decoder(EVENT, "nothing")


@given(json_cases())
@settings(max_examples=40, deadline=None)
def test_json_gives_the_columns_that_avro_gives(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, events = case
    as_avro = decoder(schema).decode(written(Schema(WRITER_ID, "", schema), events))
    as_json = json_decoder(schema).decode([json.dumps(event).encode() for event in events])
    assert as_json.bad == []
    assert dtypes_of(as_json.table) == dtypes_of(as_avro.table)
    assert plain(dicts_of(as_json.table)) == plain(dicts_of(as_avro.table))


@given(st.lists(st.binary(max_size=40) | st.text(alphabet='{}[]":,classf012.e-', max_size=40).map(str.encode)))
def test_garbage_never_raises(values: list[bytes]) -> None:
    found = json_decoder().decode(values)
    assert sorted([*found.rows.tolist(), *(bad.row for bad in found.bad)]) == list(range(len(values)))


def test_many_values_are_one_frame_whatever_becomes_columns_together() -> None:
    schema = record(("n", "long"), ("values", {"type": "array", "items": "float"}))
    count, broken = 3 * TOGETHER + 5, {0, TOGETHER - 1, TOGETHER, *range(2 * TOGETHER, 3 * TOGETHER)}
    values = [b"{" if n in broken else b'{"n": %d, "values": [%d, 0.5]}' % (n, n) for n in range(count)]
    found = json_decoder(schema).decode(values)
    good = [n for n in range(count) if n not in broken]
    assert found.rows.tolist() == good
    assert dicts_of(found.table) == [{"n": n, "values": [n, 0.5]} for n in good]
    assert [bad.row for bad in found.bad] == sorted(broken)


def test_enum_without_symbols_is_refused_before_the_first_event() -> None:
    schema = record(("x", ["null", {"type": "enum", "name": "E", "symbols": []}]))
    with pytest.raises(BadFieldError, match=r"field 'x' .* expected an enum with symbols, found none"):
        JsonDecoder.of_schema(Schema(3, "event", schema), ["x"])


def test_error_quotes_little_of_a_long_text() -> None:
    """The dead letter holds the event, too: with an error as long, it might be larger than its topic takes."""
    found = JsonDecoder.of_schema(Schema(3, "event", EVENT), ["side"]).decode([b'{"side": "%b"}' % (b"x" * 1_000_000)])
    assert len(found.bad[0].error) <= 500
    assert found.bad[0].error.startswith("side: expected one of the enum's symbols, found 'xxx")
