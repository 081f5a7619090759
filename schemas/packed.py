"""Byte strings, and texts, side by side in one buffer: what Python does for each string apart, numpy does for all."""

from collections.abc import Iterator, Sequence
from typing import cast, overload

import numpy as np
import numpy.typing as npt
import polars as pl

Bytes1D = npt.NDArray[np.uint8]
Bytes2D = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_MAX_INDEXED_LENGTH = 64  # bytes of a string, on average: of longer ones an index for each byte takes too much memory
_MAX_OBJECTS = 256  # strings, of which a column is quicker made by way of objects


class Packed(Sequence[bytes]):
    """Byte strings in one buffer, as a sequence of them; a slice shares the buffer, and no more than that."""

    def __init__(self, buffer: Bytes1D, starts: Numbers, lengths: Numbers) -> None:
        """Args:
        buffer: what holds them, contiguous.
        starts: where each begins in it, ascending.
        lengths: of each, in bytes.
        """
        self.buffer = buffer
        self.starts = starts
        self.lengths = lengths
        self._strings: Sequence[bytes] | None = None  # the objects, while there are any

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Packed":
        """These strings, copied; as they are where they are packed already. Keeps the objects, for whoever asks for each."""
        if isinstance(strings, Packed):
            return strings
        packed = cls.joined(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))
        packed._strings = strings
        return packed

    @classmethod
    def concat(cls, parts: Sequence["Packed"]) -> "Packed":
        """The strings of all parts; as it is where there is one."""
        if len(parts) == 1:
            return parts[0]
        return cls.joined(b"".join(part.whole for part in parts), np.concatenate([part.lengths for part in parts]))

    @classmethod
    def joined(cls, strings: bytes, lengths: Numbers) -> "Packed":
        """The strings that lie in this one, end to end."""
        return cls(np.frombuffer(strings, np.uint8), lengths.cumsum() - lengths, lengths)

    @classmethod
    def table(cls, cells: npt.NDArray[np.uint8]) -> "Packed":
        """The rows of an array, contiguous, [strings, bytes]."""
        rows, width = cells.shape
        return cls(cells.reshape(-1), np.arange(rows) * width, np.full(rows, width))

    def __len__(self) -> int:
        """How many they are."""
        return len(self.lengths)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> "Packed": ...
    def __getitem__(self, place: int | slice) -> "bytes | Packed":
        """One of them, or a range."""
        if isinstance(place, slice):
            return Packed(self.buffer, self.starts[place], self.lengths[place])
        if self._strings is not None:
            return self._strings[place]
        start = int(self.starts[place])
        return self.buffer[start : start + int(self.lengths[place])].tobytes()

    def take(self, rows: Numbers) -> "Packed":
        """Those at these places, ascending; end to end again where they are of one width."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[rows])
        return Packed(self.buffer, self.starts[rows], self.lengths[rows])

    def reordered(self, order: Numbers) -> "Packed":
        """Those at these places, in any order, copied."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[order])
        lengths = self.lengths[order]
        if lengths.sum() > _MAX_INDEXED_LENGTH * len(order):
            return Packed.joined(b"".join([self[place] for place in order.tolist()]), lengths)
        starts = lengths.cumsum() - lengths
        places = np.repeat(self.starts[order] - starts, lengths) + np.arange(lengths.sum())
        return Packed(self.buffer[places], starts, lengths)

    def __iter__(self) -> Iterator[bytes]:
        """Each as an object of its own."""
        if self._strings is not None:
            return iter(self._strings)
        if (cells := self.cells) is not None:
            # Opaque items of the same width: tolist() makes all objects in one call.
            items = cells.reshape(-1).view(np.dtype((np.void, cells.shape[1])))
            return iter(cast("list[bytes]", items.tolist()))
        if not len(self):
            return iter(())
        first, ends = int(self.starts[0]), self.starts + self.lengths
        buffer = self.buffer[first : int(ends[-1])].tobytes()  # a slice's part of what may be a large one
        starts, stops = (self.starts - first).tolist(), (ends - first).tolist()
        return iter([buffer[start:stop] for start, stop in zip(starts, stops, strict=True)])

    @property
    def cells(self) -> Bytes2D | None:
        """The strings as the rows of a table, [strings, bytes]; None where not all are of one width and end to end, or empty."""
        if not len(self):
            return None
        first, width = int(self.starts[0]), int(self.lengths[0])
        last = int(self.starts[-1]) + width
        if not width or last - first != width * len(self) or not (self.lengths == width).all():
            return None
        return self.buffer[first:last].reshape(-1, width)

    @property
    def whole(self) -> "memoryview | bytes":
        """The strings end to end."""
        if not len(self):
            return b""
        first, last = int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])
        if last - first == int(self.lengths.sum()):
            return self.buffer[first:last].data
        return b"".join(self)

    def column(self, name: str) -> pl.Series:
        """As a column of bytes."""
        if (cells := self.cells) is not None:
            return pl.Series(name, cells).cast(pl.List(pl.UInt8)).cast(pl.Binary)
        if len(self) < _MAX_OBJECTS:
            return pl.Series(name, list(self), pl.Binary)
        places = pl.DataFrame({"start": self.starts, "length": self.lengths})
        whole = pl.lit(pl.Series([self.buffer.tobytes()]))
        return places.select(whole.bin.slice("start", "length").alias(name)).to_series()

    @property
    def longest(self) -> int:
        """Bytes of the longest; 0 where there is none."""
        return int(self.lengths.max(initial=0))


class Texts(Sequence[str]):
    """Texts in one buffer, as a sequence of them; a slice shares the buffer."""

    def __init__(self, utf8: Packed) -> None:
        self.utf8 = utf8

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """These texts; as they are where they are packed already.

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
        """The texts of a column of them, without a null."""
        width = len(column[0].encode()) if len(column) else 0
        if width:
            try:  # where all are of one width, which ids often are; it wakes none of polars' threads
                cells = column.cast(pl.Binary).cast(pl.List(pl.UInt8)).cast(pl.Array(pl.UInt8, width))
                return cls(Packed.table(np.ascontiguousarray(cells.to_numpy())))
            except pl.exceptions.PolarsError:
                pass
        return cls(Packed.joined(column.str.join().item().encode(), column.str.len_bytes().to_numpy().astype(np.int64)))

    def column(self, name: str) -> pl.Series:
        """As a column of this name. Raises PolarsError where one is no UTF-8."""
        return self.utf8.column(name).cast(pl.String)

    @classmethod
    def concat(cls, parts: Sequence["Texts"]) -> "Texts":
        """The texts of all parts."""
        return cls(Packed.concat([part.utf8 for part in parts]))

    def __len__(self) -> int:
        """How many they are."""
        return len(self.utf8)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "Texts": ...
    def __getitem__(self, place: int | slice) -> "str | Texts":
        """One of them, or a range."""
        return Texts(self.utf8[place]) if isinstance(place, slice) else self.utf8[place].decode()

    def take(self, rows: Numbers) -> "Texts":
        """Those at these places, ascending."""
        return Texts(self.utf8.take(rows))

    def reordered(self, order: Numbers) -> "Texts":
        """Those at these places, in any order, copied."""
        return Texts(self.utf8.reordered(order))

    def __iter__(self) -> Iterator[str]:
        """Each as an object of its own."""
        return map(bytes.decode, self.utf8)


def taken(strings: Sequence[bytes | None], rows: Numbers) -> Sequence[bytes | None]:
    """Those at these places, ascending."""
    return strings.take(rows) if isinstance(strings, Packed) else [strings[row] for row in rows.tolist()]


def lengths_of(strings: Sequence[bytes | None]) -> Numbers:
    """Bytes of each; none of one that is null."""
    if isinstance(strings, Packed):
        return strings.lengths
    return np.fromiter((len(string or b"") for string in strings), np.int64, len(strings))
