"""Reads times, many per call: texts in ISO 8601, and numbers of a unit since 1970.

`texts.c` reads the texts. If it is not compiled, numpy does so, which takes ten times as long.
"""

import ctypes
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.compiled import compiled
from millstream.schemas.interleave import addresses_of
from millstream.schemas.packed import Packed

LIBRARY = Path(__file__).with_name("libtexts.so")
_LONGEST = 35  # characters of `2024-05-01T12:00:00.123456789+02:00`
_WIDTH = _LONGEST + 6  # so that the six places behind any text's end exist
_FRACTION_DIGITS = 9
_SECOND = 1_000_000  # in microseconds
_MICROSECONDS = {"days": 86_400 * _SECOND, "seconds": _SECOND, "milliseconds": 1000, "microseconds": 1}
"""Unit -> its length."""
_FIRST, _END = -719_162 * 86_400 * _SECOND, 2_932_897 * 86_400 * _SECOND  # the beginning of the years 1 and 10000
LIKE_SECONDS = range(631_152_000, 4_102_444_800)
"""Milliseconds that look like seconds since 1970: from 1990 to 2100. As milliseconds, they are in January or February of 1970."""
YEARS = "(years 1 to 9999)"
"""Where a number of a unit has to lie, for messages."""

Unit = Literal["seconds", "milliseconds", "microseconds"]
_UNITS: tuple[Unit, ...] = get_args(Unit)


class _Cells(NamedTuple):
    """Texts as an array of bytes, [places, texts], filled up with zeros: the bytes at a place lie side by side."""

    bytes: npt.NDArray[np.uint8]
    digits: npt.NDArray[np.uint8]  # the digit of each byte; above 9 if it isn't one

    def number(self, places: range) -> tuple[Ints, Mask]:
        """The number at these places, and whether they hold only digits."""
        number = self.digits[places[0]].astype(np.int64)
        ok = self.digits[places[0]] <= 9
        for place in places[1:]:
            number *= 10
            number += self.digits[place]
            ok &= self.digits[place] <= 9
        return number, ok

    def has(self, place: int, characters: str) -> Mask:
        """Whether one of these characters is at the place."""
        found: Mask = self.bytes[place] == ord(characters[0])
        for character in characters[1:]:
            found |= self.bytes[place] == ord(character)
        return found


def likely_unit(number: float) -> Unit | None:
    """The unit in which a number is a time from 1990 to 2100; None: in none."""
    seconds = ((unit, number * _MICROSECONDS[unit] / _SECOND) for unit in _UNITS)
    return next((unit for unit, time in seconds if LIKE_SECONDS[0] <= time <= LIKE_SECONDS[-1]), None)


def parse_iso8601(texts: Packed) -> tuple[Ints, Mask]:
    """Parse dates and times such as `2024-05-01`, `2024-05-01T12:00Z` and `2024-05-01 12:00:00.123456789+02:00`.

    A time without a zone is in UTC. Digits beyond microseconds are cut off.

    Returns:
        microseconds since 1970, and whether each text is such a time of the years 1 to 9999 (if not, its number is 0).
    """
    try:
        function = compiled(LIBRARY, "read_times")
    except LookupError:
        return _parsed_by_numpy(texts)
    addresses, _kept = addresses_of([texts])
    times, ok = np.empty(len(texts), np.int64), np.empty(len(texts), np.bool_)
    found = ctypes.c_void_p(times.ctypes.data), ctypes.c_void_p(ok.ctypes.data)
    function(ctypes.c_void_p(addresses.ctypes.data), ctypes.c_int64(len(texts)), *found)
    return _of_calendar(times, ok)


def _parsed_by_numpy(texts: Packed) -> tuple[Ints, Mask]:
    cells = _cells_of(texts)
    days, is_date = _days(cells)
    seconds, is_minute, has_seconds = _seconds(cells)
    fraction, fraction_digits = _fraction(cells)
    fraction_digits = np.where(has_seconds, fraction_digits, 0)
    is_time = texts.lengths > 10
    zone_at = np.where(is_time, np.where(has_seconds, 19 + fraction_digits + (fraction_digits > 0), 16), 10)
    offset, is_zone = _offset(cells, zone_at, texts.lengths)
    ok = is_date & np.where(is_time, is_minute & is_zone, texts.lengths == 10)
    times = (days * 86_400 + np.where(is_time, seconds - offset, 0)) * _SECOND
    times += np.where(fraction_digits > 0, fraction, 0)
    return _of_calendar(times, ok)


def _of_calendar(times: Ints, ok: Mask) -> tuple[Ints, Mask]:
    """Without the times of year 0, and those that their zone moves beyond the years 1 to 9999."""
    ok &= in_calendar(times, "microseconds")
    return np.where(ok, times, 0), ok


def in_calendar(values: npt.NDArray[Any], unit: str) -> Mask:
    """Which times since 1970 lie in the years 1 to 9999, as those in ISO 8601 do. Most numbers of a smaller unit don't.

    Args:
        values: whole numbers or floats.
        unit: of the values: days, seconds, milliseconds or microseconds.
    """
    factor = _MICROSECONDS[unit]
    found: Mask = (values >= _FIRST // factor) & (values < _END // factor)  # false for NaN
    return found


def microseconds(values: npt.NDArray[Any], unit: str) -> tuple[Ints, Mask]:
    """Times since 1970 in microseconds.

    Args:
        values: whole numbers or floats.
        unit: of the values: days, seconds, milliseconds, microseconds or nanoseconds.

    Returns:
        the times, floats rounded to the nearest microsecond; and which times are `in_calendar` (if not, the time is 0).
    """
    is_whole = values.dtype.kind == "i"
    numbers: npt.NDArray[Any] = values.astype(np.int64 if is_whole else np.float64, copy=False)
    if unit == "nanoseconds":
        numbers, unit = numbers // 1000 if is_whole else numbers / 1000, "microseconds"
    fits = in_calendar(numbers, unit)
    times = np.where(fits, numbers, 0) * _MICROSECONDS[unit]
    return np.rint(times).astype(np.int64) if times.dtype.kind == "f" else times, fits


def _cells_of(texts: Packed) -> _Cells:
    characters = np.zeros((_WIDTH, len(texts)), np.uint8)
    if len(texts.buffer):
        last, longest = len(texts.buffer) - 1, min(int(texts.lengths.max(initial=0)), _WIDTH)
        shortest = int(texts.lengths.min(initial=0))
        for place in range(longest):
            characters[place] = texts.buffer[np.minimum(texts.starts + place, last)]
            if place >= shortest:
                characters[place, texts.lengths <= place] = 0
    return _Cells(characters, characters - np.uint8(ord("0")))


def _days(cells: _Cells) -> tuple[Ints, Mask]:
    """Days since 1970 of `YYYY-MM-DD`, and whether the text begins with a date."""
    (year, a), (month, b), (day, c) = (cells.number(places) for places in (range(4), range(5, 7), range(8, 10)))
    ok = a & b & c & cells.has(4, "-") & cells.has(7, "-") & (month >= 1) & (month <= 12)
    months = np.where(ok, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
    first, after = months.astype("M8[D]").astype(np.int64), (months + 1).astype("M8[D]").astype(np.int64)
    return first + day - 1, ok & (day >= 1) & (day <= after - first)


def _seconds(cells: _Cells) -> tuple[Ints, Mask, Mask]:
    """Seconds since midnight of `Thh:mm` and `Thh:mm:ss`, whether the text has such a time, and whether it has seconds."""
    (hour, a), (minute, b), (second, c) = (
        cells.number(places) for places in (range(11, 13), range(14, 16), range(17, 19))
    )
    ok = a & b & cells.has(10, "Tt ") & cells.has(13, ":") & (hour <= 23) & (minute <= 59)
    has_seconds = cells.has(16, ":")
    ok &= ~has_seconds | (c & (second <= 60))  # 60: a leap second
    return hour * 3600 + minute * 60 + np.where(has_seconds, second, 0), ok, has_seconds


def _fraction(cells: _Cells) -> tuple[Ints, Ints]:
    """Microseconds of a fraction behind the seconds, and the number of its digits; 0 if there is none."""
    is_there = cells.has(19, ".,")
    fraction, count = np.zeros(len(is_there), np.int64), np.zeros(len(is_there), np.int64)
    for place in range(_FRACTION_DIGITS):
        is_there &= cells.digits[20 + place] <= 9
        if not is_there.any():
            break
        count += is_there
        fraction += np.where(is_there, cells.digits[20 + place], np.int64(0)) * (100_000 // 10**place)
    return fraction, count


def _offset(cells: _Cells, zone_at: Ints, lengths: Ints) -> tuple[Ints, Mask]:
    """Seconds east of UTC, and whether the text ends with a valid zone (or none) at this place.

    Zones: `Z`, `+hh`, `+hhmm`, `+hh:mm`, and the same with a minus.
    """
    zone_at = np.minimum(zone_at, _LONGEST)
    left = lengths - zone_at
    first = np.take_along_axis(cells.bytes, zone_at[None], 0)[0]
    is_utc = (left == 0) | ((left == 1) & ((first == ord("Z")) | (first == ord("z"))))
    if is_utc.all():
        return np.zeros(len(left), np.int64), is_utc
    places = zone_at + np.arange(6)[:, None]
    zone = _Cells(np.take_along_axis(cells.bytes, places, 0), np.take_along_axis(cells.digits, places, 0))
    (hours, a), (minutes, b), (short_minutes, c) = (
        zone.number(places) for places in (range(1, 3), range(4, 6), range(3, 5))
    )
    minutes = np.select([left == 6, left == 5], [minutes, short_minutes], 0)
    is_numeric = zone.has(0, "+-") & a & (hours <= 23) & (minutes <= 59)
    is_numeric &= np.select([left == 6, left == 5, left == 3], [b & zone.has(3, ":"), c, True], False)
    sign = np.where(zone.has(0, "-"), -1, 1)
    return np.where(is_numeric, sign * (hours * 3600 + minutes * 60), 0), is_utc | is_numeric
