"""A field that comes in several types: its column has the same texts, whether events are read many at a time or one by one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.json import columns as json_columns
from millstream.schemas.json.decoder import JsonDecoder
from tests.native import with_native
from tests.schemas.tables import dicts_of

TYPES = {"value": "mixed", "list[]": "mixed"}
NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "7",
        "7.0",
        "1e5",
        "1E-400",
        "1e22",
        "1e17",
        "123456789.125",
        "0.1",
        "12.5",
        "5e-324",
        "0.30000000000000004",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
    ),
    *("18446744073709551616", "1.7976931348623157e308", "1e400", "1" + "0" * 350, "9007199254740993.0", "01", "NaN"),
]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = (
    st.sampled_from([*NUMBERS, "true", "false", "null", "[]", "{}", '"\\u00e9"', '"12.5"'])
    | FLOATS.map(repr)
    | st.integers(-(2**66), 2**66).map(str)
    | st.text(max_size=5).map(json.dumps)
)


def both_ways(values: list[bytes]) -> tuple[object, object]:
    many = JsonDecoder.of_types(TYPES).decode(values)
    with with_native(on=False):
        one_by_one = JsonDecoder.of_types(TYPES).decode(values)
    return (dicts_of(many.table), many.bad), (dicts_of(one_by_one.table), one_by_one.bad)


@pytest.mark.skipif(not json_columns.LIBRARY.exists(), reason="json_columns.c is not compiled: no C compiler")
@given(st.lists(st.tuples(SCALARS, st.lists(SCALARS, max_size=3)), max_size=6))
@settings(max_examples=300, deadline=None)
def test_both_ways_give_the_same_texts(cases: list[tuple[str, list[str]]]) -> None:
    values = [f'{{"value": {value}, "list": [{",".join(items)}]}}'.encode() for value, items in cases]
    many, one_by_one = both_ways(values)
    assert many == one_by_one


@given(FLOATS | st.integers(-(2**63), 2**64 - 1))
def test_text_of_a_number_is_that_number(number: float) -> None:
    [text] = JsonDecoder.of_types({"x": "mixed"}).decode([json.dumps({"x": number}).encode()]).table["x"].to_list()
    assert type(number)(text) == number


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("12.5", "12.5"),
        ('"12.50"', "12.50"),
        ("7.0", "7"),
        ("true", "true"),
        ("0.1", "0.1"),
        ("null", None),
        ("1e22", "1e+22"),
        ("9007199254740991.0", "9007199254740991"),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_values_have_the_shortest_texts(written: str, text: str | None) -> None:
    found = JsonDecoder.of_types({"x": "mixed"}).decode([b'{"x": %b}' % written.encode()])
    assert found.table["x"].to_list() == [text]


@pytest.mark.parametrize("native", [True, False])
def test_a_double_that_may_stand_for_several_whole_numbers_keeps_its_point(native: bool) -> None:
    texts = ["9007199254740993.0", "-9007199254740992.0", "1e17", "9223372036854774784.0"]
    with with_native(on=native):
        found = JsonDecoder.of_types({"x": "mixed"}).decode([b'{"x": %b}' % text.encode() for text in texts])
    assert found.table["x"].to_list() == [
        "9007199254740992.0",
        "-9007199254740992.0",
        "100000000000000000.0",
        "9223372036854774784.0",
    ]


@pytest.mark.parametrize("native", [True, False])
def test_other_values_are_undecodable(native: bool) -> None:
    with with_native(on=native):
        found = JsonDecoder.of_types({"x": "mixed"}).decode([b'{"x": [1]}', b'{"x": 1}', b'{"x": {}}'])
    assert found.rows.tolist() == [1]
    assert [bad.error for bad in found.bad] == [
        "x: expected text, a number, or true or false, found an array. The type `any` doesn't cover lists: write [] behind the "
        'field, such as {field: "tags[]", type: any} in config.yaml, or "tags[]": text under `output.include` of the pipeline '
        "file",
        "x: expected text, a number, or true or false, found an object",
    ]
