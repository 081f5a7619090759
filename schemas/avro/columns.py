"""Decodes Avro records into columns, many per call, without Python objects and without the GIL.

`avro_columns.c` is compiled when Millstream is installed. `each` reads records of schemas that it doesn't support.
"""

import ctypes
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.program import Program, program_of
from millstream.schemas.avro.sources import Source
from millstream.schemas.column_buffers import ROOM, ColumnBuffers, Filled
from millstream.schemas.compiled import compiled
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.errors import Reason
from millstream.schemas.packed import Packed
from millstream.schemas.store import Schema
from millstream.schemas.table import Table

LIBRARY = Path(__file__).with_name("libavro_columns.so")
_FINE, _OTHER_SCHEMA = 0, 1
_TOO_LARGE = "an integer too large for its type"
_FAULTS: list[tuple[Reason, str]] = [  # as in avro_columns.c
    ("undecodable", ""),  # none
    ("undecodable", ""),  # of another schema
    ("undecodable", "{place}: the record ends before the field does"),
    ("undecodable", "{place}: expected the byte 0 or 1 of a boolean"),
    ("undecodable", f"{{place}}: {_TOO_LARGE} (int)"),
    ("undecodable", f"{{place}}: {_TOO_LARGE} (long)"),
    ("undecodable", f"{{place}}: {_TOO_LARGE} (length)"),
    ("undecodable", "{place}: negative length"),
    ("undecodable", "{place}: the union's index isn't that of one of its {members} types"),
    ("undecodable", "{place}: the enum's index isn't that of one of its {size} symbols"),
    ("undecodable", "{place}: a block of an array or a map is not of the size that it states"),
    ("undecodable", "{place}: invalid utf-8 in its text"),
    ("schema_incompatible", "{place} is null, which the reader schema doesn't allow"),
    ("undecodable", "{count} bytes are left over after the last field"),
    ("undecodable", "{place}: more values than its bytes have room for"),
    ("undecodable", "{place}: the map has this key twice"),
    ("schema_incompatible", "{place} is of a type that is not read here"),
]
_LEFT_OVER_FAULT = 13
_STEP_NUMBERS = 6  # numbers per step
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class ColumnReader:
    """Reads wire-format values of one writer schema. Threads may share it."""

    def __init__(self, head: bytes, program: Program, sources: Sequence[Source]) -> None:
        """Args:
        head: the first bytes of the values.
        program: the result of `program_of` for these sources.
        sources: of the columns, in order.

        Raises:
            LookupError: `avro_columns.c` is not compiled, or native parts are turned off.
        """
        self._function = _function()
        self._head = head
        self._program = program
        self._sources = sources
        self._symbols, self._steps = _laid_out(program)
        self.buffers = ColumnBuffers(program.nodes, null_is_nan=False, finds_finite=True)

    def read(self, values: Packed) -> tuple[Decoded, Ints]:
        """Read the values with this reader's head. Also returns the rows of the other values."""
        tables, found = zip(
            *map(self._piece, self.buffers.pieces(values, self.buffers.rooms(values.lengths), ROOM)), strict=True
        )
        table, (faults, where) = Table.concat(tables), np.concatenate(found, axis=1)
        if not faults.any():
            return Decoded.of(table, np.arange(len(values)), []), np.empty(0, np.int64)
        wrong = np.flatnonzero(faults > _OTHER_SCHEMA)
        bad = [
            self._bad(*each) for each in zip(wrong.tolist(), faults[wrong].tolist(), where[wrong].tolist(), strict=True)
        ]
        return Decoded.of(table, np.flatnonzero(faults == _FINE), bad), np.flatnonzero(faults == _OTHER_SCHEMA)

    def _piece(self, values: Packed) -> tuple[Table, Ints]:
        """The columns of the readable values; and the fault of each value with its place, [2, values]."""
        filled = self.buffers.filled(values)
        found = [self._fill(filled, part) for part in values.parts]
        read = dict(zip(self._program.names, self.buffers.columns(filled), strict=True))
        rows = int(filled.counters[0, 0])
        columns = {
            source.field.name: source.default(rows) if source.writer_name is None else read[source.writer_name]
            for source in self._sources
        }
        return Table(columns), found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def _fill(self, filled: Filled, values: Packed) -> Ints:
        """Append the readable values to the columns; returns the fault of each value with its place, [2, values]."""
        faults = np.empty((2, len(values)), np.int64)
        starts, lengths = (np.ascontiguousarray(each, np.int64) for each in (values.starts, values.lengths))
        nodes, counters, steps, text, starts_at, lengths_at, faults_at = (
            each.ctypes.data
            for each in (filled.nodes, filled.counters, self._steps, values.buffer, starts, lengths, faults)
        )
        of_nodes = nodes, len(filled.nodes), counters
        self._function(*of_nodes, steps, self._head, text, starts_at, lengths_at, len(values), faults_at)
        return faults

    def _bad(self, row: int, fault: int, where: int) -> BadRecord:
        reason, said = _FAULTS[fault]
        step = 0 if fault == _LEFT_OVER_FAULT else where
        of_step, place = self._program.steps[step], self._program.places[step]
        error = said.format(place=place, members=of_step.members, size=of_step.size, count=where)
        return BadRecord.of(row, reason, error)


def column_reader(
    head: bytes, writer: Schema, sources: Sequence[Source], *, of_some: bool = False
) -> ColumnReader | None:
    """The reader of a writer schema; None if the schema is not supported, or C is not compiled. `of_some`: see `program_of`."""
    if why_not_compiled() is not None or (program := program_of(writer, sources, of_some=of_some)) is None:
        return None
    return ColumnReader(head, program, sources)


def why_not_compiled() -> str | None:
    """Why `avro_columns.c` can't be used; None: it can."""
    try:
        _function()
    except LookupError as missing:
        return str(missing)
    return None


def _function() -> "ctypes._NamedFuncPointer":
    function = compiled(LIBRARY, "avro_columns")
    function.restype = None
    values = (_POINTER, _POINTER, _POINTER, _COUNT)
    function.argtypes = _POINTER, _COUNT, _POINTER, _POINTER, ctypes.c_char_p, *values, _POINTER
    return function


def _laid_out(program: Program) -> tuple[list[object], Ints]:
    """The steps for C, [steps, 6], and the data that they point to."""
    kept: list[object] = []
    steps = np.zeros((len(program.steps), _STEP_NUMBERS), np.int64)
    for row, step in enumerate(program.steps):
        steps[row] = (*step[:-1], 0)
        if step.symbols:
            symbols = (_POINTER * (2 * len(step.symbols)))()
            symbols[:] = list(chain.from_iterable((_address(text), len(text)) for text in step.symbols))
            kept += [symbols, step.symbols]
            steps[row, -1] = ctypes.addressof(symbols)
    return kept, steps


def _address(text: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(text), _POINTER).value or 0
