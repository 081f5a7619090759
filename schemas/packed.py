"""Byte strings and texts in one buffer, so that numpy can process all of them per call."""

from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints

Bytes1D = npt.NDArray[np.uint8]
Bytes2D = npt.NDArray[np.uint8]
# Mean bytes of a string, up to which strings are handled by an index or a copy per byte. For longer ones, this needs too
# much memory.
_MAX_INDEXED_LENGTH = 64


class Packed(Sequence[bytes]):
    """A sequence of byte strings in one buffer. A slice shares the buffer, but not the Python objects."""

    def __init__(self, buffer: Bytes1D, starts: Ints, lengths: Ints) -> None:
        """Args:
        buffer: holds the strings; contiguous.
        starts: where each string begins in the buffer, ascending.
        lengths: of each string, in bytes.
        """
        self.buffer = buffer
        self.starts = starts
        self.lengths = lengths
        self._strings: Sequence[bytes] | None = None  # the strings as Python objects, if they exist

    @property
    def parts(self) -> "Sequence[Packed]":
        """The same strings, in parts with a buffer each. So C can read a `Chained` without copying it."""
        return (self,)

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
    def joined(cls, strings: bytes, lengths: Ints) -> "Packed":
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

    def take(self, rows: Ints) -> "Packed":
        """Select strings by ascending indices. If all have one width, they lie end to end again."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[rows])
        return Packed(self.buffer, self.starts[rows], self.lengths[rows])

    def reordered(self, order: Ints) -> "Packed":
        """Copy the strings at these indices, in any order."""
        if (cells := self.cells) is not None:
            return Packed.table(cells[order])
        lengths = self.lengths[order]
        if lengths.sum() > _MAX_INDEXED_LENGTH * len(order):
            return Packed.joined(b"".join([self[place] for place in order.tolist()]), lengths)
        return Packed(self.buffer[spans(self.starts[order], lengths)], lengths.cumsum() - lengths, lengths)

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

    @property
    def longest(self) -> int:
        """Bytes of the longest string; 0 if there is none."""
        return int(self.lengths.max(initial=0))


class Chained(Packed):
    """The strings of several parts. They are copied into one buffer when it is first used, which may be never."""

    def __init__(self, parts: Sequence[Packed]) -> None:
        """Args:
        parts: at least one.
        """
        self._parts = parts
        self.lengths = np.concatenate([part.lengths for part in parts])
        self._strings = None

    @property
    def parts(self) -> Sequence[Packed]:
        """See Packed."""
        return self._parts

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        # Python calls this for an attribute that doesn't exist yet. Two threads may do so at a time: both make the same strings.
        if name not in {"buffer", "starts"}:
            raise AttributeError(name)
        joined = Packed.concat(self._parts)
        self.starts, self.buffer = joined.starts, joined.buffer
        return joined.starts if name == "starts" else joined.buffer

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Packed: ...
    def __getitem__(self, place: int | slice) -> bytes | Packed:
        """One string, or a range."""
        is_all = isinstance(place, slice) and range(len(self))[place] == range(len(self))
        return Chained([part[:] for part in self._parts]) if is_all else super().__getitem__(place)


class Picked(Packed):
    """A few strings, each of which may be there many times. They are not copied, so only their places cost memory."""

    def __init__(self, strings: Sequence[bytes], places: Ints) -> None:
        """Args:
        strings: at least one.
        places: for each element of the sequence, the index of its string.
        """
        packed = Packed.of(strings)
        self._distinct = strings
        self._places = places
        super().__init__(packed.buffer, packed.starts[places], packed.lengths[places])

    @property
    def cells(self) -> None:
        """None: the strings don't lie end to end."""
        return None

    @property
    def whole(self) -> bytes:
        """See Packed."""
        return b"".join(self)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> "Packed": ...
    def __getitem__(self, place: int | slice) -> "bytes | Packed":
        """One string, or a range."""
        if isinstance(place, slice):
            return Picked(self._distinct, self._places[place])
        return self._distinct[int(self._places[place])]

    def take(self, rows: Ints) -> "Packed":
        """See Packed."""
        return Picked(self._distinct, self._places[rows])

    def reordered(self, order: Ints) -> "Packed":
        """See Packed."""
        return self.take(order)

    def __iter__(self) -> Iterator[bytes]:
        """Each as a Python object."""
        return map(self._distinct.__getitem__, self._places.tolist())


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

    def take(self, rows: Ints) -> "Texts":
        """Select strings by ascending indices."""
        return Texts(self.utf8.take(rows))

    def reordered(self, order: Ints) -> "Texts":
        """Copy the strings at these indices, in any order."""
        return Texts(self.utf8.reordered(order))

    def __iter__(self) -> Iterator[str]:
        """Each as a Python object."""
        whole = np.frombuffer(self.utf8.whole, np.uint8)
        if (
            not len(self) or len(whole) > _MAX_INDEXED_LENGTH * len(self) or not whole.all()
        ):  # long, or with zeros of their own
            return map(bytes.decode, self.utf8)
        # One text with a zero between them, which is split in one call: a third of the time.
        return iter(np.insert(whole, self.utf8.lengths.cumsum()[:-1], 0).tobytes().decode().split("\0"))

    def characters(self) -> Ints:
        """How many characters each has."""
        if self.utf8.buffer.max(initial=0) < 0x80:  # each is a byte
            return self.utf8.lengths
        return np.fromiter(map(len, self), np.int64, len(self))


def spans(starts: Ints, lengths: Ints) -> Ints:
    """The places of so many items from each start on, end to end."""
    ends = lengths.cumsum()
    places = np.arange(int(lengths.sum()))
    places += np.repeat(starts - (ends - lengths), lengths)
    return places


def taken(strings: Sequence[bytes | None], rows: Ints) -> Sequence[bytes | None]:
    """Select strings by ascending indices."""
    return strings.take(rows) if isinstance(strings, Packed) else [strings[row] for row in rows.tolist()]


def lengths_of(strings: Sequence[bytes | None]) -> Ints:
    """The length of each string in bytes; 0 for null."""
    if isinstance(strings, Packed):
        return strings.lengths
    if not any(strings):  # all are null, or empty
        return np.zeros(len(strings), np.int64)
    return np.fromiter((len(string or b"") for string in strings), np.int64, len(strings))
