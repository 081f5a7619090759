"""Tables of decoded records, made of Python values and turned into them."""

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.schemas.column import Column, ListColumn, NumberColumn, RecordColumn, StringColumn, column_of
from millstream.schemas.dtypes import NUMBERS, Dtype, ListOf, RecordOf
from millstream.schemas.table import Table


def table_of(dtypes: Mapping[str, Dtype], **columns: Sequence[Any]) -> Table:
    """A table of the columns' values; without them, one of no records."""
    return Table({name: column_of(columns.get(name, ()), dtype) for name, dtype in dtypes.items()})


def dtype_of_column(column: Column) -> Dtype:
    """The type of a column's values."""
    match column:
        case NumberColumn():
            return next(name for name, kind in NUMBERS.items() if column.values.dtype == kind)
        case StringColumn():
            return "string" if column.is_text else "binary"
        case ListColumn():
            return ListOf(dtype_of_column(column.items))
        case RecordColumn():
            return RecordOf(tuple((name, dtype_of_column(field)) for name, field in column.fields.items()))
    raise TypeError(f"no such column: {column}")


def dtypes_of(table: Table) -> dict[str, Dtype]:
    """The columns' types."""
    return {name: dtype_of_column(column) for name, column in table.columns.items()}


def as_stored(dtype: Dtype) -> Dtype:
    """The type of the column that holds values of a type: one of texts holds `mixed` ones, and doesn't know that they are."""
    match dtype:
        case ListOf(items):
            return ListOf(as_stored(items))
        case RecordOf(fields):
            return RecordOf(tuple((name, as_stored(field)) for name, field in fields))
    return "string" if dtype == "mixed" else dtype


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """Each record's values."""
    return list(zip(*(column.to_list() for column in table.columns.values()), strict=True))


def dicts_of(table: Table) -> list[dict[str, Any]]:
    """Each record's values by name."""
    return [dict(zip(table.columns, row, strict=True)) for row in rows_of(table)]
