"""Columns that C fills (`columns.h`): the types that they are of, and the memory that they lie in."""

import ctypes
import json
import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.avro.types import NO_DEFAULT, Field, default_of, kind_of, nullable
from millstream.schemas.column import Column, ListColumn, Mask, NumberColumn, RecordColumn, StringColumn
from millstream.schemas.packed import Numbers, Packed
from millstream.schemas.store import AvroType

ROOM = 1 << 28  # bytes of a call, of what its records might fill at most; they fill a small part, and no more is taken
_KEPT = 1 << 23  # bytes, filled anew by each call that does with them
_NUMBERS: dict[str, Any] = {
    "boolean": np.bool_,
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_TEXTS = ("string", "enum", "bytes", "fixed")
_REALS = ("float", "double")
KINDS = (*_NUMBERS, "string", "enum", "array", "record", "symbol", "bytes", "fixed")  # as in columns.h
_OF_NODE = "kind is_nullable first members name name_length missing capacity room cells lengths valid"
_NODE = np.dtype({"names": _OF_NODE.split(), "formats": [np.int64] * 12})
_BEFORE_ROUNDING = 1 << 12  # bytes, of which the room of one is reckoned
_POINTER = ctypes.c_void_p
Member = tuple[str, AvroType, Any]
"""Name, type and default of a field."""


@dataclass(slots=True)
class Node:
    """A type within the event's: the event itself, a field, an array's items, an enum's symbol."""

    name: str
    kind: str
    is_nullable: bool
    item_bytes: (
        int  # fewest of a record for a value of the node, where it lies within an array; 0: a record has one value
    )
    default: bytes  # of a field, as JSON; empty where it has none
    default_bytes: int  # of this default, and of those around it: what an event has of it without a byte of JSON
    arrays: int = 0  # around it
    members: range = range(0)  # the nodes of a record's fields, an array's items, an enum's symbols


def nodes_of(fields: Sequence[Field], item_bytes: int) -> list[Node]:
    """The event, first, and all types within it, the members of each side by side.

    Args:
        fields: the event's.
        item_bytes: fewest that each item of an array takes.
    """
    nodes = [Node("", "record", False, 0, b"", 0)]
    inside: list[list[Member]] = [[(field.name, field.type, field.default) for field in fields]]
    for node, members in zip(nodes, inside, strict=True):  # both grow
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
    """Bytes have no form in JSON, and are read from Avro only, which has no defaults on the wire."""
    return json.dumps(default, default=lambda _: None).encode()


def _members(tree: AvroType) -> Iterator[Member]:
    match kind_of(tree):
        case "array":
            yield "", tree["items"], NO_DEFAULT
        case "enum":  # sorted as the JSON reader looks for them
            symbols = sorted(tree["symbols"], key=lambda symbol: (len(symbol), symbol))
            yield from ((symbol, "symbol", NO_DEFAULT) for symbol in symbols)
        case "record":
            yield from ((entry["name"], entry["type"], default_of(entry)) for entry in tree["fields"])


@dataclass(frozen=True, slots=True)
class Filled:
    """What C has filled, or may."""

    nodes: npt.NDArray[Any]  # as `columns.h` has them
    memory: npt.NDArray[np.uint8]
    beside: int  # bytes at its begin that are for the caller
    starts: Numbers  # in `memory`: of each node's cells, lengths and validity, [3, nodes]
    counters: Numbers  # [5, nodes]: values, bytes of text, and what the caller uses itself

    def part(self, which: int, index: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        """So many of a node's cells (0), lengths (1) or validity (2)."""
        return np.frombuffer(self.memory, dtype, count, int(self.starts[which, index]))


class ColumnBuffers:
    """Makes room for these nodes, and columns of what was filled."""

    def __init__(self, nodes: list[Node], missing: Sequence[int] | None = None, *, null_is_nan: bool) -> None:
        """Args:
        nodes: from `nodes_of`.
        missing: of each node, the address of what a field is that isn't there; 0 for none.
        null_is_nan: whether the null of a real number comes as NaN, which the input has no form of.
        """
        self._nodes = nodes
        kinds = [node.kind for node in nodes]
        self._is_text = np.array([kind in _TEXTS for kind in kinds])
        self.has_valid = np.array([node.is_nullable and not (null_is_nan and node.kind in _REALS) for node in nodes])
        self._widths = np.array(  # bytes of a value: its cell where that is a number, its length, its validity
            [
                [np.dtype(_NUMBERS[kind]).itemsize if kind in _NUMBERS else 0 for kind in kinds],
                [8 if kind in (*_TEXTS, "array") else 0 for kind in kinds],
                self.has_valid,
            ]
        )
        self._item_bytes = np.array([node.item_bytes for node in nodes])
        self._default_bytes = np.array([node.default_bytes for node in nodes])
        self._names = [node.name.encode() for node in nodes]
        described = zip(nodes, self._names, missing or [0] * len(nodes), strict=True)
        self._template = np.array([_described(*each) for each in described], _NODE)
        self._room_of_record = int(self._sizes(1, 0).sum())
        self._room_of_byte = -(-int(self._sizes(0, _BEFORE_ROUNDING).sum()) // _BEFORE_ROUNDING)
        self._spare: list[npt.NDArray[np.uint8]] = []

    def rooms(self, lengths: Numbers) -> Numbers:
        """Bytes that each record might fill at most, by its length."""
        return self._room_of_record + self._room_of_byte * lengths

    @staticmethod
    def pieces(values: Packed, rooms: Numbers, most: int) -> list[Packed]:
        """The values in pieces that might fill about `most` bytes each, by their rooms; a larger value is alone."""
        cuts = np.flatnonzero(np.diff(rooms.cumsum() // most)) + 1
        return [values[start:stop] for start, stop in pairwise([0, *cuts.tolist(), len(values)])]

    def filled(self, values: Packed, beside: int = 0) -> Filled:
        """Room for what the records can fill, and bytes beside for the caller, a multiple of 8."""
        count, total = len(values), int(values.lengths.sum())
        nodes = self._template.copy()
        nodes["capacity"], nodes["room"] = self.most(count, total)
        sizes = self._sizes(count, total)
        starts = beside + sizes.cumsum().reshape(sizes.shape) - sizes
        memory = self._memory(int(starts[-1, -1] + sizes[-1, -1]))
        nodes["cells"], nodes["lengths"], valid = memory.ctypes.data + starts
        nodes["valid"] = np.where(self.has_valid, valid, 0)
        return Filled(nodes, memory, beside, starts, np.zeros((5, len(nodes)), np.int64))

    def columns(self, filled: Filled) -> list[Column]:
        """The event's fields, copied."""
        columns = [self._column(index, filled) for index in self._nodes[0].members]
        if len(filled.memory) == _KEPT:
            self._spare.append(filled.memory)
        return columns

    def most(self, count: int, total: int) -> tuple[Numbers, Numbers]:
        """The values that each node may get, and their bytes of text.

        Defaults of fields within arrays' items may be more: C then leaves the event to others.
        """
        by_default = count * self._default_bytes
        items = (total + by_default) // np.maximum(self._item_bytes, 1)
        return count + (self._item_bytes > 0) * items, self._is_text * (total + by_default)

    def sizes(self, count: int, total: int) -> Numbers:
        """Bytes of each node's cells, lengths and validity, [3, nodes]."""
        capacity, room = self.most(count, total)
        sizes = self._widths * capacity
        sizes[0] += room
        return sizes

    def _sizes(self, count: int, total: int) -> Numbers:
        """The same, each a multiple of 8."""
        sizes = self.sizes(count, total)
        return sizes + -sizes % 8

    def _memory(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes at least. None is taken before it is filled; of what numpy gives, a byte may take two megabytes."""
        if size <= _KEPT and self._spare:
            with suppress(IndexError):  # another thread was quicker
                return self._spare.pop()
        pages = mmap.mmap(-1, max(size, _KEPT))
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(pages, np.uint8)

    def _column(self, index: int, filled: Filled) -> Column:
        """The values of a node, copied."""
        node, count = self._nodes[index], int(filled.counters[0, index])
        if node.kind in _NUMBERS:
            numbers = filled.part(0, index, _NUMBERS[node.kind], count).copy()
            return NumberColumn(numbers, self._valid(index, filled, numbers))
        valid = self._valid(index, filled)
        if node.kind == "record":
            fields = {self._nodes[member].name: self._column(member, filled) for member in node.members}
            return RecordColumn(fields, count, valid)
        lengths = filled.part(1, index, np.int64, count).copy()
        if node.kind == "array":
            return ListColumn(self._column(node.members[0], filled), lengths, valid)
        content = filled.part(0, index, np.uint8, int(filled.counters[1, index])).copy()
        packed = Packed(content, lengths.cumsum() - lengths, lengths)
        return StringColumn(packed, node.kind in ("string", "enum"), valid)

    def _valid(self, index: int, filled: Filled, numbers: npt.NDArray[Any] | None = None) -> Mask | None:
        """Which values of a node are not null; None where all are."""
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
