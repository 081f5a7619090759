"""Vocabularies: the index of a text or a whole number in a list."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.inference.conversions import Converted, as_numbers
from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.words import Words

_NUMBER_DIGITS = 19  # those of 2^63


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Replaces each value by its index in a list of entries."""

    entries: tuple[str, ...] = field(repr=False)  # without duplicates
    # Of a value that is no entry: its index, or that it becomes a null; None: it can't be converted.
    unknown: int | Literal["missing"] | None
    source: str = field(default="", compare=False)  # the file or the place in one that lists the entries, for messages
    leaf: str = "scalar"
    takes: tuple[str, ...] = ("string", "mixed", "int32", "int64")
    expected: str = "an entry of the vocabulary"
    _texts: Words = field(init=False, repr=False, compare=False)
    _numbers: Ints = field(init=False, repr=False, compare=False)  # the entries that are whole numbers, ascending
    _places: Ints = field(init=False, repr=False, compare=False)  # their indices

    def __post_init__(self) -> None:
        texts = [entry.encode() for entry in self.entries]
        whole = sorted((int(text), index) for index, text in enumerate(texts) if _is_int64(text))
        numbers = np.array(whole, np.int64).reshape(-1, 2)
        for name, value in (("_texts", Words(texts)), ("_numbers", numbers[:, 0]), ("_places", numbers[:, 1])):
            object.__setattr__(self, name, value)

    def convert(self, column: Column, event_times: Callable[[], Ints]) -> Converted:  # noqa: ARG002
        """See Converter."""
        if isinstance(column, StringColumn):
            found = self._texts.places(column.packed)
        else:
            found = self._of_numbers(as_numbers(column).values)
        wrong = found < 0
        if column.valid is not None:
            wrong &= column.valid
        if self.unknown == "missing":
            valid = ~wrong if column.valid is None else column.valid & ~wrong
            return Converted(NumberColumn(found, valid), None, wrong)
        if self.unknown is not None:
            found[wrong] = self.unknown
            return Converted(NumberColumn(found, column.valid), None, wrong)
        return Converted(NumberColumn(found, column.valid), wrong if wrong.any() else None)

    def _of_numbers(self, values: npt.NDArray[Any]) -> Ints:
        """The index of each number, or -1."""
        if not len(self._numbers):
            return np.full(len(values), -1)
        at = np.minimum(np.searchsorted(self._numbers, values), len(self._numbers) - 1)
        return np.where(self._numbers[at] == values, self._places[at], -1)


def _is_int64(text: bytes) -> bool:
    """Whether the text is how a whole number of 64 bits is written."""
    if not text.removeprefix(b"-").isdigit() or len(text) > _NUMBER_DIGITS + 1:
        return False
    return str(int(text)).encode() == text and -(2**63) <= int(text) < 2**63
