"""Features of times: the time itself, its hour, weekday, day and month (UTC), and the event's age at it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.inference.conversions import Converted, as_numbers, as_texts
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.times import YEARS, microseconds, parse_iso8601

Format = Literal["iso8601", "seconds", "milliseconds", "microseconds", "days"]
"""The values of the option `time`."""
Part = Literal["epoch", "hour", "weekday", "day", "month", "age"]
"""The values of the option `as`."""

_SECOND = 1_000_000  # in microseconds
_DAY = 86_400 * _SECOND
_EXACT = 1 << 53  # up to here, each whole number is a float, too
_EXPECTED = {
    "iso8601": f"a valid time with separators {YEARS}, such as 2026-01-31T09:30:00Z",
    "": "an Avro timestamp or a valid time with separators, such as 2026-01-31T09:30:00Z (for other times, write `time:`)",
}


@dataclass(frozen=True, slots=True)
class Time:
    """Makes a number of a time."""

    # A Format, or `nanoseconds`. "": the schema's (`Signature.with_time_formats`), or iso8601 if it has none.
    format: str
    part: Part
    whole: bool  # whether the tensor takes whole numbers, so that `epoch` and `age` are rounded down

    @property
    def leaf(self) -> str:
        """See Reader."""
        return "string" if self.format in {"iso8601", ""} else "float64"  # doubles hold all microseconds until 2255

    @property
    def takes(self) -> tuple[str, ...]:
        """See Reader."""
        return ("string",) if self.format in {"iso8601", ""} else ("int32", "int64", "float32", "float64")

    @property
    def expected(self) -> str:
        """See Reader."""
        return _EXPECTED.get(self.format, f"a time in {self.format} since 1970 {YEARS}")

    def convert(self, column: Column, event_times: Callable[[], Ints]) -> Converted:
        """See Converter."""
        if isinstance(column, StringColumn):
            texts = as_texts(column)
            times, fits = parse_iso8601(texts.packed)
        else:
            times, fits = microseconds(as_numbers(column).values, self.format)
        wrong: Mask = ~fits if column.valid is None else ~fits & column.valid
        values = self._part(np.where(fits, times, 0), event_times)
        return Converted(NumberColumn(values, column.valid), wrong if wrong.any() else None)

    def _part(self, times: Ints, event_times: Callable[[], Ints]) -> npt.NDArray[Any]:
        """The part of each time, which is in microseconds since the epoch."""
        days = times // _DAY
        match self.part:
            case "hour":
                return np.asarray(times // (3600 * _SECOND) % 24)
            case "weekday":
                return np.asarray((days + 3) % 7)  # 1970 began on a Thursday
            case "day":
                dates = days.astype("M8[D]")
                return np.asarray((dates - dates.astype("M8[M]")).astype(np.int64) + 1)
            case "month":
                return np.asarray(days.astype("M8[D]").astype("M8[M]").astype(np.int64) % 12 + 1)
            case "age":
                # Event times have no microseconds. With those of the field, an event of the same time would have a negative age.
                amount, second = event_times() - times // 1000, 1000
            case _:
                amount, second = times, _SECOND
        return np.asarray(amount // second if self.whole else _quotients(amount, second))


def _quotients(amounts: Ints, by: int) -> npt.NDArray[np.float64]:
    """Each amount divided, as the nearest float. numpy rounds twice where no float holds the amount."""
    if not len(amounts) or max(-int(amounts.min()), int(amounts.max())) <= _EXACT:
        return np.asarray(amounts / by)
    whole, rest = np.divmod(amounts, by)
    return np.where(np.abs(amounts) <= _EXACT, amounts / by, whole + rest / by)
