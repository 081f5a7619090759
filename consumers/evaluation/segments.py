"""The values of the fields by which events are divided, as small numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from millstream.consumers.evaluation.rows import Rows

MOST_SEGMENTS: Final = 10
"""Most values of a field that are judged: the most frequent ones. The levels of errors are shared among so many."""
MOST_VALUES: Final = 60_000
"""Values of a field that get a code of their own: the first ones. The texts of all others are not kept."""
_LONGEST: Final = 100  # characters of a value
_OTHERS: Final = 0


def text_of(value: Any) -> str:
    """A field's value as a text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
    return str(value)[:_LONGEST]


class Segments:
    """The codes of the values of several fields."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._codes: list[dict[str, int]] = [{} for _ in fields]

    def codes(self, columns: Sequence[Sequence[Any]], count: int) -> npt.NDArray[np.uint16]:
        """The code of each field's value: [events, fields]. 0 stands for values that are too many.

        Args:
            columns: the values of each field.
            count: of events.
        """
        found = np.zeros((count, len(self._fields)), np.uint16)
        for place, (values, codes) in enumerate(zip(columns, self._codes, strict=True)):
            found[:, place] = [self._code(codes, text_of(value)) for value in values]
        return found

    @staticmethod
    def _code(codes: dict[str, int], text: str) -> int:
        code = codes.get(text)
        if code is not None:
            return code
        if len(codes) >= MOST_VALUES:
            return _OTHERS
        codes[text] = len(codes) + 1
        return codes[text]

    def most_frequent(self, rows: Rows) -> Iterator[Segment]:
        """The segments that are judged: of each field, the most frequent values among these events."""
        for place, (field, codes) in enumerate(zip(self._fields, self._codes, strict=True)):
            counts = np.bincount(rows["segments"][:, place], minlength=len(codes) + 1)
            ordered = sorted(codes.items(), key=lambda own: (-counts[own[1]], own[0]))
            for text, code in ordered[:MOST_SEGMENTS]:
                if counts[code]:
                    yield Segment(f"{field}={text}", place, code)


@dataclass(frozen=True, slots=True)
class Segment:
    """The events with one value of a field."""

    name: str  # such as country=DE
    place: int  # of the field
    code: int

    def of(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which events it has."""
        found: npt.NDArray[np.bool_] = rows["segments"][:, self.place] == self.code
        return found
