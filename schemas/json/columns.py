"""JSON events to columns, many a call: without an object for each feature, and without the interpreter's lock.

yyjson parses, which the package of that name brings along; `columns.c` copies what it found. That page is compiled when
Millstream is installed. What it doesn't take is for `json_each` to read, or to refuse with a reason.
"""

import ctypes
import importlib.util
import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.schemas.avro.types import NO_DEFAULT, Field, default_of, dtype_of, kind_of, nullable
from millstream.schemas.packed import Numbers, Packed, Texts
from millstream.schemas.store import AvroType

LIBRARY = Path(__file__).with_name("libcolumns.so")
ROOM = (
    1 << 28
)  # bytes a call, of what its events might fill at most; it fills a small part of that, and no more is taken
_KEPT = 1 << 23  # bytes, filled anew by each call that does with them
_DEEPEST = 8  # arrays within arrays: to make columns of more takes longer with each
_NUMBERS: dict[str, Any] = {
    "boolean": np.bool_,
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_TEXTS = ("string", "enum")
_REALS = ("float", "double")
_KINDS = (*_NUMBERS, *_TEXTS, "array", "record", "symbol")  # as in the C page
_OF_NODE = "kind is_nullable first members name name_length missing capacity room cells lengths valid"
_NODE = np.dtype({"names": _OF_NODE.split(), "formats": [np.int64] * 12})
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_FOR_YYJSON = 13  # times a text's bytes is what reading it takes at most, as yyjson.h reckons it
_KNOWN = b"[7, -1, 0.5, {}]"
_AS_VALUES = struct.pack("=QqQqQqQdQq", 0x406, 5 * 16, 4, 7, 12, -1, 20, 0.5, 7, 16)
_Member = tuple[str, AvroType, Any]  # name, type, default


@dataclass(slots=True)
class _Node:
    """A type within the event's: the event itself, a field, an array's items, an enum's symbol."""

    name: str
    kind: str
    is_nullable: bool
    arrays: int  # around it: within one, an event has any number of its values
    dtype: pl.DataType
    default: bytes  # of a field, as JSON; empty where it has none
    default_bytes: int  # of this default, and of those around it: what an event has of it without a byte of JSON
    members: range = range(0)  # the nodes of a record's fields, an array's items, an enum's symbols


class ColumnReader:
    """Reads events into the columns of these fields."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """Args:
        fields: of types that JSON has a form of.

        Raises:
            LookupError: `columns.c` is not compiled, this build of yyjson is not laid out as expected, or arrays lie too
                deep within arrays.
        """
        self._yyjson = _Yyjson()
        self._nodes = _flattened([(field.name, field.type, field.default) for field in fields])
        if max(node.arrays for node in self._nodes) > _DEEPEST:
            raise LookupError(f"arrays lie within arrays, more than {_DEEPEST} deep")
        kinds = [node.kind for node in self._nodes]
        self._is_text = np.array([kind in _TEXTS for kind in kinds])
        self._has_valid = np.array([node.is_nullable and node.kind not in _REALS for node in self._nodes])
        self._widths = np.array(  # bytes of a value: its cell where that is a number, its length, its validity
            [
                [np.dtype(_NUMBERS[kind]).itemsize if kind in _NUMBERS else 0 for kind in kinds],
                [8 if kind in (*_TEXTS, "array") else 0 for kind in kinds],
                self._has_valid,
            ]
        )
        self._repeats = np.array([node.arrays > 0 for node in self._nodes])
        self._default_bytes = np.array([node.default_bytes for node in self._nodes])
        self._names = [node.name.encode() for node in self._nodes]
        self._template = np.array(
            [self._described(*each) for each in zip(self._nodes, self._names, strict=True)], _NODE
        )
        self._room_of_event = int(self._sizes(1, 0).sum())
        self._room_of_byte = int(self._sizes(0, 16).sum()) // 16 + _FOR_YYJSON
        self._spare: list[npt.NDArray[np.uint8]] = []

    def read(self, values: Packed) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
        """Return a row per event that could be read, in their order, and which values are none, or are left to `json_each`."""
        rooms = self._room_of_event + self._room_of_byte * values.lengths
        if (is_large := rooms > ROOM).any():
            frame, odd = self.read(values.take(np.flatnonzero(~is_large)))
            is_large[~is_large] = odd
            return frame, is_large
        cuts = np.flatnonzero(np.diff(rooms.cumsum() // ROOM)) + 1
        bounds = [0, *cuts.tolist(), len(values)]
        parts = [self._piece(values[start:stop]) for start, stop in pairwise(bounds)]
        if len(parts) == 1:
            return parts[0]
        return pl.concat([frame for frame, _ in parts], rechunk=True), np.concatenate([odd for _, odd in parts])

    def _piece(self, values: Packed) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
        filled = self._filled(values)
        odd = self._yyjson.fill(filled, values)
        frame = pl.DataFrame([self._series(index, filled) for index in self._nodes[0].members])
        if len(filled.memory) == _KEPT:
            self._spare.append(filled.memory)  # nothing of it is in the frame
        return frame, odd

    def _filled(self, values: Packed) -> "_Filled":
        """Room for what the events can fill."""
        count, total = len(values), int(values.lengths.sum())
        nodes = self._template.copy()
        nodes["capacity"], nodes["room"] = self._most(count, total)
        sizes = self._sizes(count, total)
        for_yyjson = _FOR_YYJSON * values.longest + 1024
        starts = for_yyjson + -for_yyjson % 8 + sizes.cumsum().reshape(sizes.shape) - sizes
        memory = self._memory(int(starts[-1, -1] + sizes[-1, -1]))
        nodes["cells"], nodes["lengths"], valid = memory.ctypes.data + starts
        nodes["valid"] = np.where(self._has_valid, valid, 0)
        return _Filled(nodes, memory, for_yyjson, starts, np.zeros((5, len(nodes)), np.int64))

    def _memory(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes at least. None is taken before it is filled; of what numpy gives, a byte may take two megabytes."""
        if size <= _KEPT and self._spare:
            with suppress(IndexError):  # another thread was quicker
                return self._spare.pop()
        pages = mmap.mmap(-1, max(size, _KEPT))
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(pages, np.uint8)

    def _most(self, count: int, total: int) -> tuple[Numbers, Numbers]:
        """The values that each node may get, and their bytes of text. A value takes two bytes of JSON or of a default.

        Defaults of fields within arrays' items may be more: the page then leaves the event to `json_each`.
        """
        by_default = count * self._default_bytes
        return count + self._repeats * (total // 2 + by_default), self._is_text * (total + by_default)

    def _sizes(self, count: int, total: int) -> Numbers:
        """Bytes of each node's cells, lengths and validity, [3, nodes]."""
        capacity, room = self._most(count, total)
        sizes = self._widths * capacity
        sizes[0] += room
        return sizes + -sizes % 8

    def _series(self, index: int, filled: "_Filled") -> pl.Series:
        """The column of a node."""
        node, count = self._nodes[index], int(filled.counters[0, index])
        if not count:
            return pl.Series(node.name, [], node.dtype)
        if node.kind in _NUMBERS:
            # The null of a real is NaN, which JSON has no form of.
            numbers = filled.part(0, index, _NUMBERS[node.kind], count).copy()  # the series is of the same memory
            column = pl.Series(node.name, numbers, nan_to_null=node.is_nullable and node.kind in _REALS)
        elif node.kind == "record":
            column = _records(node, [self._series(member, filled) for member in node.members], count)
        else:
            lengths = filled.part(1, index, np.int64, count)
            if node.kind == "array":
                column = _lists(node.name, self._series(node.members[0], filled), lengths)
            else:
                utf8 = filled.part(0, index, np.uint8, int(filled.counters[1, index])).copy()
                column = Texts(Packed(utf8, lengths.cumsum() - lengths, lengths)).column(node.name)
        if not self._has_valid[index] or (valid := filled.part(2, index, np.bool_, count)).all():
            return column
        return column.zip_with(pl.Series(valid), pl.Series([None], dtype=node.dtype).new_from_index(0, count))

    def _described(self, node: _Node, name: bytes) -> tuple[int, ...]:
        address = ctypes.cast(ctypes.c_char_p(name), _POINTER).value or 0
        kind, members, default = _KINDS.index(node.kind), node.members, self._yyjson.parsed(node.default)
        return (kind, node.is_nullable, members.start, len(members), address, len(name), default, *(0,) * 5)


@dataclass(frozen=True, slots=True)
class _Filled:
    """What the C page has filled, or may."""

    nodes: npt.NDArray[Any]  # `node`, as it has them
    memory: npt.NDArray[np.uint8]
    for_yyjson: int  # bytes at its begin
    starts: Numbers  # in `memory`: of each node's cells, lengths and validity, [3, nodes]
    counters: Numbers  # [5, nodes]: values, bytes of text, and what it uses itself

    def part(self, which: int, index: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        """So many of a node's cells (0), lengths (1) or validity (2)."""
        return np.frombuffer(self.memory, dtype, count, int(self.starts[which, index]))


class _Yyjson:
    """The functions of yyjson, and of the C page that calls them."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("cyyjson")
        if found is None or found.origin is None:
            raise LookupError("the package yyjson is not installed")
        try:
            library = ctypes.CDLL(found.origin)
            self._read, self._pool = library["yyjson_read_opts"], library["yyjson_alc_pool_init"]
            version = library["yyjson_version"]()
            self._fill = ctypes.CDLL(str(LIBRARY))["json_columns"]
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        if version >> 16:  # 0xMMNNPP
            raise LookupError(f"its version {version:#08x} of yyjson is not known here")
        self._read.restype = _POINTER
        self._read.argtypes = _POINTER, ctypes.c_size_t, ctypes.c_uint32, _POINTER, _POINTER
        self._pool.argtypes = _POINTER, _POINTER, ctypes.c_size_t
        self._fill.restype = None
        nodes, values = (_POINTER, _COUNT, _POINTER), (_POINTER, _POINTER, _POINTER, _COUNT)
        self._fill.argtypes = _POINTER, *nodes, *values, _POINTER, _COUNT, _POINTER
        self._functions = (_POINTER * 2)(*(ctypes.cast(each, _POINTER).value for each in (self._read, self._pool)))
        self._kept: list[npt.NDArray[np.uint8]] = []
        if ctypes.string_at(self.parsed(_KNOWN), len(_AS_VALUES)) != _AS_VALUES:
            raise LookupError("yyjson does not lay out values as expected")

    def parsed(self, text: bytes) -> int:
        """Address of a value, which stays where it is; 0 where the text is no JSON."""
        memory, allocator = np.empty(_FOR_YYJSON * len(text) + 1024, np.uint8), (_POINTER * 4)()
        self._pool(allocator, memory.ctypes.data, memory.nbytes)
        document = self._read(text, len(text), 0, allocator, None)
        if not document:
            return 0
        self._kept.append(memory)
        return _POINTER.from_address(document).value or 0

    def fill(self, filled: _Filled, values: Packed) -> npt.NDArray[np.bool_]:
        """Append each value that can be read; returns which can not."""
        odd = np.empty(len(values), np.bool_)
        starts, lengths = (np.ascontiguousarray(each, np.int64) for each in (values.starts, values.lengths))
        nodes, counters, buffer, memory, starts_at, lengths_at, odd_at = (
            each.ctypes.data
            for each in (filled.nodes, filled.counters, values.buffer, filled.memory, starts, lengths, odd)
        )
        of_nodes, of_values = (nodes, len(filled.nodes), counters), (buffer, starts_at, lengths_at, len(values))
        self._fill(self._functions, *of_nodes, *of_values, memory, filled.for_yyjson, odd_at)
        return odd


def _flattened(fields: Sequence[_Member]) -> list[_Node]:
    """The event and all types within it, the members of each side by side."""
    nodes = [_Node("", "record", False, 0, pl.Struct([]), b"", 0)]
    inside = [fields]
    for node, members in zip(nodes, inside, strict=True):  # both grow
        node.members = range(len(nodes), len(nodes) + len(members))
        arrays = node.arrays + (node.kind == "array")
        for name, tree, value in members:
            core, is_nullable = nullable(tree)
            default = b"" if value is NO_DEFAULT else json.dumps(value).encode()
            dtype = pl.Null() if tree == "symbol" else dtype_of(tree)
            size = node.default_bytes + len(default)
            nodes.append(_Node(name, kind_of(core), is_nullable, arrays, dtype, default, size))
            inside.append(list(_members(core)))
    return nodes


def _members(tree: AvroType) -> Iterator[_Member]:
    match kind_of(tree):
        case "array":
            yield "", tree["items"], NO_DEFAULT
        case "enum":  # sorted as the page looks for them
            symbols = sorted(tree["symbols"], key=lambda symbol: (len(symbol), symbol))
            yield from ((symbol, "symbol", NO_DEFAULT) for symbol in symbols)
        case "record":
            yield from ((entry["name"], entry["type"], default_of(entry)) for entry in tree["fields"])


def _records(node: _Node, members: list[pl.Series], count: int) -> pl.Series:
    if not members:
        return pl.Series(node.name, [{}], node.dtype).new_from_index(0, count)
    return pl.DataFrame(members).to_struct(node.name)


def _lists(name: str, items: pl.Series, lengths: Numbers) -> pl.Series:
    """A column of lists from their items, end to end."""
    width = int(lengths[0])
    if width and items.dtype.is_numeric() and (lengths == width).all():  # as vectors are: a seventh of the time
        return items.reshape((len(lengths), width)).cast(pl.List(items.dtype)).alias(name)
    places = pl.DataFrame({"start": lengths.cumsum() - lengths, "length": lengths})
    return places.select(pl.lit(items.implode()).list.slice("start", "length").alias(name)).to_series()
