"""Turns the values of the event-time field into milliseconds since 1970."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.times import YEARS, in_calendar, microseconds, parse_iso8601

TimeFormat = Literal["iso8601", "seconds", "milliseconds", "microseconds", "nanoseconds"]
ISO8601 = f"a valid time in ISO 8601 with separators {YEARS}, such as 2026-03-01T10:00:00Z"
_QUOTED = 60  # characters of a value in a message


def event_times(column: Column, form: TimeFormat) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The times in ms since 1970, and which values are no time. Both are arbitrary for a null."""
    match column:
        case StringColumn():
            micros, ok = parse_iso8601(column.packed)
            return micros // 1000, ~ok
        case NumberColumn(values) if form == "milliseconds" and values.dtype.kind == "i":
            return values.astype(np.int64, copy=False), ~in_calendar(values, form)
        case NumberColumn(values):
            micros, ok = microseconds(values, form)
            return micros // 1000, ~ok
    raise TypeError(f"times can't be a {type(column).__name__}")


def advice(error: str, field: str | None) -> str:
    """What to do about a decoder's error; empty if it isn't one of an event time that is a text where a number is expected.

    Args:
        error: why an event can't be decoded.
        field: the path of the event times; None: there is none.
    """
    if field is None or not error.startswith(f"{field}: expected a number that fits into a double, found text "):
        return ""
    return " (a time in ISO 8601 needs `event_time_format: iso8601` under `input` in the pipeline file)"


def shown(column: Column, row: int) -> str:
    """A value for a message."""
    [value] = column.take(np.array([row])).to_list()
    return f"{value!r:.{_QUOTED}}"
