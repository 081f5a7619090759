"""Decodes many JSON events per call into columns, without a Python object per feature and without holding the GIL.

yyjson, from the Python package of that name, parses the events. `json_columns.c` copies the values; it is compiled when
Millstream is installed. `each` reads the events that it skips, or rejects them with a reason.
"""

import ctypes
import importlib.util
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.avro.types import Field
from millstream.schemas.column_buffers import ROOM, ColumnBuffers, Filled, nodes_of
from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Packed
from millstream.schemas.table import Table

LIBRARY = Path(__file__).with_name("libjson_columns.so")
_DEEPEST = 8  # most arrays within arrays: each further level makes the columns slower to build
_ITEM_BYTES = 2  # fewest bytes of an array's item with its comma, also in a default
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_COPIES = 2  # of an event: one with zeros behind it, and one of a text in it, for yyjson
_BESIDE = 1 << 15  # bytes that `json_columns.c` needs besides
_PADDING = bytes(32)  # what it expects behind each text
_LAYOUT_TEXT = rb'[7, -1, 0.5, "\n"]'
# `_LAYOUT_TEXT` in memory, as `json_columns.c` expects it; the address of the text follows.
_LAYOUT_VALUES = struct.pack("=QqQqQqQdQ", 0x406, 5 * 16, 4, 7, 12, -1, 20, 0.5, 0x105)


class ColumnReader:
    """Reads events into the columns of these fields."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """Args:
        fields: the event's fields. JSON must have a form for their types.

        Raises:
            LookupError: `json_columns.c` is not compiled, this build of yyjson doesn't have the expected memory layout, or
                arrays are nested too deeply.
        """
        self._yyjson = _Yyjson()
        self._names = [field.name for field in fields]
        nodes = nodes_of(fields, _ITEM_BYTES)
        if max(node.arrays for node in nodes) > _DEEPEST:
            raise LookupError(f"arrays are nested more than {_DEEPEST} deep")
        self._defaults = [node.default + _PADDING if node.default else None for node in nodes]
        defaults = [ctypes.cast(ctypes.c_char_p(default), _POINTER).value or 0 for default in self._defaults]
        self.buffers = ColumnBuffers(nodes, defaults, null_is_nan=True)

    def read(self, values: Packed) -> tuple[Table, npt.NDArray[np.bool_]]:
        """Returns a table with a row for each event that was read, in order, and which values were skipped."""
        rooms = self.buffers.rooms(values.lengths) + _COPIES * values.lengths
        if (is_large := rooms > ROOM).any():
            table, odd = self.read(values.take(np.flatnonzero(~is_large)))
            is_large[~is_large] = odd
            return table, is_large
        tables, left = zip(*map(self._piece, self.buffers.pieces(values, rooms, ROOM)), strict=True)
        return Table.concat(tables), np.concatenate(left)

    def _piece(self, values: Packed) -> tuple[Table, npt.NDArray[np.bool_]]:
        beside = _COPIES * values.longest + _BESIDE
        filled = self.buffers.filled(values, beside + -beside % 8)
        odd = np.concatenate([self._yyjson.fill(filled, part) for part in values.parts])
        return Table(dict(zip(self._names, self.buffers.columns(filled), strict=True))), odd


class _Yyjson:
    """The functions of yyjson, and of the C extension that calls them."""

    def __init__(self) -> None:
        self._fill = compiled(LIBRARY, "json_columns")
        found = importlib.util.find_spec("cyyjson")
        if found is None or found.origin is None:
            raise LookupError("the package yyjson is not installed")
        try:
            library = ctypes.CDLL(found.origin)
            functions = library["yyjson_read_opts"], library["yyjson_alc_pool_init"], library["yyjson_read_number"]
            version = library["yyjson_version"]()
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        if version >> 16:  # 0xMMNNPP
            raise LookupError(f"expected version 0 of the C library yyjson, found {version:#08x} (0xMMNNPP)")
        self._fill.restype = None
        nodes, values = (_POINTER, _COUNT, _POINTER), (_POINTER, _POINTER, _POINTER, _COUNT)
        self._fill.argtypes = _POINTER, *nodes, *values, _POINTER, _COUNT, _POINTER
        self._functions = (_POINTER * 3)(*(ctypes.cast(each, _POINTER).value for each in functions))
        _check_layout(*functions[:2])

    def fill(self, filled: Filled, values: Packed) -> npt.NDArray[np.bool_]:
        """Append the values that can be read; returns which values were skipped."""
        odd = np.empty(len(values), np.bool_)
        filled.counters[-1] = 0  # C numbers the records of each call from 1
        starts, lengths = (np.ascontiguousarray(each, np.int64) for each in (values.starts, values.lengths))
        nodes, counters, buffer, memory, starts_at, lengths_at, odd_at = (
            each.ctypes.data
            for each in (filled.nodes, filled.counters, values.buffer, filled.memory, starts, lengths, odd)
        )
        of_nodes, of_values = (nodes, len(filled.nodes), counters), (buffer, starts_at, lengths_at, len(values))
        self._fill(self._functions, *of_nodes, *of_values, memory, filled.beside, odd_at)
        return odd


def _check_layout(read: Any, pool: Any) -> None:
    """Raises LookupError if yyjson stores values in another way than `json_columns.c` expects."""
    read.restype = _POINTER
    read.argtypes = _POINTER, ctypes.c_size_t, ctypes.c_uint32, _POINTER, _POINTER
    pool.argtypes = _POINTER, _POINTER, ctypes.c_size_t
    memory, allocator = np.empty(1024, np.uint8), (_POINTER * 4)()
    pool(allocator, memory.ctypes.data, memory.nbytes)
    document = read(_LAYOUT_TEXT, len(_LAYOUT_TEXT), 0, allocator, None)
    values = _POINTER.from_address(document).value if document else None
    if values is None or ctypes.string_at(values, len(_LAYOUT_VALUES)) != _LAYOUT_VALUES:
        raise LookupError("yyjson doesn't have the expected memory layout")
    if ctypes.string_at(_POINTER.from_address(values + len(_LAYOUT_VALUES)).value or 0, 1) != b"\n":
        raise LookupError("yyjson doesn't have the expected memory layout")
