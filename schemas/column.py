"""Columns of decoded records: arrays of numbers, strings end to end, lists end to end, and records of columns."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.dtypes import NUMBERS, Dtype, ListOf, RecordOf
from millstream.schemas.mixed import text_of_value
from millstream.schemas.packed import Packed, Texts, spans

_FORMATS: dict[Dtype, str] = {
    "int32": "i",
    "int64": "q",
    "float32": "d",
    "float64": "d",
}  # format characters of the module `struct`


class Column(ABC):
    """The values of a field, one per record."""

    __slots__ = ()
    valid: Mask | None  # false for a null; None: no value is null

    @abstractmethod
    def __len__(self) -> int:
        """The number of values."""

    @abstractmethod
    def take(self, rows: Ints) -> "Column":
        """Copy the values of these rows, which may be in any order."""

    @abstractmethod
    def joined(self, others: Sequence[Any]) -> "Column":
        """These values, followed by those of other columns of the same type."""

    @abstractmethod
    def _objects(self) -> list[Any]:
        """The values as Python objects; any value for a null."""

    def to_list(self) -> list[Any]:
        """The values as Python objects; None for a null."""
        objects = self._objects()
        if self.valid is None:
            return objects
        return [value if valid else None for value, valid in zip(objects, self.valid.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class NumberColumn(Column):
    """Numbers or booleans; a null may have any value."""

    values: npt.NDArray[Any]
    valid: Mask | None = None
    is_finite: bool = False  # whether all values are known to be neither NaN nor infinite

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints) -> Column:
        """See Column."""
        return NumberColumn(self.values[rows], _taken(self.valid, rows), self.is_finite)

    def joined(self, others: "Sequence[NumberColumn]") -> Column:
        """See Column."""
        parts = [self, *others]
        values, is_finite = np.concatenate([part.values for part in parts]), all(part.is_finite for part in parts)
        return NumberColumn(values, _joined_valid(parts), is_finite)

    def _objects(self) -> list[Any]:
        return cast("list[Any]", self.values.tolist())


@dataclass(frozen=True, slots=True)
class StringColumn(Column):
    """Texts or byte strings; a null is empty."""

    packed: Packed
    is_text: bool  # True: texts in valid UTF-8; False: byte strings
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.packed)

    def take(self, rows: Ints) -> Column:
        """See Column."""
        return StringColumn(self.packed.reordered(rows), self.is_text, _taken(self.valid, rows))

    def joined(self, others: "Sequence[StringColumn]") -> Column:
        """See Column."""
        parts = [self, *others]
        return StringColumn(Packed.concat([part.packed for part in parts]), self.is_text, _joined_valid(parts))

    def _objects(self) -> list[Any]:
        return list(Texts(self.packed) if self.is_text else self.packed)


@dataclass(frozen=True, slots=True)
class ListColumn(Column):
    """Lists; a null has no items."""

    items: Column  # the items of all lists, end to end
    lengths: Ints
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Ints) -> Column:
        """See Column."""
        starts, lengths = (self.lengths.cumsum() - self.lengths)[rows], self.lengths[rows]
        return ListColumn(self.items.take(spans(starts, lengths)), lengths, _taken(self.valid, rows))

    def joined(self, others: "Sequence[ListColumn]") -> Column:
        """See Column."""
        parts = [self, *others]
        items = self.items.joined([part.items for part in others])
        return ListColumn(items, np.concatenate([part.lengths for part in parts]), _joined_valid(parts))

    def _objects(self) -> list[Any]:
        items, ends = self.items.to_list(), self.lengths.cumsum()
        return [items[start:end] for start, end in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class RecordColumn(Column):
    """Records; the fields of a null may have any values."""

    fields: dict[str, Column]
    count: int  # number of records (without fields, no column would tell it)
    valid: Mask | None = None

    def __len__(self) -> int:
        return self.count

    def take(self, rows: Ints) -> Column:
        """See Column."""
        fields = {name: column.take(rows) for name, column in self.fields.items()}
        return RecordColumn(fields, len(rows), _taken(self.valid, rows))

    def joined(self, others: "Sequence[RecordColumn]") -> Column:
        """See Column."""
        parts = [self, *others]
        fields = {name: column.joined([part.fields[name] for part in others]) for name, column in self.fields.items()}
        return RecordColumn(fields, sum(map(len, parts)), _joined_valid(parts))

    def _objects(self) -> list[Any]:
        if not self.fields:
            return [{}] * self.count
        rows = zip(*(column.to_list() for column in self.fields.values()), strict=True)
        return [dict(zip(self.fields, row, strict=True)) for row in rows]


def column_of(values: Sequence[Any], dtype: Dtype) -> Column:
    """A column of Python values; None is a null.

    Raises TypeError, ValueError or OverflowError if a value doesn't have the type. As in Python, a boolean is a number, and an
    int is accepted for a float.
    """
    if dtype in _FORMATS:
        return _numbers(values, dtype)
    valid, there = _without_nulls(values)
    if isinstance(dtype, RecordOf):
        members = {name: [None if value is None else value[name] for value in values] for name, _ in dtype.fields}
        return RecordColumn({name: column_of(members[name], of) for name, of in dtype.fields}, len(values), valid)
    if dtype == "boolean":
        _require(bool, there)
        return NumberColumn(spread(np.array(there, np.bool_), valid), valid)
    if isinstance(dtype, ListOf):
        _require(list, there)
        items: list[Any] = []
        for value in there:  # takes a third of the time of `chain`
            items += value
        return ListColumn(column_of(items, dtype.items), spread(_lengths(there), valid), valid)
    if dtype == "mixed":
        there = list(map(text_of_value, there))
    is_text = dtype in ("string", "mixed")
    strings = Texts.of(there).utf8 if is_text else Packed.joined(b"".join(there), _lengths(there))
    lengths = spread(strings.lengths, valid)
    return StringColumn(Packed(strings.buffer, lengths.cumsum() - lengths, lengths), is_text, valid)


def _numbers(values: Sequence[Any], dtype: Dtype) -> NumberColumn:
    try:
        return NumberColumn(_array(values, dtype))
    except TypeError:
        valid, there = _without_nulls(values)
        if valid is None:
            raise
        return NumberColumn(spread(_array(there, dtype), valid), valid)


def _array(numbers: Sequence[Any], dtype: Dtype) -> npt.NDArray[Any]:
    """The numbers as a numpy array. `struct` rejects a text, and a fraction for an int; numpy would convert them."""
    try:
        packed = struct.pack(f"{len(numbers)}{_FORMATS[dtype]}", *numbers)
    except struct.error as error:
        raise TypeError(f"expected {dtype}: {error}") from None
    with np.errstate(over="ignore"):  # a double may be infinite as a float
        return np.frombuffer(packed, _FORMATS[dtype]).astype(NUMBERS[dtype])


def _without_nulls(values: Sequence[Any]) -> tuple[Mask | None, Sequence[Any]]:
    """Which values are not null (None: all), and these values."""
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return (None, values) if valid.all() else (valid, [value for value in values if value is not None])


def _require(kind: type, values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")


def _lengths(values: Sequence[Any]) -> Ints:
    return np.fromiter(map(len, values), np.int64, len(values))


def spread(values: npt.NDArray[Any], valid: Mask | None) -> npt.NDArray[Any]:
    """The values at the valid positions, zeros elsewhere."""
    if valid is None:
        return values
    every = np.zeros(len(valid), values.dtype)
    every[valid] = values
    return every


def _taken(valid: Mask | None, rows: Ints) -> Mask | None:
    return None if valid is None else valid[rows]


def _joined_valid(parts: Sequence[Column]) -> Mask | None:
    if all(part.valid is None for part in parts):
        return None
    return np.concatenate([np.ones(len(part), np.bool_) if part.valid is None else part.valid for part in parts])
