"""Encodes Avro by columns: numpy makes the bytes of a whole batch at once, as pieces that `interleave` joins into rows.

Encodings: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from millstream.schemas.avro.varint import MORE_BIT, varint
from millstream.schemas.interleave import Piece
from millstream.schemas.packed import Bytes2D, Packed, Texts

# The smallest numbers that need 2, 3, ... 10 bytes.
_SIZE_LIMITS: Final = np.array([1 << bits for bits in range(7, 70, 7)], dtype=np.uint64)
# Row n: MORE_BIT at the bytes of a varint of n bytes that have it; below, its first 8 bytes as one number.
_MORE_BITS: Final = np.array(
    [[MORE_BIT if place < size - 1 else 0 for place in range(10)] for size in range(11)], np.uint8
)
_MORE_BITS_64: Final = tuple(np.array(int.from_bytes(bits[:8].tobytes(), "little"), np.uint64) for bits in _MORE_BITS)
# The steps of _spread: the bits that stay, the bits that move up, and how far. (They are arrays without an axis, because numpy
# combines these with an array in half the time that it needs for a number.)
_SPREAD_STEPS: Final = tuple(
    (np.array(low, np.uint64), np.array(high, np.uint64), np.array(gap, np.uint64))
    for low, high, gap in (
        (0x0000_0000_0FFF_FFFF, 0x00FF_FFFF_F000_0000, 4),
        (0x0000_3FFF_0000_3FFF, 0x0FFF_C000_0FFF_C000, 2),
        (0x007F_007F_007F_007F, 0x3F80_3F80_3F80_3F80, 1),
    )
)


_LENGTHS: Final = tuple(varint(length) for length in range(1024))
NULL: Final = varint(0)
VALUE: Final = varint(1)
"""The branches of a nullable field, null first."""


def text(value: str) -> bytes:
    """One Avro `string`."""
    encoded = value.encode()
    return length(len(encoded)) + encoded


def length(value: int) -> bytes:
    """One Avro `long` that is not negative. It is faster than `varint` for small numbers."""
    return _LENGTHS[value] if value < len(_LENGTHS) else varint(value)


def nullable_bytes(value: bytes | None) -> bytes:
    """One Avro union of null and `bytes`."""
    return NULL if value is None else VALUE + length(len(value)) + value


def long_pieces(values: npt.NDArray[np.int64], tag: bytes = b"") -> list[Piece]:
    """The pieces of `values`, int64 of shape [rows, items]: each item is `tag` (at most one byte) and its varint."""
    if not values.size:
        return []
    rows, items = values.shape
    flat = values.reshape(-1)
    zigzag = ((flat << 1) ^ (flat >> 63)).view(np.uint64)
    shortest, longest = _varint_bytes(np.minimum.reduce(zigzag)), _varint_bytes(np.maximum.reduce(zigzag))
    lead = len(tag)
    cells = np.empty((zigzag.size, lead + longest), np.uint8)
    if tag:
        cells[:, 0] = tag[0]
    if shortest == longest:
        _spread(zigzag, cells[:, lead:], _MORE_BITS_64[longest])
        cells[:, lead + 8 : -1] |= MORE_BIT
        return [cells.reshape(rows, items * (lead + longest))]
    lengths = 1 + _SIZE_LIMITS.searchsorted(zigzag, side="right")
    _spread(zigzag, cells[:, lead:], _MORE_BITS_64[1])
    cells[:, lead:] |= _MORE_BITS[:, :longest].take(lengths, axis=0)
    used = (np.arange(-lead, longest) < np.arange(len(_MORE_BITS))[:, None]).take(lengths, axis=0)
    return [Packed.joined(cells[used].tobytes(), (lengths + lead).reshape(rows, items).sum(axis=1))]


def _varint_bytes(zigzag: np.uint64) -> int:
    return max(1, -(-int(zigzag).bit_length() // 7))


def _spread(zigzag: npt.NDArray[np.uint64], digits: Bytes2D, continued: npt.NDArray[np.uint64]) -> None:
    """Write the lowest seven bits of each number into the first column of its row, the next seven into the next.

    The eight groups of the lower 56 bits move apart in three steps, each of which halves the groups: far quicker than
    a shift per column. `continued` is added to the eight bytes.
    """
    spread = zigzag
    for low, high, gap in _SPREAD_STEPS:
        spread = (spread & low) | ((spread & high) << gap)
    width = digits.shape[1]
    digits[:, :8] = (spread | continued).astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width]
    for place in range(8, width):
        digits[:, place] = (zigzag >> np.uint64(7 * place)) & np.uint64(0x7F)


def fixed_pieces(values: npt.NDArray[np.generic], tag: bytes) -> list[Piece]:
    """The pieces of `values`, a little-endian dtype of shape [rows, items]: each item is `tag` (a byte) and its bytes."""
    if not values.size:
        return []
    rows, items = values.shape
    tagged = np.empty((rows, items), np.dtype([("tag", np.uint8), ("value", values.dtype)]))
    tagged["tag"] = tag[0]
    tagged["value"] = values
    return [tagged.view(np.uint8).reshape(rows, -1)]


def text_pieces(values: Sequence[str]) -> list[Piece]:
    """The pieces of one Avro `string` per row.

    Raises TypeError if a value is not a str, and UnicodeEncodeError if one is not valid Unicode.
    """
    if not values:
        return []
    return bytes_pieces(Texts.of(values).utf8)


def bytes_pieces(values: Packed) -> list[Piece]:
    """The pieces of one Avro `bytes` per row."""
    if (cells := values.cells) is not None:
        return [varint(cells.shape[1]), cells]
    return [*long_pieces(values.lengths.reshape(-1, 1)), values]


def nullable_pieces(values: Sequence[bytes | None]) -> list[Piece]:
    """The pieces of one Avro union of null and `bytes` per row."""
    if isinstance(values, Packed):
        return [VALUE, *bytes_pieces(values)]
    return [Packed.of(list(map(nullable_bytes, values)))]
