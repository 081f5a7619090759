"""The steps that turn a field's values into a tensor's elements, where the tensor does not take them as they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn, StringColumn
from millstream.schemas.packed import Packed

Missing = float | bool | str
"""The tensor's element in place of a null."""


class Converted(NamedTuple):
    """Values after a conversion."""

    column: Column  # a null stays null
    wrong: Mask | None  # true for a value that can't be converted, never for a null; None: all can
    unknown: Mask | None = None  # true for a value that a vocabulary lacks and replaces, never for a null


class Reader(Protocol):
    """A step that reads a field."""

    @property
    def leaf(self) -> str:
        """The field's type in JSON without a schema: boolean, int64, float64, string or scalar."""

    @property
    def takes(self) -> tuple[str, ...]:
        """The types of columns that it reads."""

    @property
    def expected(self) -> str:
        """The value that it needs, for messages."""


class Converter(Reader, Protocol):
    """Converts the values of a field, or the items of an array field."""

    def convert(self, column: Column, event_times: Callable[[], Ints]) -> Converted:
        """Convert all values. `event_times` returns the time of each value's event, in ms since the epoch."""


class Split(NamedTuple):
    """A list of each event's values."""

    lists: ListColumn
    types: Callable[[], Ints]  # for each item of all lists, which of the event's values it is of, from 0


class Splitter(Reader, Protocol):
    """Makes a list of each event's value of a field, or of its values of several fields, as a tokenizer does."""

    @property
    def missing(self) -> str | None:
        """The text in place of a null; None: a null stays null."""

    def split(self, columns: Sequence[Column]) -> Split:
        """The lists, given the column of each field. It is null where one of the values is null."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the values of one field become elements of a tensor."""

    converter: Converter | None = None  # None: the values are taken as they are
    missing: Missing | None = None  # None: an event without the value does not fit
    splitter: Splitter | None = None  # makes an array field of one that is none
    fallback: str | None = None  # the column that is read where the field is null
    # Whether `missing` is the mapping's: then events that lack the value are counted, because the model gets another one.
    is_mapped: bool = True

    @property
    def reader(self) -> Reader | None:
        """The step that reads the field; None: the tensor takes its values."""
        return self.splitter or self.converter

    @property
    def in_place_of_null(self) -> Missing | None:
        """The tensor's element, or the text for the splitter; None: an event without the value does not fit."""
        return self.missing if self.splitter is None else self.splitter.missing


PLAIN = Conversion()
"""Takes the values as they are, and rejects nulls."""


def without_nulls(packed: Packed, valid: Mask | None) -> Packed:
    """The texts that are not null."""
    return packed if valid is None else packed.take(np.flatnonzero(valid))


def as_numbers(column: Column) -> NumberColumn:
    """The column, whose type `Converter.takes` has checked."""
    assert isinstance(column, NumberColumn)
    return column


def as_texts(column: Column) -> StringColumn:
    """The column, whose type `Converter.takes` has checked."""
    assert isinstance(column, StringColumn)
    return column
