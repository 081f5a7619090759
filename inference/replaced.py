"""Counts the values that stand in place of the events' own.

For a model, these are `missing` in place of absent values, and `unknown` in place of those that are no entry of a vocabulary. For
Millstream itself, they stand in place of absent times and costs, and null in place of absent fields that predictions include.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from millstream.inference.fallbacks import Fields, lacking
from millstream.inference.signature import TensorInput
from millstream.schemas.arrays import Mask
from millstream.schemas.column import Column, ListColumn, StringColumn
from millstream.schemas.table import Table

MAX_EXAMPLES = 3
_LOOKED_AT = 8  # values per call among which there are examples, since many may be the same


class Source(NamedTuple):
    """What is replaced."""

    field: str  # the column of the field
    # The option of a model's input that replaces its values, or of the pipeline file that names the field.
    option: Literal["missing", "unknown", "event_time", "cost", "include"]
    fallback: str | None = None  # the column that is read where `field` is null


# A tuple, because a frozen dataclass takes longer to create, and each block may need many.
class Replaced(NamedTuple):
    """How many values of a source were replaced."""

    number: int  # for `unknown`: values; otherwise events without the field's value
    of: int  # `unknown`: all values; `include`: events but those of empty lists; otherwise `Replacements.events` says it
    examples: tuple[str, ...] = ()  # of `unknown`: some values
    empty: int = (
        0  # of `missing`: events that don't show it: their list is empty, or their model doesn't read the field
    )

    def plus(self, other: "Replaced") -> "Replaced":
        """Of all values of both."""
        examples, empty = _distinct(self.examples + other.examples), self.empty + other.empty
        return Replaced(self.number + other.number, self.of + other.of, examples, empty)


NONE_REPLACED = Replaced(0, 0)


@dataclass(frozen=True, slots=True)
class Replacements:
    """What was replaced in some events."""

    events: int = 0
    sources: Mapping[Source, Replaced] = field(
        default_factory=dict
    )  # those other than `unknown` and `include` only if something was replaced, or a list is empty

    def __add__(self, other: "Replacements") -> "Replacements":
        """Of all events of both."""
        sources = dict(self.sources)
        for source, new in other.sources.items():
            sources[source] = sources[source].plus(new) if source in sources else new
        return Replacements(self.events + other.events, sources)

    def out_of(self, source: Source) -> int:
        """The number of values that could be replaced."""
        found = self.sources.get(source, NONE_REPLACED)
        return found.of if source.option in {"unknown", "include"} else self.events - found.empty


def missing_in(fields: Fields, inputs: Sequence[TensorInput]) -> dict[Source, Replaced]:
    """The events that lack fields for which the inputs have a `missing`. Of a list, all values must be absent."""
    found = {}
    events = len(fields.table)
    for entry in inputs:
        for name, conversion in entry.converted_fields if entry.conversions else ():
            if not conversion.is_mapped or conversion.in_place_of_null is None:
                continue
            column = fields.read(name, conversion.fallback).column
            absent, empty = lacking(column), _empty(column)
            count = 0 if absent is None else int(np.count_nonzero(absent))
            if count or empty:
                found[Source(name, "missing", conversion.fallback)] = Replaced(count, events, empty=empty)
    return found


def missing_of(column: Column, of: Mask) -> Replaced:
    """The events that lack a field, among those that `of` marks: the others don't use it."""
    absent, is_empty = lacking(column), _is_empty(column)
    unused = ~of if is_empty is None else ~of | is_empty
    return Replaced(
        0 if absent is None else int(np.count_nonzero(absent & of)), len(column), empty=int(np.count_nonzero(unused))
    )


def absent_in(table: Table, sources: Sequence[Source]) -> dict[Source, Replaced]:
    """The events that lack these fields, which Millstream itself reads."""
    found = {}
    for source in sources:
        column = table[source.field]
        if source.option == "include":
            found[source] = _absent_included(column)
            continue
        valid = column.valid
        if valid is not None and (count := len(valid) - int(np.count_nonzero(valid))):
            found[source] = Replaced(count, len(valid))
    return found


def _absent_included(column: Column) -> Replaced:
    """The events that lack the field. Empty lists don't count: they don't show whether their items would have it."""
    absent = lacking(column)
    return Replaced(0 if absent is None else int(np.count_nonzero(absent)), len(column) - _empty(column))


def _empty(column: Column) -> int:
    """How many events have an empty list."""
    is_empty = _is_empty(column)
    return 0 if is_empty is None else int(np.count_nonzero(is_empty))


def _is_empty(column: Column) -> Mask | None:
    """Which events have an empty list; None: the field is no list."""
    if not isinstance(column, ListColumn):
        return None
    is_empty: Mask = column.lengths == 0
    return is_empty if column.valid is None else is_empty & column.valid


def unknown_in(column: Column, unknown: Mask) -> Replaced:
    """The values that a vocabulary lacks. `unknown`: which of the column's values they are."""
    values = len(column) if column.valid is None else int(np.count_nonzero(column.valid))
    count = int(np.count_nonzero(unknown))
    if not count:
        return Replaced(0, values)
    rows = np.flatnonzero(unknown)[:_LOOKED_AT]
    if isinstance(column, StringColumn):
        examples = [column.packed[row].decode() for row in rows.tolist()]
    else:
        examples = [str(value) for value in column.take(rows).to_list()]
    return Replaced(count, values, _distinct(examples))


def _distinct(examples: Sequence[str]) -> tuple[str, ...]:
    if len(examples) < 2:
        return tuple(examples)
    return tuple(dict.fromkeys(examples))[:MAX_EXAMPLES]
