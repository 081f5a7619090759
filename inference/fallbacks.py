"""Reads the values of a field, with those of its fallback in the events that lack them."""

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from millstream.inference.ragged import offsets_of
from millstream.schemas.arrays import Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn
from millstream.schemas.table import Table


class Read(NamedTuple):
    """The values that fill one or more elements, one per event."""

    column: Column
    field: str
    fallback: str | None = None  # the path that is read where `field` is absent or null
    of_fallback: Mask | None = None  # true for a value that is the fallback's; None: none is
    nowhere: Mask | None = None  # true for an event that lacks both

    @property
    def lists(self) -> ListColumn:
        """The values of an array field, see `check_fields`."""
        return cast("ListColumn", self.column)

    def path(self, row: int) -> str:
        """The path of an event's value; the field's if it has none."""
        is_fallback = self.of_fallback is not None and self.of_fallback[row]
        return cast("str", self.fallback) if is_fallback else self.field

    def absent(self, row: int) -> str:
        """Says what a value is that an event lacks."""
        is_nowhere = self.nowhere is not None and self.nowhere[row]
        return "absent or null" + (f", and so is its fallback field `{self.fallback}`" if is_nowhere else "")


class Fields:
    """The fields of some events. A field and its fallback are merged once, however often they are read."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._merged: dict[tuple[str, str], Read] = {}

    def read(self, field: str, fallback: str | None) -> Read:
        """The values of a field. An event that lacks it has the value of the fallback."""
        if fallback is None:
            return Read(self.table[field], field)
        if (merged := self._merged.get((field, fallback))) is None:
            merged = self._merged[field, fallback] = _merged(self.table, field, fallback)
        return merged


def _merged(table: Table, field: str, fallback: str) -> Read:
    column, other = _of_one_type(table[field], table[fallback])
    if (absent := lacking(column)) is None:
        return Read(column, field, fallback)
    other_absent = lacking(other)
    taken = absent if other_absent is None else absent & ~other_absent
    if taken.all():
        column = other
    elif taken.any():
        rows = np.arange(len(column))
        rows[taken] += len(column)
        column = column.joined([other]).take(rows)
    return Read(column, field, fallback, taken, absent & ~taken)


def _of_one_type(column: Column, other: Column) -> tuple[Column, Column]:
    """The columns with numbers of one type. So a number doesn't depend on whether the events beside it lack the field."""
    match column, other:
        case ListColumn(), ListColumn():
            items, other_items = _of_one_type(column.items, other.items)
            return replace(column, items=items), replace(other, items=other_items)
        case NumberColumn(), NumberColumn():
            common = np.result_type(column.values, other.values)
            one, two = (each.values.astype(common, copy=False) for each in (column, other))
            return replace(column, values=one), replace(other, values=two)
    return column, other


def lacking(column: Column) -> Mask | None:
    """Which events lack the field; None: none of them. An array whose items are all null is lacking, too."""
    null = None if column.valid is None else ~column.valid
    if not isinstance(column, ListColumn) or column.items.valid is None:
        return null
    offsets = offsets_of(column.lengths)
    without_values = column.lengths > 0
    without_values[without_values] = ~np.logical_or.reduceat(column.items.valid, offsets[:-1][without_values])
    return without_values if null is None else without_values | null


def with_fallback(field: str, fallback: str | None) -> str:
    """The paths in words."""
    return field if fallback is None else f"{field} or {fallback}"
