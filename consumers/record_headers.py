"""Headers of records in packed form. They take only a few bytes more than on the wire."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_LENGTHS = struct.Struct("=ii")  # of a header's name and value; a null value has the length -1


@dataclass(frozen=True, slots=True)
class RecordHeaders:
    """A record's headers in order; a name may occur several times.

    Iteration creates the pairs of name and value, and doesn't store them. A producer can put 100,000 headers of two bytes into a
    record. As Python objects, they would take 80 times as many bytes while the event is in flight.
    """

    # Each header: the two lengths, the name in UTF-8, the value. `fetched.c` writes the same format, and `bulk.c` reads it.
    packed: bytes

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> RecordHeaders:
        """Pack headers."""
        pieces = []
        for text, value in headers:
            name = text.encode()
            pieces += [_LENGTHS.pack(len(name), -1 if value is None else len(value)), name, value or b""]
        return cls(b"".join(pieces))

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        """Each header's name and value. If a name isn't UTF-8, U+FFFD replaces the invalid bytes."""
        packed, at = self.packed, 0
        while at < len(packed):
            name_length, value_length = _LENGTHS.unpack_from(packed, at)
            value_at = at + _LENGTHS.size + name_length
            name = packed[at + _LENGTHS.size : value_at].decode(errors="replace")
            at = value_at + max(value_length, 0)
            yield name, None if value_length < 0 else packed[value_at:at]

    def named(self, names: Collection[str]) -> list[tuple[str, bytes | None]]:
        """The headers with one of these names, in order."""
        if not any(name.encode() in self.packed for name in names):  # much faster than a check of each header
            return []
        return [header for header in self if header[0] in names]


@dataclass(frozen=True, slots=True)
class HeaderRows:
    """The headers of several records. Only those with certain names are sent."""

    packed: Packed  # each record's as in `RecordHeaders`; empty: none
    names: Collection[str]

    @classmethod
    def of_columns(cls, columns: Sequence[tuple[str, Packed]]) -> HeaderRows:
        """Headers that all records have: each name with one value per record."""
        pieces: list[Piece] = []
        for text, values in columns:
            name = text.encode()
            lengths = np.stack([np.full(len(values), len(name)), values.lengths], axis=1).astype(np.int32)
            pieces += [lengths.view(np.uint8), name, values]
        return cls(interleave(pieces, len(columns[0][1])), [name for name, _ in columns])

    def __len__(self) -> int:
        """The number of records."""
        return len(self.packed)

    def __getitem__(self, rows: slice) -> HeaderRows:
        """A range of records."""
        return HeaderRows(self.packed[rows], self.names)

    def __iter__(self) -> Iterator[list[tuple[str, bytes | None]]]:
        """The headers of each record."""
        return (RecordHeaders(packed).named(self.names) for packed in self.packed)
