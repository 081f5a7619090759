"""A record's headers, in the bytes that they take on the wire and few more."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_LENGTHS = struct.Struct("=ii")  # of a header's name and value; a null value has the length -1


@dataclass(frozen=True, slots=True)
class RecordHeaders:
    """A record's headers, in their order; a name may occur several times.

    Iterating makes the pairs of name and value, and keeps none. A producer can put 100,000 headers of two bytes into a record:
    as Python objects, they would take 80 times these bytes while the event is in flight.
    """

    packed: bytes  # of each header: the two lengths, the name in UTF-8, the value; `fetched.c` writes the same

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> RecordHeaders:
        """Pack headers."""
        pieces = []
        for text, value in headers:
            name = text.encode()
            pieces += [_LENGTHS.pack(len(name), -1 if value is None else len(value)), name, value or b""]
        return cls(b"".join(pieces))

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        """Each header's name and value. In a name that is not UTF-8, U+FFFD replaces what can't be read."""
        packed, at = self.packed, 0
        while at < len(packed):
            name_length, value_length = _LENGTHS.unpack_from(packed, at)
            value_at = at + _LENGTHS.size + name_length
            name = packed[at + _LENGTHS.size : value_at].decode(errors="replace")
            at = value_at + max(value_length, 0)
            yield name, None if value_length < 0 else packed[value_at:at]

    def named(self, names: Collection[str]) -> list[tuple[str, bytes | None]]:
        """The headers that have one of these names, in their order."""
        if not any(name.encode() in self.packed for name in names):  # far quicker than to look at each header
            return []
        return [header for header in self if header[0] in names]
