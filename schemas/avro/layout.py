"""Avro records that are laid out alike: read as the columns of a table of bytes, at a tenth of a block reader's time.

Records of a fixed number of features differ in their values, and hardly ever in where these are: ids of one length, times of
as many bytes for years, floats. Where all of a poll have the layout of its first one, a field is the same bytes of each record.
The layout says which bits of a record must be as in the first for that: lengths, counts, branches, and where integers end.
Encoding: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.schemas.avro.bounds import fixed_size
from millstream.schemas.avro.types import kind_of, nullable
from millstream.schemas.avro.varint import INT, LENGTH, LONG, Varint
from millstream.schemas.packed import Bytes2D, Packed, texts_of_cells
from millstream.schemas.store import AvroType
from millstream.schemas.wire import HEAD_BYTES

_MORE, _ALL = 0x80, 0xFF  # bits of a byte that must be as in the first record
_VARINTS = {"int": INT, "long": LONG}
_MOST_KEPT = 64  # layouts
_ONE = np.uint64(1)
_PLACES = np.array([1 << bits for bits in range(0, 70, 7)], np.uint64)  # what each byte of a varint counts


class _Unlike(Exception):  # noqa: N818  (no error: such records are read another way)
    """A record is malformed, or has what a layout doesn't describe."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The bytes of a field."""

    kind: str  # as `kind_of` says it; "floats" and "doubles" for arrays of them
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the top fields of a record are, and what another must share with it for them to be in the same places."""

    cells: dict[str, Cell]
    fixed: npt.NDArray[np.int64]  # the bytes that matter
    bits: npt.NDArray[np.uint8]  # of each of them
    values: npt.NDArray[np.uint8]  # of these bits

    def is_of(self, table: Bytes2D) -> bool:
        """Whether all records, a row each, are laid out so."""
        return bool(((table[:, self.fixed] & self.bits) == self.values).all())

    def rows_of(self, table: Bytes2D) -> npt.NDArray[np.int64]:
        """The rows of the records that have this layout, ascending."""
        return np.flatnonzero(((table[:, self.fixed] & self.bits) == self.values).all(axis=1))


class Layouts:
    """The layouts seen among the records of one writer schema, by the records' length."""

    def __init__(self, record: AvroType, columns: Sequence[str]) -> None:
        """Args:
        record: the writer's tree.
        columns: fields to read.
        """
        self._record = record
        self._columns = columns
        self._seen: dict[int, Layout] = {}

    def read(self, values: Sequence[bytes]) -> list[pl.Series] | None:
        """Return the columns as the block reader has them; None where the values are not all well formed and laid out alike."""
        table = Packed.of(values).cells
        if table is None:
            return None
        size = table.shape[1]
        layout = self._seen.get(size)
        try:
            if layout is None or not layout.is_of(table):
                layout = layout_of(self._record, values[0])
                if not layout.is_of(table):
                    return None
                self._keep(size, layout)
            return self._columns_of(layout, table)
        except (_Unlike, pl.exceptions.PolarsError):  # the latter: text that is not UTF-8
            return None

    def read_most(self, values: Packed) -> tuple[list[pl.Series], npt.NDArray[np.int64]] | None:
        """Return the columns of the values that are laid out alike, and their rows; None unless they are most of the values.

        So a few records of another layout don't send a whole poll through the slower block reader.
        """
        size = int(np.sort(values.lengths)[len(values) // 2])  # the median: the only length that most values can have
        rows = np.flatnonzero(values.lengths == size)
        if 2 * len(rows) < len(values) or not size:
            return None
        table = values.of_width(rows)
        for layout in self._candidates(table):
            if layout is None or 2 * len(alike := layout.rows_of(table)) < len(values):
                continue
            self._keep(size, layout)
            try:
                return self._columns_of(layout, table[alike]), rows[alike]
            except (_Unlike, pl.exceptions.PolarsError):
                return None
        return None

    def _candidates(self, table: Bytes2D) -> Iterator[Layout | None]:
        """The layout seen before, then those of two records, since any record may be the odd one."""
        yield self._seen.get(table.shape[1])
        yield self._layout_of(table[0])
        yield self._layout_of(table[len(table) // 2])

    def _layout_of(self, record: npt.NDArray[np.uint8]) -> Layout | None:
        try:
            return layout_of(self._record, record.tobytes())
        except _Unlike:
            return None

    def _columns_of(self, layout: Layout, table: Bytes2D) -> list[pl.Series]:
        return [_column(name, layout.cells[name], table) for name in self._columns]

    def _keep(self, size: int, layout: Layout) -> None:
        if len(self._seen) >= _MOST_KEPT:
            self._seen.clear()
        self._seen[size] = layout


def can_lay_out(record: AvroType, columns: Sequence[str]) -> bool:
    """Whether records of this tree are worth a look at their layout, and these fields of it can be read so."""
    trees = {entry["name"]: entry["type"] for entry in record["fields"]}
    readable = (name in trees and _kind_of_cell(nullable(trees[name])[0]) in _READS for name in columns)
    return _is_laid_out(record) and all(readable)


def _is_laid_out(tree: AvroType) -> bool:
    """Whether the type's values have few layouts. Integers in arrays end anywhere."""
    core, _ = nullable(tree)
    match kind_of(core):
        case "union" | "map":
            return False
        case "array":
            return kind_of(core["items"]) in {"float", "double"}
        case "record":
            return all(_is_laid_out(entry["type"]) for entry in core["fields"])
    return True


def _kind_of_cell(tree: AvroType) -> str:
    kind = kind_of(tree)
    return f"{kind_of(tree['items'])}s" if kind == "array" else kind


def layout_of(record: AvroType, value: bytes) -> Layout:
    """Walk one wire-format value. Raises _Unlike."""
    walk = _Walk(value)
    try:
        cells = {entry["name"]: walk.value(entry["type"]) for entry in record["fields"]}
    except IndexError:
        raise _Unlike from None
    if walk.at != len(value):
        raise _Unlike
    bits = np.frombuffer(bytes(walk.bits), np.uint8)
    fixed = np.flatnonzero(bits)
    return Layout(cells, fixed, bits[fixed], np.frombuffer(value, np.uint8)[fixed] & bits[fixed])


class _Walk:
    """Goes through a record and notes which bits of it make its layout."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.at = HEAD_BYTES
        self.bits = bytearray(len(value))
        self.bits[:HEAD_BYTES] = bytes([_ALL]) * HEAD_BYTES  # a value of another schema is unlike

    def value(self, tree: AvroType) -> Cell:
        """Pass a value of this type; returns where it was."""
        kind, start = kind_of(tree), self.at
        match kind:
            case "record":
                for entry in tree["fields"]:
                    self.value(entry["type"])
            case "union":
                return self._branch(tree)
            case "array":
                return self._array(tree)
            case "string" | "bytes":
                size, start = self._number(), self.at
                self._pass(size)
            case _:
                self._scalar(kind, tree)
        return Cell(kind, start, self.at)

    def _scalar(self, kind: str, tree: AvroType) -> None:
        match kind:
            case "int" | "long":
                self._integer(_VARINTS[kind])
            case "boolean":
                self._boolean()
            case "enum":
                if self._number() >= len(tree["symbols"]):
                    raise _Unlike
            case _:
                self._pass(fixed_size(tree) or 0)

    def _branch(self, tree: AvroType) -> Cell:
        index = self._number()
        if not nullable(tree)[1] or index > 1:
            raise _Unlike
        return self.value(tree[index])

    def _array(self, tree: AvroType) -> Cell:
        count, start = self._number(), self.at
        self._pass(count * (fixed_size(tree["items"]) or 0))
        stop = self.at
        if count and self._number() != 0:
            raise _Unlike  # in several blocks
        return Cell(_kind_of_cell(tree), start, stop)

    def _boolean(self) -> None:
        if self._value[self.at] > 1:
            raise _Unlike
        self._mark(0xFE)

    def _number(self) -> int:
        """A length, count, branch or index: all of it is layout."""
        number, shift = 0, 0
        while True:
            byte = self._value[self.at]
            self._mark(_ALL)
            number |= (byte & 0x7F) << shift
            if byte < _MORE:
                break
            shift += 7
            if shift == 7 * LENGTH.longest:
                raise _Unlike
        if number & 1:  # negative
            raise _Unlike
        return number >> 1

    def _integer(self, varint: Varint) -> None:
        """Where an integer ends is layout; its value is not."""
        for place in range(1, varint.longest + 1):
            byte = self._value[self.at]
            unused = _ALL ^ varint.last if place == varint.longest else 0
            self._mark(_MORE | unused)
            if byte < _MORE:
                if byte & unused:
                    raise _Unlike
                return
        raise _Unlike

    def _mark(self, bits: int) -> None:
        self.bits[self.at] = bits
        self.at += 1

    def _pass(self, size: int) -> None:
        self.at += size
        if self.at > len(self._value):
            raise _Unlike


def _column(name: str, cell: Cell, table: Bytes2D) -> pl.Series:
    """A field's column as the block reader has it, copied from the records. Raises _Unlike where it is empty: null, no items."""
    if cell.start == cell.stop:
        raise _Unlike
    return _READS[cell.kind](name, np.ascontiguousarray(table[:, cell.start : cell.stop]))


def _integers(cells: Bytes2D) -> npt.NDArray[np.int64]:
    zigzag = (cells & 0x7F).astype(np.uint64) @ _PLACES[: cells.shape[1]]
    return (zigzag >> _ONE).view(np.int64) ^ -(zigzag & _ONE).view(np.int64)


def _vectors(dtype: str, items: pl.DataType) -> Callable[[str, Bytes2D], pl.Series]:
    return lambda name, cells: pl.Series(name, cells.view(dtype)).cast(pl.List(items))


_READS: dict[str, Callable[[str, Bytes2D], pl.Series]] = {
    "boolean": lambda name, cells: pl.Series(name, cells[:, 0] == 1),
    "int": lambda name, cells: pl.Series(name, _integers(cells).astype(np.int32)),
    "long": lambda name, cells: pl.Series(name, _integers(cells)),
    "float": lambda name, cells: pl.Series(name, cells.view("<f4")[:, 0]),
    "double": lambda name, cells: pl.Series(name, cells.view("<f8")[:, 0]),
    "string": texts_of_cells,
    "floats": _vectors("<f4", pl.Float32()),
    "doubles": _vectors("<f8", pl.Float64()),
}
