"""Event fields to tensors: what does not fit is set apart with its reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.inference.ragged import Ints, Ragged, offsets_of
from millstream.inference.signature import DTYPES, TensorInput
from millstream.schemas.table import Lists, Table


@dataclass(frozen=True, slots=True)
class InvalidFeatures:
    """An event that does not fit the model's input."""

    row: int  # in the frame given
    error: str


@dataclass(frozen=True, slots=True)
class Features:
    """The events that fit, as tensors."""

    tensors: dict[str, Any]  # tensor -> an array [len(rows), *shape]; `Ragged` where the length varies
    rows: npt.NDArray[np.int64]  # index in the frame given, ascending
    unfit: list[InvalidFeatures]  # the rest, ascending


def to_tensors(table: Table, inputs: Sequence[TensorInput], *, allow_nan: bool) -> Features:
    """Turn a table of events into tensors, leaving out the events that don't fit, each with the reason."""
    problems: dict[int, str] = {}
    filled: dict[str, Any] = {
        entry.tensor: _fill(table, entry, problems, allow_nan=allow_nan) for entry in inputs if entry.max_length is None
    }
    if varying := [entry for entry in inputs if entry.max_length is not None and not entry.mask]:
        filled |= _fill_ragged(table, varying, problems, allow_nan=allow_nan)
    if not problems:
        return Features(filled, np.arange(len(table)), [])
    fits = np.ones(len(table), np.bool_)
    fits[list(problems)] = False
    rows = np.flatnonzero(fits)
    if len(filled) == len(inputs) and all(array is not None for array in filled.values()):
        return Features({name: array[rows] for name, array in filled.items()}, rows, _unfit(problems))
    # The rest may show more: a column with a null was not looked through for NaN, for instance. So do ragged inputs, which are
    # compared with one another.
    kept = to_tensors(table.take(rows), inputs, allow_nan=allow_nan)
    problems |= {int(rows[unfit.row]): unfit.error for unfit in kept.unfit}
    return Features(kept.tensors, rows[kept.rows], _unfit(problems))


def _unfit(problems: Mapping[int, str]) -> list[InvalidFeatures]:
    return [InvalidFeatures(row, problems[row]) for row in sorted(problems)]


def _fill(table: Table, entry: TensorInput, problems: dict[int, str], *, allow_nan: bool) -> npt.NDArray[Any] | None:
    """The tensor, [events, *shape]. What doesn't fit is added to `problems` by row; None where it can't be in an array."""
    if not entry.array:
        array = _fill_scalars(table, entry, problems)
    elif (lists := _lists_of(table, entry)) is not None:
        array = _fill_lists(lists, entry, problems)
    else:
        return _fill_array(table[entry.fields[0]], entry, problems, allow_nan=allow_nan)
    if array is not None and not allow_nan:
        _find_nan(array, entry, problems)
    return array


def _find_nan(array: npt.NDArray[Any], entry: TensorInput, problems: dict[int, str]) -> None:
    """Add the events with NaN or infinity to `problems`."""
    if array.dtype.kind != "f" or (is_finite := np.isfinite(array)).all():
        return
    is_finite = is_finite.reshape(len(array), -1)
    for row in np.flatnonzero(~is_finite.all(axis=1)).tolist():
        at = int(is_finite[row].argmin())
        where = f"`{entry.fields[0]}`[{at}]" if entry.array else f"`{entry.fields[at]}`"
        problems.setdefault(row, f"field {where} is NaN or infinite, which tensor `{entry.tensor}` does not take")


def _fill_scalars(table: Table, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any] | None:
    numpy_type, polars_type = DTYPES[entry.dtype]
    array = np.empty((len(table), len(entry.fields)), numpy_type)
    lacking = np.zeros(
        len(table), np.bool_
    )  # events with a problem: only one message each, since a thousand fields may be null
    for column, field in enumerate(entry.fields):
        series = table[field]
        cast = series if series.dtype == polars_type else series.cast(polars_type, strict=False)
        if cast.null_count():
            null = cast.is_null().to_numpy()
            for row in np.flatnonzero(null & ~lacking).tolist():
                found = "null" if series[row] is None else f"{series[row]}, out of range for {entry.dtype}"
                problems.setdefault(row, f"field `{field}` is {found}, but tensor `{entry.tensor}` needs a value")
            lacking |= null
        else:
            array[:, column] = cast.to_numpy()
    return None if lacking.any() else array.reshape(len(table), *entry.shape)


def _lists_of(table: Table, entry: TensorInput) -> Lists | None:
    """The lists of the entry's field, where their items are of the tensor's type, or come to be by a cast that any may have."""
    lists = table.column(entry.fields[0]).lists
    wanted = np.dtype(DTYPES[entry.dtype][0])
    if lists is None or not (lists.items.dtype == wanted or lists.items.dtype.kind == wanted.kind == "f"):
        return None
    with np.errstate(over="ignore"):  # infinity, which is told
        return Lists(lists.items.astype(wanted, copy=False), lists.lengths)


def _fill_lists(lists: Lists, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any]:
    """The tensor of lists; zeros where one has another length, which is added to `problems`."""
    shape = len(lists.lengths), *entry.shape
    is_right = lists.lengths == entry.width
    if is_right.all():
        return lists.items.reshape(shape)
    wrong = np.flatnonzero(~is_right)
    for row, length in zip(wrong.tolist(), lists.lengths[wrong].tolist(), strict=True):
        problems.setdefault(row, _other_length(entry, f"{length} values"))
    # Copied by runs of the right length: they are long, since few are wrong.
    ends = lists.lengths.cumsum()
    zeros, done = np.zeros(entry.width, lists.items.dtype), 0
    parts: list[npt.NDArray[Any]] = []
    for start, stop in zip((ends - lists.lengths)[wrong].tolist(), ends[wrong].tolist(), strict=True):
        parts += lists.items[done:start], zeros
        done = stop
    return np.concatenate([*parts, lists.items[done:]]).reshape(shape)


def _other_length(entry: TensorInput, found: str) -> str:
    return f"field `{entry.fields[0]}` has {found}, but tensor `{entry.tensor}` needs {entry.width} values"


def _fill_array(
    series: pl.Series, entry: TensorInput, problems: dict[int, str], *, allow_nan: bool
) -> npt.NDArray[Any] | None:
    whole = _whole_array(series, entry, DTYPES[entry.dtype][1])
    if whole is not None:
        array, is_finite = whole
        if not is_finite and not allow_nan:
            _find_nan(array, entry, problems)
        return array
    lengths = series.list.len()
    is_wrong = (lengths != entry.width).fill_null(value=True).to_numpy()
    if is_wrong.any():
        for row in np.flatnonzero(is_wrong).tolist():
            found = "null" if lengths[row] is None else f"{lengths[row]} values"
            problems.setdefault(row, _other_length(entry, found))
        # What is wrong with the others is told too, so that nobody has to look through the rest of the frame once more.
        rest = np.flatnonzero(~is_wrong)
        others: dict[int, str] = {}
        _fill_array(series.filter(pl.Series(~is_wrong)), entry, others, allow_nan=allow_nan)
        for row, why in others.items():
            problems.setdefault(int(rest[row]), why)
        return None
    items = _items(series, entry, offsets_of(np.full(len(series), entry.width)), problems)
    if items is None:
        return None
    array = items.reshape(len(series), *entry.shape)
    if not allow_nan:
        _find_nan(array, entry, problems)
    return array


def _whole_array(
    series: pl.Series, entry: TensorInput, polars_type: pl.DataType
) -> tuple[npt.NDArray[Any], bool] | None:
    """The tensor, and whether all of it is finite, in a tenth of the time. None if a length is another, or something null."""
    if not polars_type.is_float() or series.null_count() or not len(series):
        return None
    try:
        array = series.cast(pl.Array(polars_type, entry.width)).to_numpy()
    except pl.exceptions.PolarsError:  # a length is another
        return None
    is_finite = bool(np.isfinite(array).all())
    if not is_finite and series.explode().null_count():  # a null in an array is NaN here
        return None
    return array.reshape(len(series), *entry.shape), is_finite


def _fill_ragged(
    table: Table, inputs: Sequence[TensorInput], problems: dict[int, str], *, allow_nan: bool
) -> dict[str, Ragged]:
    """The variable-length tensors. If an event doesn't fit, `problems` gets its reason by row, and tensors are missing."""
    first, *others = inputs
    lengths = _lengths(table, first, problems)
    for entry in others:
        for row in np.flatnonzero(_lengths(table, entry, problems) != lengths).tolist():
            problems.setdefault(
                row,
                f"fields `{first.fields[0]}` and `{entry.fields[0]}` differ in length, but the model needs equal lengths",
            )
    if problems:
        return {}
    offsets = offsets_of(lengths)
    tensors: dict[str, Ragged] = {}
    for entry in inputs:
        items = _items(table[entry.fields[0]], entry, offsets, problems)
        if items is not None and (allow_nan or _items_finite(items, entry, offsets, problems)):
            tensors[entry.tensor] = Ragged(items, offsets)
    return tensors


def _lengths(table: Table, entry: TensorInput, problems: dict[int, str]) -> Ints:
    field, series = entry.fields[0], table[entry.fields[0]]
    lengths = series.list.len().cast(pl.Int64).fill_null(-1).to_numpy()
    assert entry.max_length is not None
    for row in np.flatnonzero((lengths < 0) | (lengths > entry.max_length)).tolist():
        found = "is null" if lengths[row] < 0 else f"has {lengths[row]} values"
        problems.setdefault(
            row, f"field `{field}` {found}, but tensor `{entry.tensor}` takes up to {entry.max_length} values"
        )
    return lengths


def _items(series: pl.Series, entry: TensorInput, offsets: Ints, problems: dict[int, str]) -> npt.NDArray[Any] | None:
    """The items of all lists (none null), end to end. If an item doesn't fit: None, and `problems` gets the reasons by row."""
    polars_type = DTYPES[entry.dtype][1]
    filled = np.diff(offsets) > 0
    series = series if filled.all() else series.filter(pl.Series(filled))  # `explode` turns an empty list into a null
    flat = series.explode() if len(series) else pl.Series(dtype=polars_type)
    cast = flat if flat.dtype == polars_type else flat.cast(polars_type, strict=False)
    if cast.null_count():
        for row, at in _first_of_each_event(cast.is_null().to_numpy(), offsets):
            problems.setdefault(
                row,
                f"field `{entry.fields[0]}`[{at}] is null or out of range for {entry.dtype}, which tensor `{entry.tensor}` needs",
            )
        return None
    return cast.to_numpy()


def _items_finite(items: npt.NDArray[Any], entry: TensorInput, offsets: Ints, problems: dict[int, str]) -> bool:
    """Like `_find_nan`, for ragged items; whether there are none."""
    if items.dtype.kind != "f" or (finite := np.isfinite(items)).all():
        return True
    for row, at in _first_of_each_event(~finite, offsets):
        problems.setdefault(
            row, f"field `{entry.fields[0]}`[{at}] is NaN or infinite, which tensor `{entry.tensor}` does not take"
        )
    return False


def _first_of_each_event(found: npt.NDArray[np.bool_], offsets: Ints) -> Iterator[tuple[int, int]]:
    """For each event with a flagged item: its row, and the index of the first one in the event. `found`: [items]."""
    filled = np.flatnonzero(np.diff(offsets))
    for row in filled[np.logical_or.reduceat(found, offsets[filled])].tolist():
        yield row, int(found[offsets[row] : offsets[row + 1]].argmax())
