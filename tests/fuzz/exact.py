"""Buffers of exactly the size needed: under the address sanitizer each is apart, and it tells of a byte beyond one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.json.columns import ColumnReader
from millstream.schemas.packed import Numbers, Packed


def exact_packed(values: Sequence[bytes]) -> Packed:
    """The values in a buffer with nothing behind its end. A `bytes` object has a zero there."""
    joined = np.frombuffer(b"".join(values), np.uint8)
    lengths = np.array([len(value) for value in values], np.int64)
    return Packed(joined.copy(), lengths.cumsum() - lengths, lengths)


@dataclass(frozen=True, slots=True)
class _Apart:
    """What `_Filled` of `schemas.json.columns` is, each column in memory of its own."""

    nodes: npt.NDArray[Any]
    memory: npt.NDArray[np.uint8]
    for_yyjson: int
    columns: list[list[npt.NDArray[np.uint8]]]  # [3, nodes]
    counters: Numbers

    def part(self, which: int, index: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.columns[which][index], dtype, count)


class _ExactReader(ColumnReader):
    def _filled(self, values: Packed) -> Any:
        filled = super()._filled(values)
        capacity, room = self._most(len(values), int(values.lengths.sum()))
        sizes = self._widths * capacity
        sizes[0] += room
        columns = [[np.empty(size, np.uint8) for size in row] for row in sizes.tolist()]
        cells, lengths, valid = (np.array([part.ctypes.data for part in row]) for row in columns)
        filled.nodes["cells"], filled.nodes["lengths"] = cells, lengths
        filled.nodes["valid"] = np.where(self._has_valid, valid, 0)
        memory = np.empty(filled.for_yyjson, np.uint8)
        return _Apart(filled.nodes, memory, filled.for_yyjson, columns, filled.counters)


def exact_columns(reader: ColumnReader) -> ColumnReader:
    """The reader, filling such buffers."""
    reader.__class__ = _ExactReader
    return reader
