"""Headers come out of their packed form as they went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.schemas.packed import Packed

HEADERS = st.lists(
    st.tuples(st.sampled_from(["a", "ab", "", "\u00e9"]) | st.text(max_size=3), st.none() | st.binary(max_size=4))
)


@given(HEADERS)
def test_headers_keep_names_values_and_order(headers: list[tuple[str, bytes | None]]) -> None:
    assert list(RecordHeaders.of(headers)) == headers


@given(HEADERS, st.frozensets(st.sampled_from(["a", "ab", "\u00e9", "none"])))
def test_named_headers_are_those_of_the_names(headers: list[tuple[str, bytes | None]], names: frozenset[str]) -> None:
    assert RecordHeaders.of(headers).named(names) == [header for header in headers if header[0] in names]


def test_a_name_that_is_not_utf8_is_shown_with_replacement_characters() -> None:
    (header,) = RecordHeaders(b"\x02\0\0\0\x01\0\0\0t\xffv")
    assert header == ("t\ufffd", b"v")


def test_a_header_of_two_bytes_takes_ten_at_most() -> None:
    assert len(RecordHeaders.of([("a", b"b")] * 100_000).packed) <= 1_000_000


def test_headers_of_several_records_are_those_of_the_columns() -> None:
    rows = HeaderRows.of_columns([("a", Packed.of([b"1", b"", b"333"])), ("né", Packed.of([b"x", b"y", b"z"]))])
    assert list(rows) == [[("a", b"1"), ("né", b"x")], [("a", b""), ("né", b"y")], [("a", b"333"), ("né", b"z")]]
    assert [RecordHeaders(own) for own in rows.packed] == [RecordHeaders.of(own) for own in rows]
    assert list(rows[1:]) == list(rows)[1:]
