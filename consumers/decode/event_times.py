"""Turns the values of the event-time field into milliseconds since 1970."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from millstream.consumers.records import Ints
from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.times import parse_iso8601

TimeFormat = Literal["iso8601", "seconds", "milliseconds", "microseconds", "nanoseconds"]
_PER_MILLISECOND = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
_MOST_SECONDS = 2**63 // 1000 - 1  # that fit into 64 bits as milliseconds
_MOST_FLOAT = 2.0**62  # milliseconds that fit, as a float
_QUOTED = 60  # characters of a value in a message


def event_times(column: Column, form: TimeFormat) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The times in ms since 1970, and which values are no time. Both are arbitrary for a null."""
    match column:
        case StringColumn():
            micros, ok = parse_iso8601(column.packed)
            return micros // 1000, ~ok
        case NumberColumn() if column.values.dtype.kind == "f":
            return _from_floats(column.values.astype(np.float64), form)
        case NumberColumn():
            return _from_integers(column.values.astype(np.int64, copy=False), form), np.zeros(len(column), np.bool_)
    raise TypeError(f"times can't be a {type(column).__name__}")


def shown(column: Column, row: int) -> str:
    """A value for a message."""
    [value] = column.take(np.array([row])).to_list()
    return f"{value!r:.{_QUOTED}}"


def _from_integers(values: Ints, form: TimeFormat) -> Ints:
    if form == "seconds":
        times: Ints = np.clip(values, -_MOST_SECONDS, _MOST_SECONDS) * 1000
        return times
    per_millisecond = _PER_MILLISECOND[form]
    return values if per_millisecond == 1 else values // per_millisecond


def _from_floats(values: npt.NDArray[np.float64], form: TimeFormat) -> tuple[Ints, npt.NDArray[np.bool_]]:
    times = values * 1000 if form == "seconds" else values / _PER_MILLISECOND[form]
    ok = np.abs(times) < _MOST_FLOAT  # false for NaN
    # Rounded to microseconds first: 1.001 seconds are 1000.9999999999999 ms.
    return np.floor(np.round(np.where(ok, times, 0), 3)).astype(np.int64), ~ok
