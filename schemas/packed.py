"""Byte strings and texts in one buffer, so that numpy can process all of them per call."""

from collections.abc import Iterator, Sequence
from typing import cast, overload

import numpy as np
import numpy.typing as npt
import polars as pl

Bytes1D = npt.NDArray[np.uint8]
Bytes2D = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
# Mean bytes of a string, up to which strings are reordered by an index per byte. For longer ones, this takes too much memory.
_MAX_INDEXED_LENGTH = 64
_MAX_OBJECTS = 256  # strings, up to which it is faster to make a column from Python objects


class Packed(Sequence[bytes]):
    """A sequence of byte strings in one buffer. A slice shares the buffer, but not the Python objects."""

    def __init__(self, buffer: Bytes1D, starts: Numbers, lengths: Numbers) -> None:
        """Args:
        buffer: holds the strings; contiguous.
        starts: where each string begins in the buffer, ascending.
        lengths: of each string, in bytes.
        """
        self.buffer = buffer
        self.starts = starts
        self.lengths = lengths
        self._strings: Sequence[bytes] | None = None  # the strings as Python objects, if they exist

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Packed":
        """Copy strings into a buffer; packed ones are returned as they are. It keeps the objects, to access single strings."""
        if isinstance(strings, Packed):
            return strings
        packed = cls.joined(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))
        packed._strings = strings
        return packed

    @classmethod
    def concat(cls, parts: Sequence["Packed"]) -> "Packed":
        """The strings of all parts. A single part is not copied."""
        if len(parts) == 1:
            return parts[0]
        return cls.joined(b"".join(part.whole for part in parts), np.concatenate([part.lengths for part in parts]))

    @classmethod
    def joined(cls, strings: bytes, lengths: Numbers) -> "Packed":
        """The strings that lie end to end in `strings`."""
        return cls(np.frombuffer(strings, np.uint8), lengths.cumsum() - lengths, lengths)

    @classmethod
    def table(cls, cells: npt.NDArray[np.uint8]) -> "Packed":
        """The rows of a contiguous array, [strings, bytes]."""
        rows, width = cells.shape
        return cls(cells.reshape(-1), np.arange(rows) * width, np.full(rows, width))

    def __len__(self) -> int:
        """The number of strings."""
        return len(self.lengths)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> "Packed": ...
    def __getitem__(self, place: int | slice) -> "bytes | Packed":
        """One string, or a range."""
        if isinstance(place, slice):
            return Packed(self.buffer, self.starts[place], self.lengths[place])
        if self._strings is not None:
            return self._strings[place]
        start = int(self.starts[place])
        return self.buffer[start : start + int(self.lengths[place])].tobytes()

    def take(self, rows: Numbers) -> "Packed":
        """Select strings by ascending indices. If all have one width, they lie end to end again."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[rows])
        return Packed(self.buffer, self.starts[rows], self.lengths[rows])

    def reordered(self, order: Numbers) -> "Packed":
        """Copy the strings at these indices, in any order."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[order])
        lengths = self.lengths[order]
        if lengths.sum() > _MAX_INDEXED_LENGTH * len(order):
            return Packed.joined(b"".join([self[place] for place in order.tolist()]), lengths)
        starts = lengths.cumsum() - lengths
        places = np.repeat(self.starts[order] - starts, lengths) + np.arange(lengths.sum())
        return Packed(self.buffer[places], starts, lengths)

    def __iter__(self) -> Iterator[bytes]:
        """Each as a Python object."""
        if self._strings is not None:
            return iter(self._strings)
        if (cells := self.cells) is not None:
            # Opaque items of the same width: tolist() makes all objects in one call.
            items = cells.reshape(-1).view(np.dtype((np.void, cells.shape[1])))
            return iter(cast("list[bytes]", items.tolist()))
        if not len(self):
            return iter(())
        first, ends = int(self.starts[0]), self.starts + self.lengths
        buffer = self.buffer[first : int(ends[-1])].tobytes()  # only this slice's part, because the buffer may be large
        starts, stops = (self.starts - first).tolist(), (ends - first).tolist()
        return iter([buffer[start:stop] for start, stop in zip(starts, stops, strict=True)])

    @property
    def cells(self) -> Bytes2D | None:
        """The strings as an array [strings, bytes]; None if they are empty, don't have one width, or don't lie end to end."""
        if not len(self):
            return None
        first, width = int(self.starts[0]), int(self.lengths[0])
        last = int(self.starts[-1]) + width
        if not width or last - first != width * len(self) or not (self.lengths == width).all():
            return None
        return self.buffer[first:last].reshape(-1, width)

    @property
    def whole(self) -> "memoryview | bytes":
        """The strings, joined."""
        if not len(self):
            return b""
        first, last = int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])
        if last - first == int(self.lengths.sum()):
            return self.buffer[first:last].data
        return b"".join(self)

    def column(self, name: str) -> pl.Series:
        """A polars column of bytes."""
        if (cells := self.cells) is not None:
            return pl.Series(name, cells).cast(pl.List(pl.UInt8)).cast(pl.Binary)
        if len(self) < _MAX_OBJECTS:
            return pl.Series(name, list(self), pl.Binary)
        places = pl.DataFrame({"start": self.starts, "length": self.lengths})
        whole = pl.lit(pl.Series([self.buffer.tobytes()]))
        return places.select(whole.bin.slice("start", "length").alias(name)).to_series()

    @property
    def longest(self) -> int:
        """Bytes of the longest string; 0 if there is none."""
        return int(self.lengths.max(initial=0))


class Texts(Sequence[str]):
    """A sequence of texts in one buffer. A slice shares the buffer."""

    def __init__(self, utf8: Packed) -> None:
        self.utf8 = utf8

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """Copy texts into a buffer; packed ones are returned as they are.

        Raises TypeError where one is no str, and UnicodeEncodeError where one is no valid Unicode.
        """
        if isinstance(texts, Texts):
            return texts
        joined = "".join(texts)
        if not joined.isascii():
            return cls(Packed.of(list(map(str.encode, texts))))
        # A character is a byte.
        return cls(Packed.joined(joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts))))

    @classmethod
    def of_column(cls, column: pl.Series) -> "Texts":
        """The texts of a polars column without nulls."""
        width = len(column[0].encode()) if len(column) else 0
        if width:
            try:  # for texts of one width, such as many IDs; it doesn't wake polars' threads
                cells = column.cast(pl.Binary).cast(pl.List(pl.UInt8)).cast(pl.Array(pl.UInt8, width))
                return cls(Packed.table(np.ascontiguousarray(cells.to_numpy())))
            except pl.exceptions.PolarsError:
                pass
        return cls(Packed.joined(column.str.join().item().encode(), column.str.len_bytes().to_numpy().astype(np.int64)))

    def column(self, name: str) -> pl.Series:
        """A polars column. Raises PolarsError if a text is not UTF-8."""
        return self.utf8.column(name).cast(pl.String)

    @classmethod
    def concat(cls, parts: Sequence["Texts"]) -> "Texts":
        """The texts of all parts."""
        return cls(Packed.concat([part.utf8 for part in parts]))

    def __len__(self) -> int:
        """The number of strings."""
        return len(self.utf8)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "Texts": ...
    def __getitem__(self, place: int | slice) -> "str | Texts":
        """One string, or a range."""
        return Texts(self.utf8[place]) if isinstance(place, slice) else self.utf8[place].decode()

    def take(self, rows: Numbers) -> "Texts":
        """Select strings by ascending indices."""
        return Texts(self.utf8.take(rows))

    def reordered(self, order: Numbers) -> "Texts":
        """Copy the strings at these indices, in any order."""
        return Texts(self.utf8.reordered(order))

    def __iter__(self) -> Iterator[str]:
        """Each as a Python object."""
        return map(bytes.decode, self.utf8)


def taken(strings: Sequence[bytes | None], rows: Numbers) -> Sequence[bytes | None]:
    """Select strings by ascending indices."""
    return strings.take(rows) if isinstance(strings, Packed) else [strings[row] for row in rows.tolist()]


def lengths_of(strings: Sequence[bytes | None]) -> Numbers:
    """The length of each string in bytes; 0 for null."""
    if isinstance(strings, Packed):
        return strings.lengths
    return np.fromiter((len(string or b"") for string in strings), np.int64, len(strings))
