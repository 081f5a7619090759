"""Values of hashes become columns of the type that a model wants."""

from typing import Any

import pytest

from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.hash_fields import HashField

CASES: list[tuple[str, str, bytes, Any]] = [
    ("f", "float64", b"12.5", 12.5),
    ("f", "float64", b"-1e3", -1000.0),
    ("f", "int64", b"9223372036854775807", 2**63 - 1),
    ("f", "boolean", b"true", True),
    ("f", "boolean", b"0", False),
    ("f", "string", "é 1".encode(), "é 1"),
    ("f", "string", b"", ""),
    ("f", "scalar", b"17", "17"),
    ("f", "mixed", b"17", "17"),
    ('["a.b"]', "string", b"x", "x"),
    ("f[]", "float64", b"[1, 2.5, null]", [1.0, 2.5, None]),
    ("f[]", "int64", b"[1]", [1]),
    ("f[]", "boolean", b"[true]", [True]),
    ("f[]", "string", b'["a"]', ["a"]),
    ("f[]", "scalar", b'["a", 1]', ["a", "1"]),
    ("f[]", "float64", b"[]", []),
]


@pytest.mark.parametrize(("path", "leaf", "value", "becomes"), CASES)
def test_value_is_read_as_the_wanted_type_and_none_is_null(path: str, leaf: str, value: bytes, becomes: Any) -> None:
    found = HashField.of(path, leaf, "place").read([value, None, value])
    assert found.column.to_list() == [becomes, None, becomes]
    assert not found.wrong


WRONG: list[tuple[str, str, bytes, str]] = [
    (
        "f",
        "float64",
        b"many",
        "expected text with a number, such as 33.5 (as in JSON: no leading zeros, no plus sign, and not "
        "too large for a double), found 'many'",
    ),
    ("f", "float64", b"1,2", "expected text with a number"),
    ("f", "float64", b"nan", "expected text with a number"),
    ("f", "float64", b"", "expected text with a number"),
    ("f", "float64", b"\xff\x00", "expected text with a number"),
    ("f", "int64", b"9223372036854775808", "expected text with a whole number"),
    ("f", "boolean", b"yes", "expected one of the texts true, false, 1 and 0"),
    ("f", "string", b"a\xff", "expected text in UTF-8, found other bytes"),
    ("f[]", "float64", b'["a"]', "expected a JSON array of float64"),
    ("f[]", "int64", b"[9223372036854775808]", "expected a JSON array of int64"),
    ("f[]", "float64", b"{", "expected a JSON array of float64"),
    ("f[]", "string", b'["\xff"]', "expected a JSON array of string"),
    ("f[]", "float64", b"[" * 100_000, "expected a JSON array of float64"),
]


@pytest.mark.parametrize(("path", "leaf", "value", "says"), WRONG)
def test_wrong_value_is_told_and_its_neighbours_are_read(path: str, leaf: str, value: bytes, says: str) -> None:
    good = next(case for case in CASES if case[:2] == (path, leaf))
    found = HashField.of(path, leaf, "place").read([good[2], value, None, good[2]])
    values = found.column.to_list()
    assert (values[0], *values[2:]) == (good[3], None, good[3])
    assert list(found.wrong) == [1]
    assert found.wrong[1].startswith(f"field `{path}`: {says}")
    assert len(found.wrong[1]) < 300


@pytest.mark.parametrize("path", ["a.b", "a[0]", "a[].b"])
def test_path_into_a_field_is_refused(path: str) -> None:
    with pytest.raises(
        FeatureStoreError, match=r"p.yaml:3: lookups: expected the name of a hash's field, found the path"
    ):
        HashField.of(path, "string", "p.yaml:3: lookups")
