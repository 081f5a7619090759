"""Byte strings side by side in one buffer: what Python does for each string apart, numpy does for all."""

from collections.abc import Iterator, Sequence
from typing import cast, overload

import numpy as np
import numpy.typing as npt

Bytes1D = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class Packed(Sequence[bytes]):
    """Byte strings in one buffer, as a sequence of them; a slice shares the buffer."""

    def __init__(self, buffer: Bytes1D, starts: Numbers, lengths: Numbers) -> None:
        """Args:
        buffer: what holds them, contiguous.
        starts: where each begins in it, ascending.
        lengths: of each, in bytes.
        """
        self.buffer = buffer
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Packed":
        """These strings, copied; as they are where they are packed already."""
        if isinstance(strings, Packed):
            return strings
        return cls.joined(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))

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
        start = int(self.starts[place])
        return self.buffer[start : start + int(self.lengths[place])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        """Each as an object of its own."""
        if not len(self):
            return iter(())
        first, width = int(self.starts[0]), int(self.lengths[0])
        last = int(self.starts[-1] + self.lengths[-1])
        if width and last - first == width * len(self) and (self.lengths == width).all():
            # Opaque items of the same width: tolist() makes all objects in one call.
            items = self.buffer[first:last].view(np.dtype((np.void, width)))
            return iter(cast("list[bytes]", items.tolist()))
        whole = self.buffer.tobytes()
        ends = self.starts + self.lengths
        return iter([whole[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)])

    @property
    def longest(self) -> int:
        """Bytes of the longest; 0 where there is none."""
        return int(self.lengths.max(initial=0))
