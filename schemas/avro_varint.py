"""How Avro's integer types may be written: as varints of so many bytes at most."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Varint:
    """How an integer type may be written."""

    name: str
    longest: int  # bytes
    last: int  # largest value of the last of so many bytes


INT = Varint("int", 5, 0x0F)
LONG = Varint("long", 10, 0x01)
LENGTH = Varint("length", 5, 0x7F)  # lengths, counts and indexes: a Kafka record is smaller than 2^34 bytes
