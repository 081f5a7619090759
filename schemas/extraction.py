"""Takes the values at a path out of a column, for many events per call."""

from collections.abc import Sequence
from dataclasses import replace

from millstream.schemas.arrays import Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn, RecordColumn, StringColumn, spread
from millstream.schemas.packed import Packed
from millstream.schemas.paths import Every, Step


def column_at(column: Column, steps: Sequence[Step]) -> Column:
    """The values at these steps within the values of a column. A value is null if a step on its way is null or absent."""
    for place, step in enumerate(steps):
        match step, column:
            case Every(), ListColumn():
                return replace(column, items=column_at(column.items, steps[place + 1 :]))
            case int(), ListColumn():
                column = _item(column, step)
            case str(), RecordColumn():
                column = _masked(column.fields[step], column.valid)
            case _:
                raise TypeError(f"step {step!r} doesn't lead into a {type(column).__name__}")
    return column


def _item(lists: ListColumn, index: int) -> Column:
    """The item with this index of each list; null where the list is too short. A negative index counts from the end."""
    there = lists.lengths > index if index >= 0 else lists.lengths >= -index
    ends = lists.lengths.cumsum()
    places = ends + index if index < 0 else ends - lists.lengths + index
    items = lists.items.take(places[there])
    return items if there.all() else _with_nulls(items, there)


def _masked(column: Column, outer: Mask | None) -> Column:
    """The same values; null also where the record around them is null."""
    if outer is None:
        return column
    valid = outer if column.valid is None else outer & column.valid
    match column:
        case NumberColumn() | StringColumn() | ListColumn() | RecordColumn():
            return replace(column, valid=valid)
    raise TypeError(f"unknown column: {type(column).__name__}")


def _with_nulls(column: Column, there: Mask) -> Column:
    """The column's values at the rows in `there`, nulls at the others."""
    valid = there if column.valid is None else spread(column.valid, there)
    match column:
        case NumberColumn():
            return NumberColumn(spread(column.values, there), valid)
        case StringColumn():
            lengths = spread(column.packed.lengths, there)
            packed = Packed(column.packed.buffer, lengths.cumsum() - lengths, lengths)  # `take` laid them end to end
            return StringColumn(packed, column.is_text, valid)
        case ListColumn():
            return ListColumn(column.items, spread(column.lengths, there), valid)
        case RecordColumn():
            fields = {name: _with_nulls(field, there) for name, field in column.fields.items()}
            return RecordColumn(fields, len(there), valid)
    raise TypeError(f"unknown column: {type(column).__name__}")
