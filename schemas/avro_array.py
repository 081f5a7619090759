"""Passes the blocks of one array: for few arrays in many blocks this is quicker than a step of numpy for each block."""

from schemas.avro_varint import LENGTH

MOST_BLOCKS = 256  # of an array: writers make one, or one per some KiB; each costs a step for all records


class FaultError(Exception):
    """A record is malformed. Raised by `after_blocks`; the caller refuses the record."""


def after_blocks(data: bytes, end: int, size: int, most: int) -> int:
    """The position behind an array's last block.

    Args:
        data: what comes next, an array's block first; a few bytes more than `end`.
        end: of the record, in it.
        size: of an item, bytes.
        most: blocks.

    Raises:
        FaultError: the record is malformed.
    """
    at = 0
    for _ in range(most):
        count, at = _length_at(data, at, end)
        if not count:
            return at
        stated = None
        if count < 0:
            length, at = _length_at(data, at, end)
            stated = at + length
        at += min(abs(count), (end - at) // size + 1) * size
        if at > end:
            raise FaultError("the record ends before the field does")
        if stated is not None and at != stated:
            raise FaultError("an array's block is not of the size that it states")
    raise FaultError(f"an array in more than {MOST_BLOCKS} blocks")


def _length_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A count or a size, and the position behind it. Raises FaultError."""
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
