"""Fills the model's input tensors from event fields, and rejects events that don't fit, with the reason."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.inference.ragged import Ints, Ragged, offsets_of
from millstream.inference.signature import DTYPES, TensorInput
from millstream.schemas.column import Column, ListColumn, Mask, NumberColumn, StringColumn
from millstream.schemas.packed import Texts
from millstream.schemas.table import Table


@dataclass(frozen=True, slots=True)
class InvalidFeatures:
    """An event that doesn't fit the model's input."""

    row: int  # its row in the given table
    error: str


@dataclass(frozen=True, slots=True)
class Features:
    """The events that fit, as tensors."""

    tensors: dict[str, Any]  # tensor -> an array [len(rows), *shape]; `Ragged` if the length varies
    rows: npt.NDArray[np.int64]  # their rows in the given table, ascending
    unfit: list[InvalidFeatures]  # the other events, ascending by row


def to_tensors(table: Table, inputs: Sequence[TensorInput], *, allow_nan: bool) -> Features:
    """Turn a table of events into tensors. Leave out the events that don't fit, each with the reason."""
    problems: dict[int, str] = {}  # row -> its first problem; the tensors may hold anything in this row
    filled: dict[str, Any] = {}
    for entry in inputs:
        if entry.max_length is None:
            fill = _fill_array if entry.array else _fill_scalars
            filled[entry.tensor] = array = fill(table, entry, problems)
            if not allow_nan:
                _find_nan(table, array, entry, problems)
    if varying := [entry for entry in inputs if entry.max_length is not None and not entry.mask]:
        filled |= _fill_ragged(table, varying, problems, allow_nan=allow_nan)
    if not problems:
        return Features(filled, np.arange(len(table)), [])
    fits = np.ones(len(table), np.bool_)
    fits[list(problems)] = False
    rows = np.flatnonzero(fits)
    unfit = [InvalidFeatures(row, problems[row]) for row in sorted(problems)]
    return Features({name: array[rows] for name, array in filled.items()}, rows, unfit)


def _find_nan(table: Table, array: npt.NDArray[Any], entry: TensorInput, problems: dict[int, str]) -> None:
    """Add the events with NaN or infinity to `problems`."""
    if array.dtype.kind != "f" or (is_finite := np.isfinite(array)).all():
        return
    is_finite = is_finite.reshape(len(array), -1)
    for row in np.flatnonzero(~is_finite.all(axis=1)).tolist():
        at = int(is_finite[row].argmin())
        where = f"`{entry.fields[0]}`[{at}]" if entry.array else f"`{entry.fields[at]}`"
        found = _not_finite(table[entry.fields[0 if entry.array else at]], row, at, entry.dtype)
        problems.setdefault(row, f"field {where} is {found}, which tensor `{entry.tensor}` does not take")


def _not_finite(column: Column, row: int, at: int, dtype: str) -> str:
    """What the field holds where the tensor has NaN or infinity. `at`: the place in a list."""
    (found,) = column.take(np.array([row])).to_list()
    if isinstance(found, list):
        found = found[at]
    too_large = isinstance(found, float) and math.isfinite(found)
    return f"{found}, too large for {dtype}" if too_large else "NaN or infinite"


def _fill_scalars(table: Table, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any]:
    """The tensor, [events, *shape]."""
    array = np.empty((len(table), len(entry.fields)), DTYPES[entry.dtype])
    # Rows that have a problem already: they get only one message, because a thousand fields may be null.
    lacking = np.zeros(len(table), np.bool_)
    for place, field in enumerate(entry.fields):
        column = table[field]
        array[:, place], unfit = _cast(column, entry.dtype)
        if unfit is None:
            continue
        rows = np.flatnonzero(unfit & ~lacking)
        for row, value in zip(rows.tolist(), column.take(rows).to_list(), strict=True):
            found = "null" if value is None else f"{value}, out of range for {entry.dtype}"
            problems.setdefault(row, f"field `{field}` is {found}, but tensor `{entry.tensor}` needs a value")
        lacking |= unfit
    return array.reshape(len(table), *entry.shape)


def _cast(column: Column, dtype: str) -> tuple[npt.NDArray[Any], Mask | None]:
    """The values in the tensor's type, and which of them are null or integers out of its range (None: no value)."""
    unfit = None if column.valid is None else ~column.valid
    if isinstance(column, StringColumn):
        return np.array(list(Texts(column.packed)), object), unfit
    values = cast("NumberColumn", column).values
    with np.errstate(over="ignore"):  # becomes infinite; `_find_nan` reports it, unless the model accepts it
        array = values.astype(DTYPES[dtype], copy=False)
    if array.dtype.itemsize < values.dtype.itemsize and array.dtype.kind == "i" and (changed := array != values).any():
        unfit = changed if unfit is None else unfit | changed
    return array, unfit


def _fill_array(table: Table, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any]:
    """The tensor, [events, *shape]; zeros if a list has the wrong length."""
    lists = _lists(table, entry)
    wrong = np.flatnonzero(lists.lengths != entry.width)
    for row, length in _at(wrong, lists):
        found = "null" if length is None else f"{length} values"
        problems.setdefault(
            row, f"field `{entry.fields[0]}` has {found}, but tensor `{entry.tensor}` needs {entry.width} values"
        )
    items = _items(lists, entry, problems)
    if len(wrong):
        items = _with_zeros(items, lists.lengths, wrong, entry.width)
    return items.reshape(len(lists), *entry.shape)


def _with_zeros(items: npt.NDArray[Any], lengths: Ints, wrong: Ints, width: int) -> npt.NDArray[Any]:
    """The items of all lists. Each list in `wrong` (ascending rows) is replaced by `width` zeros."""
    # Copies whole runs of correct lists: the runs are long, because few lists are wrong.
    ends = lengths.cumsum()
    zeros, done = np.zeros(width, items.dtype), 0
    parts: list[npt.NDArray[Any]] = []
    for start, stop in zip((ends - lengths)[wrong].tolist(), ends[wrong].tolist(), strict=True):
        parts += items[done:start], zeros
        done = stop
    return np.concatenate([*parts, items[done:]])


def _fill_ragged(
    table: Table, inputs: Sequence[TensorInput], problems: dict[int, str], *, allow_nan: bool
) -> dict[str, Ragged]:
    """The variable-length tensors."""
    columns = [_lists(table, entry) for entry in inputs]
    first, lengths = inputs[0], columns[0].lengths
    for entry, lists in zip(inputs, columns, strict=True):
        assert entry.max_length is not None
        is_null = False if lists.valid is None else ~lists.valid
        for row, length in _at(np.flatnonzero(is_null | (lists.lengths > entry.max_length)), lists):
            found = "is null" if length is None else f"has {length} values"
            problems.setdefault(
                row,
                f"field `{entry.fields[0]}` {found}, but tensor `{entry.tensor}` takes up to {entry.max_length} values",
            )
        for row in np.flatnonzero(lists.lengths != lengths).tolist():
            problems.setdefault(
                row,
                f"fields `{first.fields[0]}` and `{entry.fields[0]}` differ in length, but the model needs equal lengths",
            )
    tensors: dict[str, Ragged] = {}
    for entry, lists in zip(inputs, columns, strict=True):
        tensor = Ragged.of_lengths(_items(lists, entry, problems), lists.lengths)
        if not allow_nan:
            _find_nan_items(lists, tensor, entry, problems)
        tensors[entry.tensor] = tensor
    return tensors


def _lists(table: Table, entry: TensorInput) -> ListColumn:
    return cast("ListColumn", table[entry.fields[0]])  # see `check_fields`


def _at(rows: Ints, lists: ListColumn) -> Iterator[tuple[int, int | None]]:
    """These rows, and the lengths of their lists (None for a null)."""
    lengths = NumberColumn(lists.lengths, lists.valid).take(rows).to_list()
    return zip(rows.tolist(), lengths, strict=True)


def _items(lists: ListColumn, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any]:
    """The items of all lists, end to end."""
    items, unfit = _cast(lists.items, entry.dtype)
    for row, at in _first_of_each_event(unfit, offsets_of(lists.lengths)) if unfit is not None else ():
        problems.setdefault(
            row,
            f"field `{entry.fields[0]}`[{at}] is null or out of range for {entry.dtype}, which tensor `{entry.tensor}` needs",
        )
    return items


def _find_nan_items(lists: ListColumn, tensor: Ragged, entry: TensorInput, problems: dict[int, str]) -> None:
    """Like `_find_nan`, for ragged items."""
    if tensor.values.dtype.kind != "f" or (is_finite := np.isfinite(tensor.values)).all():
        return
    for row, at in _first_of_each_event(~is_finite, tensor.offsets):
        found = _not_finite(lists, row, at, entry.dtype)
        problems.setdefault(
            row, f"field `{entry.fields[0]}`[{at}] is {found}, which tensor `{entry.tensor}` does not take"
        )


def _first_of_each_event(found: npt.NDArray[np.bool_], offsets: Ints) -> Iterator[tuple[int, int]]:
    """For each event with a flagged item: its row, and the index of its first flagged item in the event. `found`: [items]."""
    filled = np.flatnonzero(np.diff(offsets))
    for row in filled[np.logical_or.reduceat(found, offsets[filled])].tolist():
        yield row, int(found[offsets[row] : offsets[row + 1]].argmax())
