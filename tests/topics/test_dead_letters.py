from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.topics.attempts import ATTEMPTS, attempts_before
from millstream.topics.dead_letters import (
    REPLAY_ID,
    Position,
    Selection,
    StoredLetter,
    marked,
    marker,
    parse_moment,
    replay_of,
)
from millstream.topics.records import ReadRecord
from tests.topics.letters import a_letter

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
AT = Position(3, 17)


def record(value: bytes | None, headers: Any = ()) -> ReadRecord:
    return ReadRecord("in", 0, 0, 5, b"k", value, tuple(headers))


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_position_is_read_as_it_is_written(partition: int, offset: int) -> None:
    assert Position.parse(str(Position(partition, offset))) == Position(partition, offset)


@pytest.mark.parametrize("text", ["", "3", "@", "3@", "-1@2", "3@17 ", "٣@1", "3@1@2", "9" * 20 + "@1"])
def test_text_that_is_no_position_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected partition@offset, such as 3@17, found"):
        Position.parse(text)


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (Selection(), True),
        (Selection(reasons=frozenset({"unfit", "undecodable"})), True),
        (Selection(reasons=frozenset({"unfit"})), False),
        (Selection(topics=frozenset({"in"})), True),
        (Selection(topics=frozenset({"dead"})), False),
        (Selection(partitions=frozenset({0})), True),
        (Selection(partitions=frozenset({1})), False),
        (Selection(since=1000, until=1001), True),
        (Selection(since=1001), False),
        (Selection(until=1000), False),
        (Selection(reasons=frozenset({"undecodable"}), partitions=frozenset({1})), False),
    ],
)
def test_selection_takes_what_all_its_filters_take(selection: Selection, taken: bool) -> None:
    assert selection.takes(a_letter(failed_at=1000)) is taken


JSON_ERROR = "customer.items[3].price: expected a number that fits into a double, found text"
UNFIT_ERROR = "field `items`[2] is null, which tensor `price` needs"
AVRO_ERROR = "field 'customer.age': the record ends before the field does"


@pytest.mark.parametrize(
    ("error", "field", "taken"),
    [
        (JSON_ERROR, "customer.items[].price", True),
        (JSON_ERROR, "customer.items[-1].price", True),
        (JSON_ERROR, "customer.items", True),
        (JSON_ERROR, "customer", True),
        (JSON_ERROR, "custom", False),
        (JSON_ERROR, "price", False),
        (UNFIT_ERROR, "items", True),
        (UNFIT_ERROR, "price", False),  # a tensor
        (AVRO_ERROR, "customer.age", True),
        (AVRO_ERROR, "age", False),
        ("field `a(b` is absent or null", "a(b", True),
        ("field `a` is absent or null", "b", False),
    ],
)
def test_filter_by_field_takes_errors_about_it_or_a_field_in_it(error: str, field: str, taken: bool) -> None:
    assert Selection(fields=(field,)).takes(a_letter(error=error)) is taken
    assert Selection(fields=("other", field)).takes(a_letter(error=error)) is taken


def test_filter_by_error_takes_errors_with_the_text_in_any_case() -> None:
    assert Selection(errors=("nothing", "FOUND text")).takes(a_letter(error=JSON_ERROR))
    assert not Selection(errors=("found a text",)).takes(a_letter(error=JSON_ERROR))


def test_marker_names_its_letter() -> None:
    assert marked(record(None, marker(AT))) == AT


@pytest.mark.parametrize(
    "other",
    [
        record(None),
        record(b"a letter", marker(AT)),
        record(None, [("millstream.replayed", b"no position")]),
        record(None, [("millstream.replayed", b"\xff")]),
        record(None, [("millstream.replayed", None)]),
    ],
)
def test_other_record_is_no_marker(other: ReadRecord) -> None:
    assert marked(other) is None


def test_replay_is_the_event_byte_for_byte_with_its_letter_and_attempts_in_headers() -> None:
    headers = (("a", b"\xff"), ("a", None))
    letter = a_letter(partition=2, key=None, value=b"\0\xff", headers=headers, attempts=4)
    replay = replay_of(StoredLetter(AT, letter), "dead", keep_timestamp=False)
    assert replay is not None
    assert (replay.topic, replay.partition, replay.key, replay.value) == ("in", 2, None, b"\0\xff")
    assert replay.headers == (*headers, (REPLAY_ID, b"dead/3/17"), (ATTEMPTS, b"4"))
    assert replay.timestamp is None


def test_second_replay_says_nothing_of_the_first() -> None:
    letter = a_letter(headers=((REPLAY_ID, b"dead/0/1"), ("a", b"1"), (ATTEMPTS, b"1")), attempts=2)
    replay = replay_of(StoredLetter(AT, letter), "dead", keep_timestamp=False)
    assert replay is not None
    assert replay.headers == (("a", b"1"), (REPLAY_ID, b"dead/3/17"), (ATTEMPTS, b"2"))


@pytest.mark.parametrize(("timestamp", "kept"), [(0, 0), (1_378_012_500_000, 1_378_012_500_000), (-1, None)])
def test_timestamp_is_kept_where_it_is_wanted_and_there(timestamp: int, kept: int | None) -> None:
    replay = replay_of(StoredLetter(AT, a_letter(timestamp=timestamp)), "dead", keep_timestamp=True)
    assert replay is not None
    assert replay.timestamp == kept


def test_value_left_out_is_taken_from_the_original() -> None:
    stored = StoredLetter(AT, a_letter(value=None))
    replay = replay_of(stored, "dead", record(b"large", [("a", b"1")]), keep_timestamp=False)
    assert replay is not None
    assert (replay.value, replay.headers[0]) == (b"large", ("a", b"1"))
    assert replay_of(stored, "dead", None, keep_timestamp=False) is None


@given(st.integers(1, 999_999))
def test_attempts_are_read_as_a_replay_writes_them(attempts: int) -> None:
    replay = replay_of(StoredLetter(AT, a_letter(attempts=attempts)), "dead", keep_timestamp=False)
    assert replay is not None
    assert attempts_before(replay.headers) == attempts


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"-1", b"1_0", b" 1", b"1.5", b"\xff", "٣".encode(), b"9999999", b"9" * 5000]
)
def test_attempts_that_no_replay_writes_count_as_none(value: bytes | None) -> None:
    assert attempts_before([(ATTEMPTS, value)]) == 0
    assert attempts_before([]) == 0


def test_last_of_several_attempts_counts() -> None:
    assert attempts_before([(ATTEMPTS, b"7"), (ATTEMPTS, b"2"), ("other", b"9")]) == 2


@pytest.mark.parametrize(
    ("text", "hours_ago"),
    [
        ("15m", 0.25),
        ("2h", 2),
        ("2026-03-01T11:00", 1),
        ("2026-03-01T12:00:00+01:00", 1),
        ("2026-03-01T11:00:00Z", 1),
        ("2026-03-01", 12),
    ],
)
def test_moment_is_a_time_or_how_long_ago(text: str, hours_ago: float) -> None:
    assert parse_moment(text, NOW) == round((NOW - hours_ago * 3600) * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "15", "2026-13-01", "900h"])
def test_text_that_is_no_moment_is_told_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a time such as 2026-03-01T12:00 \(UTC\), or how long ago"):
        parse_moment(text, NOW)
