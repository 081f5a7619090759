"""ISO 8601 times: `parse_iso8601` agrees with Python's datetime, and refuses everything else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.times import LIBRARY, likely_unit, microseconds, parse_iso8601
from tests.native import with_native

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = (
    (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for moment in (datetime.min, datetime.max)
)
DAY = 86_400 * 10**6


@pytest.fixture(params=["compiled", "python"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with with_native(on=request.param == "compiled"):
        if request.param == "compiled":
            compiled(LIBRARY, "read_times")  # a machine that runs this has a compiler
        yield


def parsed(*texts: str) -> list[int | None]:
    times, ok = parse_iso8601(Texts.of(texts).utf8)
    assert not times[~ok].any()
    return [time if is_ok else None for time, is_ok in zip(times.tolist(), ok.tolist(), strict=True)]


def micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


zones = st.none() | st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=zones)  # None: a time without a zone


@given(st.lists(st.tuples(moments, st.sampled_from("T t"), st.sampled_from(["auto", "minutes", "seconds"]))))
def test_times_are_those_of_python(cases: list[tuple[datetime, str, str]]) -> None:
    texts = [moment.isoformat(sep, precision) for moment, sep, precision in cases]
    expected = [micros(datetime.fromisoformat(text.upper())) for text in texts]
    assert parsed(*texts) == [time if FIRST <= time <= LAST else None for time in expected]


@given(st.lists(st.text(alphabet="0123456789-:.,+TZtz ", max_size=40) | st.text(max_size=12)))
def test_any_text_is_a_time_or_refused_alone(texts: list[str]) -> None:
    assert parsed(*texts) == [parsed(text)[0] for text in texts]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1970-01-01", 0),
        ("1970-01-02", 86_400_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000),
        ("2024-02-29T00:00Z", 1_709_164_800_000_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("1970-01-01T00:00:00,1", 100_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00.000000001+0100", 0),
        ("1970-01-01 00:00:00-01", 3_600_000_000),
        ("1970-01-01T00:00:00z", 0),
        ("1970-01-01T23:59:60Z", 86_400_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_each_form_is_read(text: str, time: int) -> None:
    assert parsed(text) == [time]


@pytest.mark.parametrize(
    "text",
    [
        *("0000-12-31T23:59:59Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z"),
        *("", "2024", "2024-05", "2024-5-1", "20240501", "2024-05-01T", "2024-05-01T12", "2024-05-01T12:00:", "now"),
        *("2023-02-29", "2024-13-01", "2024-00-01", "2024-04-31", "2024-05-00", "2024-05-01T24:00", "2024-05-01T12:60"),
        *(
            "2024-05-01T12:00:61Z",
            "2024-05-01T12:00:00.Z",
            "2024-05-01T12:00:00.1234567890Z",
            "2024-05-01Z",
            "1714564800",
        ),
        *(
            "2024-05-01T12:00:00+24:00",
            "2024-05-01T12:00:00+1:00",
            "2024-05-01T12:00:00+01:60",
            "2024-05-01T12:00:00 Z",
        ),
        *(" 2024-05-01", "2024-05-01 ", "2024-05-01T12:00.5Z", "2024-05-01T12:00:00Zx", "2024-05-01T12:00:00+01:00:00"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    assert parsed(text) == [None]


def test_texts_may_lie_anywhere_in_a_buffer() -> None:
    buffer = np.frombuffer(b"x1970-01-02yy1970-01-01T00:00:01Z1", np.uint8)
    times, ok = parse_iso8601(Packed(buffer, np.array([1, 13]), np.array([10, 20])))
    assert (times.tolist(), ok.tolist()) == ([86_400_000_000, 1_000_000], [True, True])


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        ("days", [1, -1, 106_751_992], [86_400_000_000, -86_400_000_000, None]),
        (
            "days",
            [FIRST // DAY, FIRST // DAY - 1, LAST // DAY, LAST // DAY + 1],
            [FIRST, None, LAST // DAY * DAY, None],
        ),
        ("seconds", [2, LAST // 10**6, LAST // 10**6 + 1, -(2**63)], [2_000_000, LAST // 10**6 * 10**6, None, None]),
        ("seconds", [1.0000004, 0.5, 1e12], [1_000_000, 500_000, None]),
        ("milliseconds", [3, -3, 2**63 - 1], [3000, -3000, None]),
        ("milliseconds", [0.0015, float("nan"), float("-inf")], [2, None, None]),
        ("microseconds", [FIRST, FIRST - 1, LAST, LAST + 1, -(2**63)], [FIRST, None, LAST, None, None]),
        ("microseconds", [2.5, 2.0**63], [2, None]),
        ("nanoseconds", [1999, -1], [1, -1]),
        ("nanoseconds", [2600.0, 1e30], [3, None]),
    ],
)
def test_numbers_of_a_unit_are_times_in_the_calendar_or_refused(
    unit: str, values: list[float], expected: list[int | None]
) -> None:
    times, fits = microseconds(np.array(values), unit)
    assert times.dtype == np.int64
    found = [time if ok else None for time, ok in zip(times.tolist(), fits.tolist(), strict=True)]
    assert found == expected
    assert not times[~fits].any()


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        (1_795_821_406, "seconds"),
        (1_795_821_406.5, "seconds"),
        (1_795_821_406_123, "milliseconds"),
        (1_795_821_406_123_456, "microseconds"),
        (0, None),
        (-1_795_821_406, None),
        (20260131, None),
        (1_795_821_406_123_456_789, None),
        (float("nan"), None),
    ],
)
def test_unit_of_a_time_follows_from_its_size(number: float, unit: str | None) -> None:
    assert likely_unit(number) == unit
