"""Avro's integer encoding, the zigzag varint: how it is written, and the bounds of each integer type."""

from dataclasses import dataclass
from typing import Final

MORE: Final = 0x80  # the bit of a varint's byte that says another one follows


@dataclass(frozen=True, slots=True)
class Varint:
    """Bounds of an integer type's encoding."""

    name: str
    longest: int  # bytes
    last: int  # largest value of the last byte of the longest encoding


INT = Varint("int", 5, 0x0F)
LONG = Varint("long", 10, 0x01)
LENGTH = Varint("length", 5, 0x7F)  # lengths, counts and indexes: a Kafka record is smaller than 2^34 bytes


def varint(value: int) -> bytes:
    """One Avro `int` or `long`: zigzag, then seven bits a byte with the lowest first. `value` fits in 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= MORE:
        out.append((rest & 0x7F) | MORE)
        rest >>= 7
    out.append(rest)
    return bytes(out)
