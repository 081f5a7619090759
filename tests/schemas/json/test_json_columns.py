"""Events that become columns many at a time are what msgspec reads of each; what it refuses is never among them."""

import functools
import importlib.util
import json
import logging
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatch_build import compile_library
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.column_buffers import SPARE
from millstream.schemas.json import columns as json_columns
from millstream.schemas.json.columns import LIBRARY, ColumnReader
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.json.each import EventReader
from millstream.schemas.packed import Chained, Packed
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import without_head
from tests.native import with_native
from tests.schemas.avro.avro_cases import json_cases, record
from tests.schemas.tables import dicts_of, dtypes_of

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="schemas/json/json_columns.c is not compiled: no C compiler"
)

OK = {"name": "ok", "type": ["null", "boolean"], "default": None}
POINT = record({"name": "x", "type": "long", "default": 5}, OK, name="Point")
EVENT = record(
    ("text", "string"),
    ("small", "int"),
    ("large", "long"),
    ("ratio", "float"),
    ("ratios", {"type": "array", "items": ["null", "float"]}),
    {"name": "flag", "type": ["null", "boolean"], "default": True},
    {"name": "count", "type": ["null", "int"], "default": None},
    {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["A", "BB", "true"]}, "default": "BB"},
    {"name": "inner", "type": ["null", POINT], "default": None},
    {"name": "points", "type": {"type": "array", "items": "Point"}, "default": [{"x": 1, "ok": None}]},
)
GOOD = {"text": "a", "small": 1, "large": 2, "ratio": 0.5, "ratios": [1, None, 2.5]}
NUMBERS = [
    *("0", "-0", "-0.0", "01", "1.", ".5", "+1", "1e5", "1E-400", "1e400", "0.1e1", "NaN", "Infinity", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615", "5e-324"),
    *("3.4028235e38", "3.4028235677973366e38", "3.4028235677973365e38", "123456789012345678901234567890", "16777217"),
    *("2.2250738585072011e-308", "0.1", "100000000000000000000000", "-2147483648"),
]
TEXTS = ['"A"', '"BB"', '"é😀"', r'"é\n\/"', r'"\ud83d\ude00"', r'"\ud800"', r'"\x"', '"a\tb"', '"a', r'"\u0000"']
SPACE = st.sampled_from(["", " ", "\t\r\n"])


def readers(definition: AvroType) -> tuple[ColumnReader, EventReader]:
    fields = wanted_columns(Schema(3, "event", definition), [field["name"] for field in definition["fields"]]).fields
    return ColumnReader(fields), EventReader(fields)


@functools.cache
def of_event() -> tuple[ColumnReader, EventReader]:
    return readers(EVENT)


def scalars() -> st.SearchStrategy[str]:
    floats = st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False)
    numbers = st.sampled_from(NUMBERS) | floats.map(repr) | st.integers(-(2**66), 2**66).map(str)
    return numbers | st.sampled_from([*TEXTS, "true", "false", "null"]) | st.text(max_size=3).map(json.dumps)


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.sampled_from(['"x"', '"ok"', '"other"', r'"\u0078"']), inner).map(":".join)
    return st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]") | st.lists(pairs, max_size=3).map(
        lambda items: f"{{{','.join(items)}}}"
    )


ANY = st.recursive(scalars(), containers, max_leaves=6)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """An event of `EVENT`, in which some things are other than they should be."""
    members = {name: json.dumps(value) for name, value in GOOD.items()}
    names = [*(field["name"] for field in EVENT["fields"]), "other", r"\u0074ext"]
    pairs = list((members | draw(st.dictionaries(st.sampled_from(names), ANY, max_size=4))).items())
    pairs += draw(st.lists(st.sampled_from(pairs), max_size=1))  # a doubled key
    space = draw(SPACE)
    inside = f",{space}".join(f'"{name}"{space}:{text}' for name, text in pairs)
    value = f"{space}{{{inside}}}{space}".encode()
    match draw(st.sampled_from(["keep", "keep", "keep", "cut", "byte", "behind"])):
        case "cut":
            value = value[: draw(st.integers(0, len(value)))]
        case "byte":
            place = draw(st.integers(0, len(value)))
            value = value[:place] + draw(st.binary(max_size=2)) + value[place + 1 :]
        case "behind":
            value += draw(st.sampled_from([b"x", b"{}", b",", b"\0", b"/**/", b"\xef\xbb\xbf"]))
    return value


@given(st.lists(hostile(), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_what_is_read_is_what_msgspec_reads(values: list[bytes]) -> None:
    columns, one_by_one = of_event()
    table, odd = columns.read(Packed.of(values))
    each = one_by_one.read([value for value, is_odd in zip(values, odd, strict=True) if not is_odd])
    assert each.bad == []
    assert dtypes_of(table) == dtypes_of(each.table)
    assert repr(dicts_of(table)) == repr(dicts_of(each.table))  # tells -0.0 from 0.0


def test_each_field_takes_the_values_that_msgspec_takes() -> None:
    others = [
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[1]",
        "[null, 1e39]",
        '["A"]',
        '{"x": 1}',
        '{"x": null}',
        "[{}]",
        "[[]]",
    ]
    fields = [*(field["name"] for field in EVENT["fields"]), "texts", "tex"]
    good = {name: json.dumps(value) for name, value in GOOD.items()}
    values = [
        b"{%b}" % ", ".join(f'"{key}": {value}' for key, value in (good | {name: text}).items()).encode()
        for name in fields
        for text in [*NUMBERS, *TEXTS, *others]
    ]
    columns, one_by_one = of_event()
    (table, odd), each = columns.read(Packed.of(values)), one_by_one.read(values)
    assert np.flatnonzero(odd).tolist() == [record.row for record in each.bad]
    assert repr(dicts_of(table)) == repr(dicts_of(each.table))


@pytest.mark.parametrize("head", [b"\0\0\0\0\7", b"\0{}  ", b"\0", b"\0\0", b"\1\0\0\0\7", b"\0\0\0\0\7" * 2, b""])
@pytest.mark.parametrize("space", [b"", b" "])
def test_heads_of_json_are_skipped_by_one_rule(head: bytes, space: bytes) -> None:
    value = head + space + json.dumps(GOOD).encode()
    is_event = without_head(value).lstrip()[:1] == b"{"
    (_, odd), each = of_event()[0].read(Packed.of([value])), of_event()[1].read([value])
    assert is_event is ((head[:1] == b"\0" and len(head) == 5) or head == b"")
    assert odd.tolist() == [not is_event]
    assert len(each.rows) == is_event


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\7"])
def test_values_that_are_no_longer_than_a_head_are_no_events(value: bytes) -> None:
    (_, odd), each = of_event()[0].read(Packed.of([value])), of_event()[1].read([value])
    assert odd.tolist() == [True]
    assert len(each.bad) == 1
    assert without_head(value) == (b"" if len(value) == 5 else value)


@given(json_cases())
@settings(max_examples=60, deadline=None)
def test_well_formed_events_of_any_schema_are_left_to_nobody(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, events = case
    columns, each = readers(schema)
    values = [json.dumps(event).encode() for event in events]
    table, odd = columns.read(Packed.of(values))
    assert not odd.any()
    assert dicts_of(table) == dicts_of(each.read(values).table)


def event(**members: Any) -> bytes:
    return json.dumps(GOOD | members).encode()


@pytest.mark.parametrize(
    "value",
    [
        event()[:-1] + b', "text": "b"}',  # msgspec takes the last
        event()[:-1] + b', "other": %b%b}' % (b"[" * 600, b"]" * 600),  # and reads as deep as Python lets it
    ],
    ids=["doubled key", "deep"],
)
def test_what_only_msgspec_takes_is_left_to_it_alone(value: bytes) -> None:
    values = [event(small=1), value, event(small=3)]
    assert of_event()[0].read(Packed.of(values))[1].tolist() == [False, True, False]
    found = JsonDecoder.of_schema(Schema(3, "event", EVENT), ["small", "text"]).decode(values)
    assert (found.bad, found.rows.tolist()) == ([], [0, 1, 2])
    assert found.table["small"].to_list() == [1, 1, 3]


@pytest.mark.parametrize(
    "other", [b"1e999", b'"\xff"', b"[" * 150 + b"]" * 150, rb'"\u00e9\ud83d\ude00"', b'{"small": 7, "\xff": {}}']
)
def test_of_values_that_nobody_wants_only_the_syntax_is_checked(other: bytes) -> None:
    values = [event()[:-1] + b', "other": %b}' % other, event()[:-1] + b', "other": %b' % other]
    (table, odd), each = of_event()[0].read(Packed.of(values)), of_event()[1].read(values)
    assert odd.tolist() == [False, True]
    assert [bad.row for bad in each.bad] == [1]
    assert dicts_of(table) == dicts_of(each.table)


@pytest.mark.parametrize("others", [3, 400])
def test_events_have_other_keys_than_those_before_them(others: int) -> None:
    """Their order, spaces and escapes differ, some are absent or longer than 24 bytes, and some contain others."""
    rng, columns, each = Random(7), *of_event()
    names = [b'"other%d"' % number for number in range(others)] + [b'"%b"' % (b"long" * 9), b'"tex"', rb'"sm\u0061l"']
    values = []
    for _ in range(100):
        members = {b'"%b"' % name.encode(): json.dumps(value).encode() for name, value in GOOD.items()}
        members[b'"points"'] = rng.choice(
            [b'[{"x": 1}, {"y": 2, "x": 3}]', b'[{"ok": true, "z": {"x": 4}}, {}]', b"[]"]
        )
        members |= {name: rng.choice([b"1", b'{"text": 2, "x": [{"x": 3}]}']) for name in rng.sample(names, 3)}
        pairs = list(members.items())
        if rng.random() < 0.5:
            rng.shuffle(pairs)
        between = rng.choice([b":", b": ", b" :\n"])
        value = b"{%b}" % b", ".join(name + between + text for name, text in pairs)
        values.append(value if rng.random() < 0.8 else value.replace(b'"text"', rb'"\u0074ext"', 1))
    table, odd = columns.read(Packed.of(values))
    assert not odd.any()
    assert dicts_of(table) == dicts_of(each.read(values).table)


def test_what_was_appended_of_a_refused_event_is_taken_back() -> None:
    points = [{"x": 7}, {"x": 8}]
    values = [event(points=points), event(points=[*points, {"x": "no"}], ratios=[1.0, "no"]), event(text="last")]
    table, odd = of_event()[0].read(Packed.of(values))
    assert odd.tolist() == [False, True, False]
    assert table["text"].to_list() == ["a", "last"]
    assert table["ratios"].to_list() == [[1.0, None, 2.5]] * 2
    assert table["points"].to_list() == [[{"x": 7, "ok": None}, {"x": 8, "ok": None}], [{"x": 1, "ok": None}]]


@pytest.mark.parametrize(
    ("items", "default"),
    [("int", list(range(1000))), (["null", "boolean"], [None] * 1000), ("string", ["x" * 5000])],
    ids=["numbers", "nulls", "text"],
)
def test_more_than_there_is_room_for_is_left_to_msgspec(items: AvroType, default: list[Any]) -> None:
    """Three bytes of an event each have a default of thousands."""
    many = {"name": "many", "type": {"type": "array", "items": items}, "default": default}
    columns, each = readers(record(("items", {"type": "array", "items": record(many, name="Item")})))
    values = [b'{"items": [%b]}' % b",".join([b"{}"] * count) for count in (1, 1000)]
    table, odd = columns.read(Packed.of(values))
    assert odd.tolist() == [False, True]
    assert dicts_of(table) == dicts_of(each.read(values[:1]).table)


def test_an_event_that_might_fill_too_much_is_left_to_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [event(small=1), event(text="x" * 5000), b"{", event(small=2)]
    monkeypatch.setattr(json_columns, "ROOM", 20_000)
    table, odd = of_event()[0].read(Packed.of(values))
    assert odd.tolist() == [False, True, True, False]
    assert table["small"].to_list() == [1, 2]


@given(json_cases())
@settings(max_examples=25, deadline=None)
def test_columns_are_not_of_the_memory_that_is_filled_anew(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, events = case
    columns, _ = readers(schema)
    table, _ = columns.read(Packed.of([json.dumps(event).encode() for event in events]))
    before = dicts_of(table)
    for memory in SPARE:
        memory[: 1 << 16] = 0xFF
    assert dicts_of(table) == before


def test_long_texts_of_one_width_are_not_of_that_memory_either() -> None:
    columns, _ = of_event()
    table, _ = columns.read(Packed.of([event(text=letter * 1000) for letter in "abc"]))
    columns.read(Packed.of([event(text="x" * 1000) for _ in range(3)]))
    assert table["text"].to_list() == [letter * 1000 for letter in "abc"]


def test_events_of_two_polls_are_read_as_if_they_lay_end_to_end() -> None:
    polls = [[event(small=1), b"{", event(small=2)], [event(text="x"), event(small=3), b"[]"]]
    together, odd = of_event()[0].read(Packed.of([value for poll in polls for value in poll]))
    table, odd_of_polls = of_event()[0].read(Chained([Packed.of(poll) for poll in polls]))
    assert odd_of_polls.tolist() == odd.tolist() == [False, True, False, False, False, True]
    assert dicts_of(table) == dicts_of(together)


def test_what_needs_more_memory_than_is_kept_is_read_as_well() -> None:
    columns, _ = readers(EVENT)
    values = [event(text="x" * (1 << 23)), event(small=2)]
    kept = len(SPARE)
    for _ in range(2):
        table, odd = columns.read(Packed.of(values))
        assert not odd.any()
        assert list(map(len, table["text"].to_list())) == [1 << 23, 1]
    assert len(SPARE) == kept


def test_arrays_within_too_many_arrays_are_left_to_msgspec() -> None:
    deep: Any = "int"
    for _ in range(10):
        deep = {"type": "array", "items": deep}
    with pytest.raises(LookupError, match="arrays are nested more than 8 deep"):
        readers(record(("x", deep)))
    found = JsonDecoder.of_schema(Schema(3, "event", record(("x", deep))), ["x"]).decode(
        [b'{"x": [[[[[[[[[[1]]]]]]]]]]}']
    )
    assert len(found.table) == 1


@pytest.mark.parametrize("form", [["null", record(name="Empty")], {"type": "array", "items": record(name="Empty")}])
def test_records_of_no_fields_are_records(form: AvroType) -> None:
    columns, each = readers(record(("x", form)))
    values = [b'{"x": null}', b'{"x": {}}', b'{"x": {"y": 1}}', b'{"x": []}', b'{"x": [{}, {}]}']
    found, (table, odd) = each.read(values), columns.read(Packed.of(values))
    assert [bad.row for bad in found.bad] == np.flatnonzero(odd).tolist()
    assert dicts_of(table) == dicts_of(found.table)


def test_events_are_read_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "ROOM", 20_000)
    values = [b"{" if n % 7 == 0 else event(small=n, text="x" * (n % 50)) for n in range(100)]
    table, odd = of_event()[0].read(Packed.of(values))
    assert odd.tolist() == [n % 7 == 0 for n in range(100)]
    assert table["small"].to_list() == [n for n in range(100) if n % 7]
    assert table["text"].to_list() == ["x" * (n % 50) for n in range(100) if n % 7]


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    compile_library(LIBRARY.with_name("json_columns.c"), tmp_path / "library.so", "-Wall", "-Wextra", "-Werror")


@pytest.mark.parametrize("missing", ["library", "package", "function", "choice"])
def test_without_it_events_are_read_one_by_one(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if missing == "library":
        monkeypatch.setattr(json_columns, "LIBRARY", tmp_path / "missing.so")
    elif missing != "choice":
        other = None if missing == "package" else importlib.util.find_spec("msgspec._core")
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: other)
    caplog.set_level(logging.INFO)
    with with_native(on=missing != "choice"):
        decoder = JsonDecoder.of_schema(Schema(3, "event", EVENT), ["text", "ratios"])
    assert "JSON events are read one by one, which takes more CPU" in caplog.text
    found = decoder.decode([event(), b"{", event(text="b")])
    assert found.rows.tolist() == [0, 2]
    assert dicts_of(found.table) == [{"text": text, "ratios": [1.0, None, 2.5]} for text in ("a", "b")]
    assert [bad.row for bad in found.bad] == [1]


def test_an_event_is_read_alike_whatever_its_neighbours_are() -> None:
    values = [event(), b"{", event(flag=None), event(small=2**40), event(text="z", inner={"ok": None})]
    together = JsonDecoder.of_schema(Schema(3, "event", EVENT), ["text", "flag", "inner"]).decode(values * 50)
    alone = JsonDecoder.of_schema(Schema(3, "event", EVENT), ["text", "flag", "inner"]).decode(values)
    assert dicts_of(together.table) == dicts_of(alone.table) * 50
    assert np.array_equal(together.rows, np.concatenate([alone.rows + 5 * n for n in range(50)]))
    assert [bad.error for bad in together.bad] == [bad.error for bad in alone.bad] * 50
