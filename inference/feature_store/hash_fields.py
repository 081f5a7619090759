"""Reads the fields of Redis hashes into columns. All values of a hash are bytes, so the wanted type says how to read them.

A number or a boolean is written as in JSON, a text as it is, a list as a JSON array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import msgspec
import numpy as np

from millstream.inference.casts import Cast, EventType
from millstream.inference.conversions import as_numbers
from millstream.inference.errors import FeatureStoreError
from millstream.schemas.column import Column, NumberColumn, StringColumn, column_of
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.packed import Packed
from millstream.schemas.paths import Every, parse_path
from millstream.schemas.wording import shown

_TEXTS = ("string", "scalar", "mixed")
_CASTS: dict[str, EventType] = {"float64": "number", "int64": "int", "boolean": "boolean"}
_LISTS: dict[str, Any] = {
    "float64": list[float | None],
    "int64": list[int | None],
    "boolean": list[bool | None],
    "string": list[str | None],
    "scalar": list[str | int | None],
    "mixed": list[str | int | float | bool | None],
}
"""Type of a list's items -> type of the list, for msgspec."""
_DTYPES = {"scalar": "string"}
_LARGEST = 2**63


class ReadField(NamedTuple):
    """A field of some entries."""

    column: Column
    wrong: Mapping[int, str]  # row of an entry whose value can't be read -> why


@dataclass(frozen=True, slots=True)
class HashField:
    """A wanted field."""

    path: str  # as config.yaml has it
    name: str  # in the hash
    leaf: str  # the type of its value, or of its items (see `Reader.leaf`)
    is_list: bool

    @classmethod
    def of(cls, path: str, leaf: str, place: str) -> Self:
        """The field at a path: a name, with `[]` behind it for a list. Raises FeatureStoreError for longer paths."""
        steps = parse_path(path).steps
        if len(steps) > 2 or (len(steps) == 2 and steps[1] is not Every.ITEM):
            raise FeatureStoreError(
                f"{place}: expected the name of a hash's field, found the path `{path}`: a hash has no fields within fields. "
                f'Write `["{path}"]` if that is the name of the field, or `value: json` if the values are JSON objects.'
            )
        return cls(path, str(steps[0]), leaf, len(steps) == 2)

    @property
    def dtype(self) -> Dtype:
        """The type of the column."""
        dtype = _DTYPES.get(self.leaf, self.leaf)
        return ListOf(dtype) if self.is_list else dtype

    def read(self, values: Sequence[bytes | None]) -> ReadField:
        """The column of these values. None is a null."""
        if self.is_list:
            return self._lists(values)
        if self.leaf in _TEXTS:
            texts = _as_texts(values)
            wrong = {row: self._not_utf8() for row in _not_utf8(values)}
            if wrong:
                return ReadField(
                    self.read([None if row in wrong else each for row, each in enumerate(values)])[0], wrong
                )
            return ReadField(texts, {})
        column, rows = _numbers(values, self.leaf)
        expected = Cast("text", _CASTS[self.leaf]).expected
        return ReadField(column, {row: self._unlike(values[row], expected) for row in rows})

    def _lists(self, values: Sequence[bytes | None]) -> ReadField:
        wrong: dict[int, str] = {}
        lists: list[list[Any] | None] = []
        kind = _LISTS[self.leaf]
        for row, value in enumerate(values):
            items: list[Any] | None = None
            if value is not None:
                try:
                    items = msgspec.json.decode(value, type=kind)
                    if self.leaf == "int64" and any(not -_LARGEST <= (each or 0) < _LARGEST for each in items or ()):
                        raise msgspec.ValidationError
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    items, wrong[row] = None, self._unlike(value, f"a JSON array of {self.leaf}")
            lists.append(list(map(_text, items)) if items is not None and self.leaf == "scalar" else items)
        return ReadField(column_of(lists, self.dtype), wrong)

    def _unlike(self, value: bytes | None, expected: str) -> str:
        found = shown((value or b"")[:100].decode(errors="replace"))
        return f"field `{self.path}`: expected {expected}, found {found}"

    def _not_utf8(self) -> str:
        return f"field `{self.path}`: expected text in UTF-8, found other bytes"


def read_fields(
    fields: Sequence[HashField], values: Sequence[Sequence[bytes | None]]
) -> tuple[dict[str, Column], dict[int, str]]:
    """The columns of several fields by their paths, and row -> why not for the first wrong value of an entry.

    Args:
        fields: the fields.
        values: of each field, the value of each entry.
    """
    columns: dict[str, Column] = {}
    wrong: dict[int, str] = {}
    for leaf in _CASTS:
        together = [place for place, field in enumerate(fields) if field.leaf == leaf and not field.is_list]
        if len(together) > 1:  # one conversion for all of them: each takes 20 µs, however few values there are
            column, rows = _numbers([value for place in together for value in values[place]], leaf)
            if not rows:
                parts = _cut(column, len(together))
                columns |= {fields[place].path: part for place, part in zip(together, parts, strict=True)}
    for field, of_field in zip(fields, values, strict=True):
        if field.path not in columns:
            columns[field.path], bad = field.read(of_field)
            wrong = {**bad, **wrong}
    return columns, wrong


def _cut(column: NumberColumn, count: int) -> list[NumberColumn]:
    """So many columns of the same length that lie end to end in this one."""
    values = column.values.reshape(count, -1)
    masks = [None] * count if column.valid is None else column.valid.reshape(count, -1)
    return [NumberColumn(part, mask) for part, mask in zip(values, masks, strict=True)]


def _numbers(values: Sequence[bytes | None], leaf: str) -> tuple[NumberColumn, Sequence[int]]:
    """The numbers or booleans, and the rows of values that are none."""
    column, wrong, _ = Cast("text", _CASTS[leaf]).convert(_as_texts(values), _no_times)
    return as_numbers(column), () if wrong is None else np.flatnonzero(wrong).tolist()


def _as_texts(values: Sequence[bytes | None]) -> StringColumn:
    if None not in values:
        return StringColumn(Packed.of(cast("Sequence[bytes]", values)), True)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return StringColumn(Packed.of([value or b"" for value in values]), True, valid)


def _text(item: object) -> str | None:
    return None if item is None else str(item)


def _not_utf8(values: Sequence[bytes | None]) -> list[int]:
    """The rows of values that are no text."""
    if b"".join(filter(None, values)).isascii():
        return []
    rows = []
    for row, value in enumerate(values):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            rows.append(row)
    return rows


def _no_times() -> Any:
    raise AssertionError("a cast needs no times")
