"""Buffers of exactly the size needed: under the address sanitizer each is apart, and it tells of a byte beyond one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints
from millstream.schemas.column_buffers import ColumnBuffers
from millstream.schemas.packed import Chained, Packed


def exact_packed(values: Sequence[bytes]) -> Packed:
    """The values in a buffer with nothing behind its end. A `bytes` object has a zero there."""
    joined = np.frombuffer(b"".join(values), np.uint8)
    lengths = np.array([len(value) for value in values], np.int64)
    return Packed(joined.copy(), lengths.cumsum() - lengths, lengths)


def exact_chained(values: Sequence[bytes]) -> Packed:
    """The values in two such buffers, as those of two polls; one value has one buffer."""
    if len(values) < 2:
        return exact_packed(values)
    middle = len(values) // 2
    return Chained([exact_packed(values[:middle]), exact_packed(values[middle:])])


@dataclass(frozen=True, slots=True)
class _Apart:
    """What `Filled` of `schemas.column_buffers` is, each column in memory of its own."""

    nodes: npt.NDArray[Any]
    memory: npt.NDArray[np.uint8]
    beside: int
    columns: list[list[npt.NDArray[np.uint8]]]  # [3, nodes]
    counters: Ints

    def part(self, which: int, index: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.columns[which][index], dtype, count)

    def numbers(self, index: int, dtype: Any) -> npt.NDArray[Any]:
        return self.part(0, index, dtype, int(self.counters[0, index]))


class ExactBuffers(ColumnBuffers):
    """Buffers of a reader that are so: set its `buffers.__class__`."""

    def filled(self, values: Packed, beside: int = 0) -> Any:
        """See ColumnBuffers."""
        filled = super().filled(values, beside)
        sizes = self.sizes(len(values), int(values.lengths.sum()))
        columns = [[np.empty(size, np.uint8) for size in row] for row in sizes.tolist()]
        cells, lengths, valid = (np.array([part.ctypes.data for part in row]) for row in columns)
        filled.nodes["cells"], filled.nodes["lengths"] = cells, lengths
        filled.nodes["valid"] = np.where(self.has_valid, valid, 0)
        return _Apart(filled.nodes, np.empty(beside, np.uint8), beside, columns, filled.counters)
