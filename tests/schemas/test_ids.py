"""The text of an event's ID. Should one of these change, an update would give events other IDs."""

import math

import numpy as np
import pytest

from millstream.schemas.column import column_of
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.ids import ids_of, place_id, place_ids


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        ("string", {"": "", "ä b": "ä b"}),
        ("binary", {b"abc": "abc", "ä".encode(): "ä"}),
        ("boolean", {True: "true", False: "false"}),
        ("int32", {0: "0", -(2**31): "-2147483648"}),
        ("int64", {2**63 - 1: "9223372036854775807"}),
        (
            "float64",
            {
                **{1.0: "1.0", -0.1: "-0.1", 0.0001: "0.0001", 123456789.125: "123456789.125"},
                **{1e15: "1000000000000000.0", 1e16: "1e+16", 1.5e-7: "1.5e-7", 1e-5: "0.00001", 9e-6: "9e-6"},
                **{1.7976931348623157e308: "1.7976931348623157e+308", 5e-324: "5e-324"},
                **{math.nan: "NaN", math.inf: "inf", -math.inf: "-inf"},
            },
        ),
        ("float32", {0.1: "0.1", 1e12: "1000000000000.0", 1e13: "1e+13", 1e-6: "0.000001", 1e-7: "1e-7"}),
    ],
)
def test_id_is_the_shortest_text_of_its_value(dtype: Dtype, texts: dict[object, str]) -> None:
    assert list(ids_of(column_of(list(texts), dtype))) == list(texts.values())


def test_lists_are_no_ids() -> None:
    with pytest.raises(
        TypeError, match="expected texts, numbers or booleans as the events' IDs, found lists or records"
    ):
        ids_of(column_of([[1]], ListOf("int32")))


def test_bytes_that_are_no_text_are_no_ids() -> None:
    with pytest.raises(UnicodeDecodeError):
        ids_of(column_of([b"\xff"], "binary"))


@pytest.mark.parametrize("partitions", [[("t", 3)], [("t", 0), ("other-t", 12)]])
def test_event_without_an_id_has_the_name_of_its_place(partitions: list[tuple[str, int]]) -> None:
    places = np.arange(4) % len(partitions)
    offsets = np.array([0, 7, 99, 2**40])
    expected = [place_id(*partitions[place], int(offset)) for place, offset in zip(places, offsets, strict=True)]
    assert expected[0] == ("t-3-0" if len(partitions) == 1 else "t-0-0")
    assert list(place_ids(dict(enumerate(partitions)), places, offsets)) == expected
