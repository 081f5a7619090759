"""Joins columns of bytes into rows.

A row is a sequence of pieces. A piece has one of three forms:

- `bytes`: the same in every row (a constant);
- a uint8 array of shape [rows, width]: of equal width in every row;
- `Packed`: a string per row, of any width.

Neighbours of the first two forms are copied into one array. `interleave.c` lays out the others. If it is not compiled, Python
does so, more slowly.
"""

import ctypes
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Bytes2D, Packed

LIBRARY = Path(__file__).with_name("libinterleave.so")
Piece: TypeAlias = bytes | Bytes2D | Packed


def interleave(pieces: Sequence[Piece], rows: int) -> Packed:
    """Return one value per row: its parts of the pieces, in order. Every array and `Packed` has `rows` rows."""
    if not rows:
        return Packed.of([])
    columns: list[Packed] = []
    even: list[bytes | Bytes2D] = []
    for given in pieces:
        cells = given.cells if isinstance(given, Packed) else None  # strings of one width are an array, too
        piece = given if cells is None else cells
        if isinstance(piece, Packed):
            if even:
                columns.append(_side_by_side(even, rows))
                even = []
            columns.append(piece)
        else:
            even.append(piece)
    if even:
        columns.append(_side_by_side(even, rows))
    return columns[0] if len(columns) == 1 else _joined(columns, rows)


def _joined(columns: Sequence[Packed], rows: int) -> Packed:
    """Join the strings of each row."""
    lengths = np.zeros(rows, np.int64)
    for column in columns:
        lengths += column.lengths
    try:
        function = compiled(LIBRARY, "interleave")
    except LookupError:
        return Packed.joined(b"".join(chain.from_iterable(zip(*columns, strict=True))), lengths)
    ends = lengths.cumsum()
    buffer = np.empty(int(ends[-1]), np.uint8)
    addresses, _kept = addresses_of(columns)
    sizes = ctypes.c_int64(len(columns)), ctypes.c_int64(rows)
    function(ctypes.c_void_p(addresses.ctypes.data), *sizes, ctypes.c_void_p(buffer.ctypes.data))
    return Packed(buffer, ends - lengths, lengths)


def addresses_of(columns: Sequence[Packed]) -> tuple[npt.NDArray[np.uintp], object]:
    """The addresses of each column's buffer, starts and lengths, for C; and the arrays, which must live as long."""
    arrays = [
        (column.buffer, np.ascontiguousarray(column.starts, np.int64), np.ascontiguousarray(column.lengths, np.int64))
        for column in columns
    ]
    return np.array([[array.ctypes.data for array in of_column] for of_column in arrays], np.uintp), arrays


def _side_by_side(pieces: Sequence[bytes | Bytes2D], rows: int) -> Packed:
    """Copy one row with the constants into all rows, then copy the arrays over it."""
    row = bytearray()
    arrays: list[tuple[int, Bytes2D]] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            row += piece
        else:
            arrays.append((len(row), piece))
            row += bytes(piece.shape[1])
    cells = np.empty((rows, len(row)), np.uint8)
    cells[:] = np.frombuffer(row, np.uint8)
    for start, array in arrays:
        cells[:, start : start + array.shape[1]] = array
    return Packed.table(cells)
