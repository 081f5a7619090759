"""Columns that C fills (`columns.h`): describes their types to C, and allocates their memory."""

import ctypes
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.avro.types import NO_DEFAULT, Field, default_of, kind_of, nullable
from millstream.schemas.column import Column, ListColumn, NumberColumn, RecordColumn, StringColumn
from millstream.schemas.packed import Packed
from millstream.schemas.store import AvroType

# Most bytes that are reserved for one call. This covers the most that its records could fill. They only fill a small part, and
# the operating system only allocates that part.
ROOM = 1 << 28
# Bytes of a buffer that later calls use again, if it is large enough for them. In a new buffer, each page costs a page fault,
# which takes longer than to decode an event of 4 kB. A full block of JSON events of 1.2 kB with four wanted texts reserves 55 MB.
KEPT = 1 << 26
# Least bytes of a node's cells that get an array of their own. If they fill it, it becomes the column, and nothing is copied.
_OWN_ARRAY = 1 << 20
SPARE: list[npt.NDArray[np.uint8]] = []
"""Such buffers, which no reader uses now. All readers share them, however many schemas there are."""
_NUMBERS: dict[str, Any] = {
    "boolean": np.bool_,
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "number": np.float64,
}
_TEXTS = ("string", "enum", "bytes", "fixed", "scalar", "mixed")
_REALS = ("float", "double", "number")
KINDS = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "enum",
    "array",
    "record",
    "symbol",
    "bytes",
    "fixed",
    "scalar",
    "number",
    "mixed",
)  # as in columns.h
_NODE_FIELDS = "kind is_nullable first members name name_length missing capacity room cells lengths valid"
_NODE = np.dtype({"names": _NODE_FIELDS.split(), "formats": [np.int64] * 12})
_SAMPLE_BYTES = 1 << 12  # the room per byte of a record is computed from this many bytes, so that rounding adds little
_POINTER = ctypes.c_void_p
Member = tuple[str, AvroType, Any]
"""Name, type and default of a field."""


@dataclass(slots=True)
class Node:
    """A part of the event's schema: the event itself, a field, an array's items, an enum's symbol."""

    name: str
    kind: str
    is_nullable: bool
    item_bytes: int  # inside an array: fewest bytes of an event that one value takes. 0: an event has only one value
    default: bytes  # a field's default as JSON; empty if it has none
    default_bytes: int  # bytes of this default and of the defaults around it: an event gets them without any JSON
    arrays: int = 0  # number of arrays around the node
    members: range = range(0)  # indices of the nodes of a record's fields, an array's items, an enum's symbols


def nodes_of(fields: Sequence[Field], item_bytes: int) -> list[Node]:
    """The event's nodes: first the event itself, then all types in it. The members of a node follow each other.

    Args:
        fields: the event's fields.
        item_bytes: fewest bytes that an item of an array takes.
    """
    nodes = [Node("", "record", False, 0, b"", 0)]
    inside: list[list[Member]] = [[(field.name, field.type, field.default) for field in fields]]
    for node, members in zip(nodes, inside, strict=True):  # both lists grow during the loop
        node.members = range(len(nodes), len(nodes) + len(members))
        for name, tree, value in members:
            core, is_nullable = nullable(tree)
            default = b"" if value is NO_DEFAULT else _as_json(value)
            size = node.default_bytes + len(default)
            arrays = node.arrays + (node.kind == "array")
            nodes.append(Node(name, kind_of(core), is_nullable, item_bytes * bool(arrays), default, size, arrays))
            inside.append(list(_members(core)))
    return nodes


def _as_json(default: Any) -> bytes:
    """The default as JSON. JSON has no form for bytes. They are only read from Avro, and there C needs no defaults."""
    return json.dumps(default, default=lambda _: None).encode()


def _members(tree: AvroType) -> Iterator[Member]:
    match kind_of(tree):
        case "array":
            yield "", tree["items"], NO_DEFAULT
        case "enum":  # sorted for the binary search in `json_columns.c`
            symbols = sorted(tree["symbols"], key=lambda symbol: (len(symbol), symbol))
            yield from ((symbol, "symbol", NO_DEFAULT) for symbol in symbols)
        case "record":
            yield from ((entry["name"], entry["type"], default_of(entry)) for entry in tree["fields"])


@dataclass(frozen=True, slots=True)
class Filled:
    """The memory that C fills."""

    nodes: npt.NDArray[Any]  # structs `node` of `columns.h`
    memory: npt.NDArray[np.uint8]
    beside: int  # bytes at the start of `memory` that the caller uses itself
    starts: Ints  # where in `memory` each node's cells, lengths and validity start, [3, nodes]
    counters: Ints  # [5, nodes]: values, bytes of text, two rows for C, and one that the caller uses itself
    own: Mapping[int, npt.NDArray[np.uint8]]  # the cells that are not in `memory`, by node

    def part(self, which: int, index: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        """The first `count` of a node's cells (`which` 0), lengths (1) or validity (2)."""
        return np.frombuffer(self.memory, dtype, count, int(self.starts[which, index]))

    def numbers(self, index: int, dtype: Any) -> npt.NDArray[Any]:
        """A node's numbers, in memory that no other call fills."""
        count = int(self.counters[0, index])
        if (own := self.own.get(index)) is None:
            return self.part(0, index, dtype, count).copy()
        numbers: npt.NDArray[Any] = own.view(dtype)[:count]
        return (
            numbers if 2 * numbers.nbytes >= own.nbytes else numbers.copy()
        )  # else much memory would be kept for little


class ColumnBuffers:
    """Allocates memory for these nodes, and makes columns of the filled memory."""

    def __init__(
        self,
        nodes: list[Node],
        missing: Sequence[int] | None = None,
        *,
        null_is_nan: bool,
        finds_finite: bool = False,
    ) -> None:
        """Args:
        nodes: from `nodes_of`.
        missing: for each node, the address of its default value; 0 if it has none.
        null_is_nan: whether a null of type float or double is stored as NaN. This is possible if the input can't contain NaN.
        finds_finite: whether the last row of the counters is 1 for a node whose numbers are neither NaN nor infinite.
        """
        self._nodes = nodes
        self._finds_finite = finds_finite
        kinds = [node.kind for node in nodes]
        self._is_text = np.array([kind in _TEXTS for kind in kinds])
        self.has_valid = np.array([node.is_nullable and not (null_is_nan and node.kind in _REALS) for node in nodes])
        self._widths = np.array(  # bytes of a value: its cell (0 for a text), its length, its validity
            [
                [np.dtype(_NUMBERS[kind]).itemsize if kind in _NUMBERS else 0 for kind in kinds],
                [8 if kind in (*_TEXTS, "array") else 0 for kind in kinds],
                self.has_valid,
            ]
        )
        self._item_bytes = np.array([node.item_bytes for node in nodes])
        # Numbers in arrays that take as many bytes in a record as in the column: their capacity is no more than the records have.
        self._exact = np.flatnonzero((self._widths[0] > 0) & (self._item_bytes >= self._widths[0])).tolist()
        self._default_bytes = np.array([node.default_bytes for node in nodes])
        self._names = [node.name.encode() for node in nodes]
        described = zip(nodes, self._names, missing or [0] * len(nodes), strict=True)
        self._template = np.array([_described(*each) for each in described], _NODE)
        self._given = np.zeros(1 + self._widths.size, np.int64)  # see `_layout`
        self._room_of_record = int(self._sizes(1, 0).sum())
        self._room_of_byte = -(-int(self._sizes(0, _SAMPLE_BYTES).sum()) // _SAMPLE_BYTES)

    def rooms(self, lengths: Ints) -> Ints:
        """Most bytes that each record can fill, computed from its length."""
        return self._room_of_record + self._room_of_byte * lengths

    @staticmethod
    def pieces(values: Packed, rooms: Ints, most: int) -> list[Packed]:
        """Split the values into pieces that fill at most about `most` bytes each. A larger value is a piece of its own.

        Args:
            values: the records.
            rooms: most bytes that each record can fill, from `rooms`.
            most: bytes of a piece.
        """
        cuts = np.flatnonzero(np.diff(rooms.cumsum() // most)) + 1
        return [values[start:stop] for start, stop in pairwise([0, *cuts.tolist(), len(values)])]

    def filled(self, values: Packed, beside: int = 0) -> Filled:
        """Memory for all that the records can fill, after `beside` bytes (a multiple of 8) for the caller."""
        count, total = len(values), int(values.lengths.sum())
        nodes = self._template.copy()
        nodes["capacity"], nodes["room"] = self.most(count, total)
        sizes = self._sizes(count, total)
        own = {index: np.empty(sizes[0, index], np.uint8) for index in self._exact if sizes[0, index] >= _OWN_ARRAY}
        sizes[0, list(own)] = 0
        room, starts = self._layout(sizes, beside)
        memory = self._memory(room)
        nodes["cells"], nodes["lengths"], valid = memory.ctypes.data + starts
        nodes["valid"] = np.where(self.has_valid, valid, 0)
        for index, array in own.items():
            nodes["cells"][index] = array.ctypes.data
        return Filled(nodes, memory, beside, starts, np.zeros((5, len(nodes)), np.int64), own)

    def columns(self, filled: Filled) -> list[Column]:
        """Copy the event's fields into columns."""
        columns = [self._column(index, filled) for index in self._nodes[0].members]
        if len(filled.memory) == KEPT:
            SPARE.append(filled.memory)
        return columns

    def most(self, count: int, total: int) -> tuple[Ints, Ints]:
        """Most values of each node, and most bytes of their text.

        Defaults of fields in arrays' items can exceed this. Then C skips the event, and the caller reads it another way.
        """
        by_default = count * self._default_bytes
        items = (total + by_default) // np.maximum(self._item_bytes, 1)
        return count + (self._item_bytes > 0) * items, self._is_text * (total + by_default)

    def sizes(self, count: int, total: int) -> Ints:
        """Bytes of each node's cells, lengths and validity, [3, nodes]; see `most`."""
        capacity, room = self.most(count, total)
        sizes = self._widths * capacity
        sizes[0] += room
        return sizes

    def _sizes(self, count: int, total: int) -> Ints:
        """Like `sizes`, each rounded up to a multiple of 8."""
        sizes = self.sizes(count, total)
        return sizes + -sizes % 8

    def _layout(self, sizes: Ints, beside: int) -> tuple[int, Ints]:
        """The bytes of memory needed, and where in it each part starts, after `beside` bytes.

        In the buffer that is kept, the parts start at the same places as in the call before, unless a part needs more room than
        ever. So all calls fill the same pages: this takes less memory, and fewer page faults.
        """
        needed, given = np.array([beside, *sizes.flat]), self._given
        if (needed > given).any():
            given = np.maximum(self._given, needed + needed // 32 * 8)
            if given.sum() > KEPT:  # then without room to spare
                given = np.maximum(self._given, needed)
            if given.sum() <= KEPT:
                self._given = given
            else:
                given = needed
        return int(given.sum()), (given.cumsum() - given)[1:].reshape(sizes.shape)

    def _memory(self, size: int) -> npt.NDArray[np.uint8]:
        """A buffer of at least `size` bytes. Only filled pages take memory. In an array of numpy, one byte may take 2 MB."""
        if size <= KEPT and SPARE:
            with suppress(IndexError):  # another thread has taken it
                return SPARE.pop()
        try:
            pages = mmap.mmap(-1, max(size, KEPT), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:  # the error that numpy raises if there is no memory for an array
            raise MemoryError(f"Unable to allocate {max(size, KEPT):,} bytes: {error.strerror}") from None
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(pages, np.uint8)

    def _column(self, index: int, filled: Filled) -> Column:
        """Copy a node's values into a column."""
        node, count = self._nodes[index], int(filled.counters[0, index])
        if node.kind in _NUMBERS:
            numbers = filled.numbers(index, _NUMBERS[node.kind])
            is_finite = self._finds_finite and bool(filled.counters[-1, index] == 1)
            return NumberColumn(numbers, self._valid(index, filled, numbers), is_finite)
        valid = self._valid(index, filled)
        if node.kind == "record":
            fields = {self._nodes[member].name: self._column(member, filled) for member in node.members}
            return RecordColumn(fields, count, valid)
        lengths = filled.part(1, index, np.int64, count).copy()
        if node.kind == "array":
            return ListColumn(self._column(node.members[0], filled), lengths, valid)
        content = filled.part(0, index, np.uint8, int(filled.counters[1, index])).copy()
        packed = Packed(content, lengths.cumsum() - lengths, lengths)
        return StringColumn(packed, node.kind in ("string", "enum", "scalar", "mixed"), valid)

    def _valid(self, index: int, filled: Filled, numbers: npt.NDArray[Any] | None = None) -> Mask | None:
        """Which values of a node are not null; None if no value is null."""
        node = self._nodes[index]
        if self.has_valid[index]:
            valid = filled.part(2, index, np.bool_, int(filled.counters[0, index])).copy()
        elif numbers is not None and node.is_nullable and node.kind in _REALS:
            valid = ~np.isnan(numbers)
        else:
            return None
        return None if valid.all() else valid


def _described(node: Node, name: bytes, missing: int) -> tuple[int, ...]:
    address = ctypes.cast(ctypes.c_char_p(name), _POINTER).value or 0
    kind, members = KINDS.index(node.kind), node.members
    return (kind, node.is_nullable, members.start, len(members), address, len(name), missing, *(0,) * 5)
