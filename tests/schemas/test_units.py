from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.units import parse_duration, parse_size, written_duration
from millstream.schemas.wording import shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250us", 0.00025), ("5ms", 0.005), ("0.5s", 0.5), ("2m", 120.0), ("1.5 h", 5400.0), ("0s", 0.0), (" 1s ", 1.0)],
)
def test_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["250us", "1500ms", "7s", "90m", "6h", "72h", "0s"])
def test_duration_is_written_as_the_file_takes_it(text: str) -> None:
    assert written_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("2KB", 2000),
        ("2KiB", 2048),
        ("1.5MB", 1_500_000),
        ("1 MiB", 2**20),
        ("3GB", 3 * 10**9),
        ("0.5GiB", 2**29),
    ],
)
def test_size_is_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", [5, 0.5, "5", "0.5"])
def test_number_without_unit_is_refused_with_what_to_write(value: object) -> None:
    with pytest.raises(ValueError, match=rf"without a unit: write {value}ms or {value}s\."):
        parse_duration(value)
    with pytest.raises(ValueError, match=rf"without a unit: write {value}B or"):
        parse_size(value)


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "",
        "5 parsecs",
        "-5ms",
        "5MS",
        "1m30s",
        "1e3s",
        "\N{ARABIC-INDIC DIGIT FIVE}ms",
        None,
        True,
        ("5ms",),
        {},
    ],
)
def test_what_is_no_duration_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"expected a duration such as 5ms, 0\.5s, 2m, 1h or 7d, found ") as caught:
        parse_duration(value)
    assert str(caught.value).endswith(shown(value))


@pytest.mark.parametrize("value", ["big", "1kb", "1Mi", "-1B", "1 048 576B", None, False, ()])
def test_what_is_no_size_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"expected a size such as 512KiB, 1MiB or 2GiB, found "):
        parse_size(value)


def test_part_of_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match=r"whole number of bytes, found '1.5B', which is 1.5 bytes"):
        parse_size("1.5B")


def test_duration_beyond_a_month_is_a_slip() -> None:
    assert parse_duration("720h") == parse_duration("30d") == 30 * 24 * 3600
    with pytest.raises(ValueError, match="at most 30 days"):
        parse_duration("999999999h")


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from([("us", 10**6), ("ms", 1000), ("s", 1)]))
def test_duration_is_the_nearest_number_of_seconds(amount: int, unit: tuple[str, int]) -> None:
    assert parse_duration(f"{amount}{unit[0]}") == amount / unit[1]


@given(st.text())
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert str(error).startswith("expected ")


def test_long_values_are_shown_short_and_on_one_line() -> None:
    assert len(shown("x" * 1000)) < 70
    assert "\n" not in shown("two\nlines")
