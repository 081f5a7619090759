"""Fills the model's input tensors from event fields, and rejects events that don't fit, with the reason."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from millstream.inference.conversions import PLAIN, Conversion, Converter
from millstream.inference.fallbacks import Fields, Read
from millstream.inference.ragged import Ragged, offsets_of
from millstream.inference.replaced import Replaced, Replacements, Source, missing_in, unknown_in
from millstream.inference.signature import DTYPES, TensorInput
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn, StringColumn
from millstream.schemas.mixed import is_of_other_type
from millstream.schemas.packed import Texts, spans
from millstream.schemas.table import Table
from millstream.schemas.wording import shown


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
    replaced: Replacements  # in all events of the table


_Unknown = dict[Source, Replaced]
"""What vocabularies replaced, see `unknown_in`."""


class _Filled(NamedTuple):
    """A tensor, or its items end to end."""

    array: npt.NDArray[Any]
    missing: Mask | None = None  # as many: true for an element in place of a null; None: there are none
    is_finite: bool = False  # whether no element is NaN or infinite, as far as the reader of the events found that


def to_tensors(
    table: Table, inputs: Sequence[TensorInput], *, allow_nan: bool, event_times: Ints | None = None
) -> Features:
    """Turn a table of events into tensors. Leave out the events that don't fit, each with the reason.

    Args:
        table: the events' fields.
        inputs: the tensors.
        allow_nan: whether a field may be NaN or infinite.
        event_times: the time of each event, in ms since the epoch; needed only if an input has its age.
    """
    return fitting(*fill_tensors(Fields(table), inputs, allow_nan=allow_nan, event_times=event_times))


def fitting(filled: dict[str, Any], problems: Mapping[int, str], replaced: Replacements) -> Features:
    """The events without a problem. See `fill_tensors`."""
    events = replaced.events
    if not problems:
        return Features(filled, np.arange(events), [], replaced)
    fits = np.ones(events, np.bool_)
    fits[list(problems)] = False
    rows = np.flatnonzero(fits)
    unfit = [InvalidFeatures(row, problems[row]) for row in sorted(problems)]
    return Features({name: array[rows] for name, array in filled.items()}, rows, unfit, replaced)


def fill_tensors(
    fields: Fields, inputs: Sequence[TensorInput], *, allow_nan: bool, event_times: Ints | None = None
) -> tuple[dict[str, Any], dict[int, str], Replacements]:
    """The tensors of all events, the first problem of each event that doesn't fit, and what was replaced.

    The tensors may hold anything in the rows of such events. `fields`: of the events. Other arguments: see `to_tensors`.
    """
    problems: dict[int, str] = {}
    unknown: _Unknown = {}
    filled: dict[str, Any] = {}
    for entry in inputs:
        if entry.max_length is None:
            fill = _fill_array if entry.array else _fill_scalars
            made = fill(fields, entry, problems, unknown, event_times)
            if not allow_nan and not made.is_finite:
                _find_nan(fields, made, entry, problems)
            filled[entry.tensor] = made.array
    if varying := [entry for entry in inputs if entry.max_length is not None and entry.fields]:
        lists = _varying_lists(fields, varying, filled, [entry for entry in inputs if entry.token_types])
        filled |= _fill_ragged(fields, varying, lists, problems, unknown, event_times, allow_nan=allow_nan)
    return filled, problems, Replacements(len(fields.table), unknown | missing_in(fields, inputs))


def _find_nan(fields: Fields, filled: _Filled, entry: TensorInput, problems: dict[int, str]) -> None:
    """Add the events with NaN or infinity to `problems`."""
    array = filled.array
    if array.dtype.kind != "f" or (is_finite := np.isfinite(array)).all():
        return
    is_finite = is_finite.reshape(len(array), -1)
    if filled.missing is not None:
        is_finite = is_finite | filled.missing
    if not (rows := np.flatnonzero(~is_finite.all(axis=1)).tolist()):
        return
    reads = _reads(fields, entry)
    for row in rows:
        at = int(is_finite[row].argmin())
        own = reads[0 if entry.array else at]
        where = f"`{own.path(row)}`{f'[{at}]' if entry.array else ''}"
        found = _not_finite(own.column, row, at, entry)
        problems.setdefault(row, f"field {where} is {found}, which tensor `{entry.tensor}` does not take")


def _reads(fields: Fields, entry: TensorInput) -> list[Read]:
    """The values of each field."""
    return [fields.read(field, conversion.fallback) for field, conversion in entry.converted_fields]


def _not_finite(column: Column, row: int, at: int, entry: TensorInput) -> str:
    """What the field holds where the tensor has NaN or infinity. `at`: the place in a list, or of the field."""
    (found,) = column.take(np.array([row])).to_list()
    if isinstance(found, list):
        found = found[at] if at < len(found) else None  # None: the padding behind it
    if isinstance(found, str):  # a conversion reads it, and none takes a text of NaN or infinity
        converter = entry.conversions[0 if entry.array else at].converter
        return f"{_found(found, converter)}, too large for {entry.dtype}"
    too_large = isinstance(found, int | float) and math.isfinite(found)
    return f"{found}, too large for {entry.dtype}" if too_large else "NaN or infinite"


def _fill_scalars(
    fields: Fields, entry: TensorInput, problems: dict[int, str], unknown: _Unknown, event_times: Ints | None
) -> _Filled:
    """The tensor, [events, *shape]."""
    array = np.empty((len(fields.table), len(entry.fields)), DTYPES[entry.dtype])
    missing: Mask | None = None
    # Rows that have a problem already: they get only one message, because a thousand fields may be null.
    lacking = np.zeros(len(fields.table), np.bool_)
    for place, (field, conversion) in enumerate(entry.converted_fields):
        # Few fields have a fallback, and few events a problem: the others need no `Read`, which takes longer.
        column = given = (
            fields.table[field] if conversion.fallback is None else fields.read(field, conversion.fallback).column
        )
        if conversion.converter is not None:
            column, wrong, is_unknown = conversion.converter.convert(given, lambda: _known(event_times))
            _note_unknown(field, conversion, given, is_unknown, unknown)
            if wrong is not None:
                values = fields.read(field, conversion.fallback)
                _report_wrong(values, wrong & ~lacking, conversion.converter, entry.tensor, problems)
                lacking |= wrong
        array[:, place], unfit = _cast(column, entry.dtype)
        if conversion.missing is not None and column.valid is not None:
            missing = np.zeros(array.shape, np.bool_) if missing is None else missing
            missing[:, place] = ~column.valid
            array[~column.valid, place] = conversion.missing
            unfit = None if unfit is None else unfit & column.valid
        if unfit is None:
            continue
        if len(rows := np.flatnonzero(unfit & ~lacking)):
            _report_unfit(fields.read(field, conversion.fallback), column, rows, entry, problems)
        lacking |= unfit
    return _Filled(array.reshape(len(fields.table), *entry.shape), missing)


def _report_unfit(given: Read, column: Column, rows: Ints, entry: TensorInput, problems: dict[int, str]) -> None:
    """Add the events, `rows`, whose value is null, or none that the tensor can hold. `column`: the converted values."""
    for row, value in zip(rows.tolist(), column.take(rows).to_list(), strict=True):
        found = given.absent(row) if value is None else f"{value}, out of range for {entry.dtype}"
        problems.setdefault(row, f"field `{given.path(row)}` is {found}, but tensor `{entry.tensor}` needs a value")


def _note_unknown(
    field: str, conversion: Conversion, values: Column, is_unknown: Mask | None, unknown: _Unknown
) -> None:
    """Add the values that a vocabulary lacks to `unknown`. `values`: before the conversion."""
    if is_unknown is not None:
        unknown[Source(field, "unknown", conversion.fallback)] = unknown_in(values, is_unknown)


def _known(event_times: Ints | None) -> Ints:
    assert event_times is not None, "an age needs the events' times"
    return event_times


def _report_wrong(given: Read, wrong: Mask, converter: Converter, tensor: str, problems: dict[int, str]) -> None:
    """Add the events whose value can't be converted to `problems`."""
    rows = np.flatnonzero(wrong)
    for row, value in zip(rows.tolist(), given.column.take(rows).to_list(), strict=True):
        found = _found(value, converter)
        problems.setdefault(
            row, f"field `{given.path(row)}` is {found}, but tensor `{tensor}` needs {converter.expected}"
        )


def _found(value: object, converter: Converter | None) -> str:
    """The value in words. Where an event may have a text or a number, both are read as texts: that of a number has no quotes."""
    reads_both = converter is not None and converter.leaf in ("mixed", "scalar")
    return value if reads_both and isinstance(value, str) and is_of_other_type(value) else shown(value)


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


def _fill_array(
    fields: Fields, entry: TensorInput, problems: dict[int, str], unknown: _Unknown, event_times: Ints | None
) -> _Filled:
    """The tensor, [events, *shape]; anything if a list has the wrong length."""
    given = _lists(fields, entry)
    lists = given.lists
    is_wrong = _has_wrong_length(lists, entry)
    wrong = np.flatnonzero(is_wrong)
    for row, length in _at(wrong, lists):
        needs = f"up to {entry.width}" if entry.pads else f"{entry.width}"
        has = _length(length, given, row)
        problems.setdefault(row, f"field `{given.path(row)}` {has}, but tensor `{entry.tensor}` needs {needs} values")
    items = _items(given, entry, problems, unknown, event_times)
    if entry.pads or entry.conversions:
        return _padded(items, lists, entry, is_wrong)
    array = _with_zeros(items.array, lists.lengths, wrong, entry.width) if len(wrong) else items.array
    return _Filled(array.reshape(len(lists), *entry.shape), is_finite=items.is_finite)


def _has_wrong_length(lists: ListColumn, entry: TensorInput) -> Mask:
    """Which lists don't fill a tensor of fixed length."""
    wrong: Mask = lists.lengths > entry.width if entry.pads else lists.lengths != entry.width
    if lists.valid is None:
        return wrong
    return wrong | ~lists.valid if _conversion(entry).missing is None else wrong & lists.valid


def _padded(items: _Filled, lists: ListColumn, entry: TensorInput, is_wrong: Mask) -> _Filled:
    """The tensor with the padding behind short lists. A null is a list of missing values."""
    is_item = np.arange(entry.width) < np.where(is_wrong, 0, lists.lengths)[:, None]
    kept = np.repeat(~is_wrong, lists.lengths)
    array = np.full(is_item.shape, entry.pad, items.array.dtype)
    array[is_item] = items.array[kept]
    is_missing = np.zeros(is_item.shape, np.bool_)
    if items.missing is not None:
        is_missing[is_item] = items.missing[kept]
    if lists.valid is not None and (missing := _conversion(entry).missing) is not None:
        array[~lists.valid] = missing
        is_missing[~lists.valid] = True
    return _Filled(array.reshape(len(lists), *entry.shape), is_missing)


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
    fields: Fields,
    inputs: Sequence[TensorInput],
    given: Sequence[Read],
    problems: dict[int, str],
    unknown: _Unknown,
    event_times: Ints | None,
    *,
    allow_nan: bool,
) -> dict[str, Ragged]:
    """The variable-length tensors. `given`: the lists of each."""
    first, lengths = inputs[0], given[0].lists.lengths
    for entry, own in zip(inputs, given, strict=True):
        assert entry.max_length is not None
        lists = own.lists
        # With a value for nulls, a null list is an empty one.
        is_null = False if lists.valid is None or _conversion(entry).missing is not None else ~lists.valid
        wrong = np.flatnonzero(is_null | (lists.lengths > entry.max_length))
        sources = _reads(fields, entry) if len(wrong) else []
        for row, length in _at(wrong, lists):
            source = _null_one(sources, row)
            problems.setdefault(
                row,
                f"field `{source.path(row)}` {_length(length, source, row)}, but tensor `{entry.tensor}` "
                f"{_taken(entry, length)}",
            )
        for row in np.flatnonzero(lists.lengths != lengths).tolist():
            problems.setdefault(
                row,
                f"fields `{first.fields[0]}` and `{entry.fields[0]}` differ in length, but the model needs equal lengths",
            )
    tensors: dict[str, Ragged] = {}
    for entry, own in zip(inputs, given, strict=True):
        items = _items(own, entry, problems, unknown, event_times)
        tensor = Ragged.of_lengths(items.array, own.lists.lengths)
        if not allow_nan and not items.is_finite:
            _find_nan_items(own, tensor, items.missing, entry, problems)
        tensors[entry.tensor] = tensor
    return tensors


def _null_one(reads: Sequence[Read], row: int) -> Read:
    """The first of these that is null in this event; if none is, the first one."""
    masks = ((each, each.column.valid) for each in reads)
    return next((each for each, valid in masks if valid is not None and not valid[row]), reads[0])


def _varying_lists(
    fields: Fields, inputs: Sequence[TensorInput], filled: dict[str, Any], token_types: Sequence[TensorInput]
) -> list[Read]:
    """The lists that fill the inputs of variable length. Adds to `filled` the tensors with the types of their tokens."""
    every = []
    for entry in inputs:
        if entry.splitter is None:
            every.append(_lists(fields, entry))
            continue
        reads = _reads(fields, entry)
        lists, types = entry.splitter.split([each.column for each in reads])
        for of_types in token_types:
            filled[of_types.tensor] = Ragged.of_lengths(types().astype(DTYPES[of_types.dtype]), lists.lengths)
        every.append(reads[0]._replace(column=lists))
    return every


def _lists(fields: Fields, entry: TensorInput) -> Read:
    (given,) = _reads(fields, entry)
    return given._replace(column=_truncated(given.lists, entry.width)) if entry.truncates else given


def _conversion(entry: TensorInput) -> Conversion:
    """The conversion of an input with one array field."""
    return entry.conversions[0] if entry.conversions else PLAIN


def _truncated(lists: ListColumn, most: int) -> ListColumn:
    """The first items of each list."""
    lengths = np.minimum(lists.lengths, most)
    starts = lists.lengths.cumsum() - lists.lengths
    return ListColumn(lists.items.take(spans(starts, lengths)), lengths, lists.valid)


def _at(rows: Ints, lists: ListColumn) -> Iterator[tuple[int, int | None]]:
    """These rows, and the lengths of their lists (None for a null)."""
    lengths = NumberColumn(lists.lengths, lists.valid).take(rows).to_list()
    return zip(rows.tolist(), lengths, strict=True)


def _length(length: int | None, given: Read, row: int) -> str:
    """The length of a list, for messages; None: of a null."""
    return f"is {given.absent(row)}" if length is None else f"has {length} values"


def _taken(entry: TensorInput, length: int | None) -> str:
    """What an input of variable length takes in place of a list of this length, for messages; None: of a null."""
    if length is None:
        return "needs a list" if entry.splitter is None else "needs a text"
    return f"takes up to {entry.max_length} values"


def _items(
    given: Read, entry: TensorInput, problems: dict[int, str], unknown: _Unknown, event_times: Ints | None
) -> _Filled:
    """The items of all lists, end to end."""
    lists, conversion = given.lists, _conversion(entry)
    column = lists.items
    if conversion.converter is not None:
        column, wrong, is_unknown = conversion.converter.convert(
            column, lambda: np.repeat(_known(event_times), lists.lengths)
        )
        _note_unknown(given.field, conversion, lists.items, is_unknown, unknown)
        if wrong is not None:
            _report_wrong_items(given, wrong, entry, problems)
    items, unfit = _cast(column, entry.dtype)
    # A cast to fewer bits may make a number infinite.
    is_finite = isinstance(column, NumberColumn) and column.is_finite and items is column.values
    missing: Mask | None = None
    if conversion.missing is not None and column.valid is not None:
        missing = ~column.valid
        items, is_finite = np.where(missing, np.array(conversion.missing, items.dtype), items), False
        unfit = None if unfit is None else unfit & column.valid
    if unfit is not None:
        _report_unfit_items(given, column, unfit, entry, problems)
    return _Filled(items, missing, is_finite)


def _report_unfit_items(given: Read, column: Column, unfit: Mask, entry: TensorInput, problems: dict[int, str]) -> None:
    """Add the problem of each event with an item that is null, or that the tensor can't hold. `column`: the converted items."""
    offsets = offsets_of(given.lists.lengths)
    places = list(_first_of_each_event(unfit, offsets))
    values = column.take(np.array([offsets[row] + at for row, at in places], np.int64)).to_list()
    for (row, at), value in zip(places, values, strict=True):
        found = given.absent(row) if value is None else f"{value}, out of range for {entry.dtype}"
        problems.setdefault(
            row, f"field `{given.path(row)}`[{at}] is {found}, but tensor `{entry.tensor}` needs a value"
        )


def _report_wrong_items(given: Read, wrong: Mask, entry: TensorInput, problems: dict[int, str]) -> None:
    """Like `_report_wrong`, for the items of lists."""
    converter = _conversion(entry).converter
    assert converter is not None
    offsets = offsets_of(given.lists.lengths)
    places = list(_first_of_each_event(wrong, offsets))
    found = given.lists.items.take(np.array([offsets[row] + at for row, at in places], np.int64)).to_list()
    for (row, at), value in zip(places, found, strict=True):
        problems.setdefault(
            row,
            f"field `{given.path(row)}`[{at}] is {_found(value, converter)}, but tensor `{entry.tensor}` needs "
            f"{converter.expected}",
        )


def _find_nan_items(
    given: Read, tensor: Ragged, missing: Mask | None, entry: TensorInput, problems: dict[int, str]
) -> None:
    """Like `_find_nan`, for ragged items. `missing`: see `_Filled`."""
    if tensor.values.dtype.kind != "f" or (is_finite := np.isfinite(tensor.values)).all():
        return
    if missing is not None:
        is_finite |= missing
    for row, at in _first_of_each_event(~is_finite, tensor.offsets):
        found = _not_finite(given.lists, row, at, entry)
        problems.setdefault(
            row, f"field `{given.path(row)}`[{at}] is {found}, which tensor `{entry.tensor}` does not take"
        )


def _first_of_each_event(found: npt.NDArray[np.bool_], offsets: Ints) -> Iterator[tuple[int, int]]:
    """For each event with a flagged item: its row, and the index of its first flagged item in the event. `found`: [items]."""
    filled = np.flatnonzero(np.diff(offsets))
    for row in filled[np.logical_or.reduceat(found, offsets[filled])].tolist():
        yield row, int(found[offsets[row] : offsets[row + 1]].argmax())
