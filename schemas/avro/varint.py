"""Avro's integer encoding, the zigzag varint."""

from typing import Final

MORE_BIT: Final = 0x80  # this bit of a varint's byte means that another one follows


def varint(value: int) -> bytes:
    """One Avro `int` or `long`: zigzag, then seven bits a byte with the lowest first. `value` fits in 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= MORE_BIT:
        out.append((rest & 0x7F) | MORE_BIT)
        rest >>= 7
    out.append(rest)
    return bytes(out)
