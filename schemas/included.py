"""Encodes the event's fields that predictions include (`output.include`), a whole micro-batch at a time."""

from itertools import pairwise
from typing import Any, Final

import numpy as np

from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import bytes_pieces, long_pieces, text
from millstream.schemas.column import Column, ListColumn, NumberColumn, StringColumn
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.json_floats import json_floats
from millstream.schemas.packed import Packed
from millstream.schemas.table import Table

# The branches of a value's union in prediction-v2, by their place.
_NULL, _BOOLEAN, _LONG, _DOUBLE, _STRING, _ARRAY = map(varint, range(6))
_BRANCHES: Final = {"b": _BOOLEAN, "i": _LONG, "f": _DOUBLE}  # by numpy's kind
_SINGLE: Final = ("boolean", "int32", "int64", "float32", "float64", "string", "mixed")


def can_be_included(dtype: Dtype) -> bool:
    """Whether a prediction can hold a field of this type: a number, a boolean, a text, or a list of these."""
    return (dtype.items if isinstance(dtype, ListOf) else dtype) in _SINGLE


def included_pieces(event: Table) -> list[Piece]:
    """The pieces of the map `event` of prediction-v2."""
    # An Avro map is a block of entries with its count before it, then an empty block.
    pieces: list[Piece] = [varint(len(event.columns))]
    for name, column in event.columns.items():
        pieces += [text(name), *_union_pieces(column)]
    return [*pieces, varint(0)]


def _union_pieces(column: Column) -> list[Piece]:
    """The values, each after its branch of the union; a null is only its branch."""
    branch = _branch(column)
    if column.valid is None or column.valid.all():
        return [branch, *_value_pieces(column)]
    branches = np.where(column.valid, branch[0], _NULL[0]).astype(np.uint8).reshape(-1, 1)
    present = np.flatnonzero(column.valid)
    values = interleave(_value_pieces(column.take(present)), len(present))
    lengths = np.zeros(len(column), np.int64)
    lengths[present] = values.lengths
    return [branches, _end_to_end(values, lengths)]


def _branch(column: Column) -> bytes:
    match column:
        case NumberColumn():
            return _BRANCHES[column.values.dtype.kind]
        case StringColumn():
            return _STRING
        case ListColumn():
            return _ARRAY
    raise TypeError(f"a prediction can't include a {type(column).__name__}")  # see `can_be_included`


def _value_pieces(column: Column) -> list[Piece]:
    """The values without their branches. No value is null."""
    match column:
        case NumberColumn(values) if values.dtype.kind == "i":
            return long_pieces(values.astype(np.int64).reshape(-1, 1))
        case NumberColumn(values) if values.dtype.kind == "b":
            return [values.astype(np.uint8).reshape(-1, 1)]
        case NumberColumn(values):
            return [values.astype("<f8").view(np.uint8).reshape(-1, 8)]
        case StringColumn(packed):
            return bytes_pieces(packed)
        case ListColumn(items, lengths):
            return _array_pieces(items, lengths)
    raise TypeError(f"a prediction can't include a {type(column).__name__}")


def _array_pieces(items: Column, lengths: Any) -> list[Piece]:
    """An Avro array is laid out like a map: count, items, then an empty block. An empty array is only the empty block."""
    values = interleave(_union_pieces(items), len(items))
    ends = np.concatenate([[0], values.lengths.cumsum()])  # of each item, in bytes
    of_lists = np.diff(ends[np.concatenate([[0], lengths.cumsum()])])
    filled = (lengths > 0).astype(np.int64)
    closing = Packed.joined(bytes(int(filled.sum())), filled)
    return [*long_pieces(lengths.reshape(-1, 1)), _end_to_end(values, of_lists), closing]


def _end_to_end(values: Packed, lengths: Any) -> Packed:
    """The bytes of the values, cut into strings of other lengths."""
    return Packed(np.frombuffer(values.whole, np.uint8), lengths.cumsum() - lengths, lengths)


def json_values(column: Column) -> list[Any]:
    """The values for JSON; None for a null."""
    match column:
        case NumberColumn(values, valid):
            column = NumberColumn(json_floats(values), valid)
        case ListColumn(items, lengths, valid):
            flat, ends = json_values(items), lengths.cumsum().tolist()
            lists = [flat[start:end] for start, end in pairwise([0, *ends])]
            return lists if valid is None else [one if there else None for one, there in zip(lists, valid, strict=True)]
    return column.to_list()
