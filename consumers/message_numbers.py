"""What many of the client's messages say in numbers: their partitions, offsets and timestamps, as columns.

Asked one by one, each answer is an object, and these four are most of what reading a record costs after the client. They lie in
the messages themselves, in the same place of each: where, is found out by messages made for that. A build whose messages don't
show it is asked one by one.
"""

import ctypes
import functools
import logging
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from consumers.events import Record

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]

_MEMORY = 16  # where the columns over all memory begin: an object's address is a multiple of it
# Bytes of them. No address of a process is higher: x86 has 47 bits of it, 56 where these are asked for, Arm 48 or 52.
_BYTES = 1 << 56
_KNOWN: tuple[dict[str, Any], ...] = (
    {"partition": 0x12345678, "offset": 0x0123456789ABCDEF, "timestamp": (1, 0x13579BDF02468ACE)},
    {"partition": 0x2468ACE1, "offset": 0x0FEDCBA987654321, "timestamp": (1, 0x2345678998765432)},
)
"""Of messages that show where the numbers lie: none of these is anywhere else in them."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One value a message."""

    partitions: Ints
    offsets: Ints
    timestamps: Ints  # ms since the epoch; -1 where it has none
    timestamp_types: Ints  # as Kafka numbers them: 0 none, 1 the producer's time, 2 the broker's


@dataclass(frozen=True, slots=True)
class Places:
    """How far into a message each number begins, bytes."""

    partition: int  # 4 bytes
    offset: int  # 8 bytes
    timestamp: int  # 8 bytes
    timestamp_type: int  # 4 bytes


def numbers_of(records: Sequence[Record]) -> Numbers:
    """The numbers of records that all are of one type, of which there is at least one."""
    kind: type = type(records[0])
    if kind is Message and (places := _places()) is not None:
        return read(records, places)
    return ask(records)


def ask(records: Sequence[Record]) -> Numbers:
    """The same, by the records' methods."""
    kind = type(records[0])  # mapped over the records, its own methods cost a quarter of what a loop does
    stamps = np.fromiter(chain.from_iterable(map(kind.timestamp, records)), np.int64, 2 * len(records))
    timestamp_types, timestamps = stamps.reshape(-1, 2).T.copy()
    partitions, offsets = (
        np.fromiter(map(number, records), np.int64, len(records)) for number in (kind.partition, kind.offset)
    )
    return Numbers(partitions, offsets, timestamps, timestamp_types)


def read(records: Sequence[Record], places: Places) -> Numbers:
    """The same, from where they lie. All records are the client's messages."""
    at = np.fromiter(map(id, records), np.int64, len(records)) - _MEMORY
    halves, wholes = _memory(np.int32), _memory(np.int64)
    return Numbers(
        halves[(at + places.partition) >> 2].astype(np.int64),
        wholes[(at + places.offset) >> 3],
        wholes[(at + places.timestamp) >> 3],
        halves[(at + places.timestamp_type) >> 2].astype(np.int64),
    )


@functools.cache
def _memory(dtype: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """All that a process can address, as numbers: of it only what is known to be there may be touched."""
    every = (ctypes.c_char * (_BYTES - _MEMORY)).from_address(_MEMORY)
    return np.frombuffer(memoryview(every), dtype)


@functools.cache
def _places() -> Places | None:
    """Where this build of confluent-kafka keeps them; None where that does not show."""
    try:
        return find_places(Message)
    except LookupError as unknown:
        log.info("messages are asked for their numbers one by one, which takes more CPU: %s", unknown)
        return None


def find_places(kind: Callable[..., Message]) -> Places:
    """Where messages that are made so keep their numbers. Raises LookupError."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        raise LookupError(f"{sys.implementation.name}, {8 * struct.calcsize('P')} bits: no object's memory is known")
    try:
        first, second = (kind(**known) for known in _KNOWN)
        other_type = kind(**{**_KNOWN[0], "timestamp": (2, _KNOWN[0]["timestamp"][1])})
    except TypeError as error:
        raise LookupError(f"confluent-kafka {confluent_kafka.__version__} makes no messages: {error}") from None
    places = {_place(message, known) for message, known in zip((first, second), _KNOWN, strict=True)}
    differing = np.flatnonzero(np.frombuffer(_bytes(first), np.uint8) != np.frombuffer(_bytes(other_type), np.uint8))
    if len(places) != 1 or len(differing) != 1:
        raise LookupError(f"confluent-kafka {confluent_kafka.__version__} keeps them elsewhere")
    return Places(*places.pop(), int(differing[0]) // 4 * 4)


def _place(message: Message, known: dict[str, Any]) -> tuple[int, int, int]:
    """Where the known partition, offset and timestamp lie in the message. Raises LookupError."""
    content = _bytes(message)
    found = []
    for form, number in (("=i", known["partition"]), ("=q", known["offset"]), ("=q", known["timestamp"][1])):
        wanted = struct.pack(form, number)
        place = content.find(wanted)
        if place < 0 or place % len(wanted) or content.count(wanted) != 1:
            raise LookupError(f"confluent-kafka {confluent_kafka.__version__} does not show where {number} is")
        found.append(place)
    partition, offset, timestamp = found
    return partition, offset, timestamp


def _bytes(message: Message) -> bytes:
    return ctypes.string_at(id(message), type(message).__basicsize__)
