"""Skips the blocks of one array in plain Python, which is faster than numpy for a few arrays with many blocks."""

from millstream.schemas.avro.varint import LENGTH

MOST_BLOCKS = 256  # of an array: writers make one, or one every few KiB. The numpy walk takes one step per block


class FaultError(Exception):
    """A record is malformed. Raised by `after_blocks`; the caller rejects the record."""


def after_blocks(data: bytes, end: int, size: int, most: int) -> int:
    """The position just after an array's last block.

    Args:
        data: the bytes from the array's next block on, a few bytes beyond `end`.
        end: position in `data` where the record ends.
        size: bytes of an item.
        most: blocks allowed.

    Raises:
        FaultError: the record is malformed.
    """
    at = 0
    for _ in range(most):
        count = data[at]
        if count & 0x81:  # more than one byte, or negative
            count, at = _length_at(data, at, end)
        else:
            count, at = count >> 1, at + 1
        stated = None
        if count < 0:
            length, at = _length_at(data, at, end)
            stated = at + length
        at += abs(count) * size
        if at > end:
            raise FaultError("the record ends before the field does")
        if not count:
            return at
        if stated is not None and at != stated:
            raise FaultError("an array's block is not of the size that it states")
    raise FaultError(f"an array in more than {MOST_BLOCKS} blocks")


def _length_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A count or a size, and the position just after it. Raises FaultError."""
    raw = 0
    for place in range(LENGTH.longest):
        byte = data[at + place]
        raw |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            at += place + 1
            if at > end:
                raise FaultError("the record ends before the field does")
            return (raw >> 1) ^ -(raw & 1), at
    raise FaultError(f"an integer too large for its type ({LENGTH.name})")
