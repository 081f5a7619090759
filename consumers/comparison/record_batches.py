"""Reads record batches for aiokafka, and protects the job from hostile ones.

- If a header's name isn't UTF-8, or headers are cut off, aiokafka 0.14 raises at that record, fetches it again and raises
  again, without end. The job needs no headers. So if they can't be read, this module reads the records without them.
- A batch of a megabyte may decompress to tens of gigabytes. A batch that gets too large is skipped as a whole and counted. (All
  records of a batch are from one producer.)
- A poll may return 4,000 records of a megabyte each. Here a poll ends when it has `MAX_POLL_BYTES`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numpy as np
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_BATCH_BYTES: Final = 64 << 20  # of a decompressed batch; Kafka's clients send batches of about a megabyte
MAX_POLL_BYTES: Final = 8 << 20  # keys and values of one partition in one poll; a single record may have more

# https://kafka.apache.org/documentation/#recordbatch
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT, _BEFORE_LENGTH_COUNTS = 8, 12
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_CODEC_MASK: Final = 0x07
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL: Final = b"\x82SNAPPY\0"  # start of snappy data in blocks, as Java's client writes it


def install(skipped: Callable[[int, str], None]) -> None:
    """Use this module in all aiokafka consumers of this process. `skipped` gets the number of skipped records, and why."""
    names: Any = fetcher
    names.MemoryRecords = partial(BoundedRecords, skipped=skipped)
    names.FetchResult = _FetchResult


class _FetchResult(fetcher.FetchResult):  # type: ignore[misc]
    """One partition's part of a fetch."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        """Like aiokafka's method, but ends at `MAX_POLL_BYTES`."""
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return []
        found: list[Any] = []
        size = 0
        for record in self._partition_records:
            found.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if size >= MAX_POLL_BYTES or len(found) == max_records:
                self._update_position()
                return found
        self._update_position()
        self._partition_records = None
        return found


class BoundedRecords:
    """The batches of one partition's part of a fetch. Has the methods of aiokafka's MemoryRecords."""

    def __init__(self, data: bytes, *, skipped: Callable[[int, str], None]) -> None:
        self._batches = MemoryRecords(data)
        self._data = memoryview(data)
        self._at = 0
        self._skipped = skipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def next_batch(self) -> Any:
        """The next batch; None at the end."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        (length,) = struct.unpack_from(">i", self._data, self._at + _LENGTH_AT)
        raw = self._data[self._at : self._at + _BEFORE_LENGTH_COUNTS + length]
        self._at += len(raw)
        return batch if raw[_MAGIC_AT] < 2 else _Batch(batch, raw, self._skipped)


class _Batch:
    """One batch. Has the methods of aiokafka's DefaultRecordBatch."""

    def __init__(self, batch: Any, raw: memoryview, skipped: Callable[[int, str], None]) -> None:
        self._batch = batch
        self._raw = raw
        self._skipped = skipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        """The records. If headers can't be read, all records are yielded again: aiokafka skips those that it already has."""
        records = _HEADER.unpack_from(self._raw)[-1]
        try:
            plain = _decompressed(self._raw)
        except (zlib.error, ValueError, cramjam.DecompressionError) as error:
            self._skipped(records, f"a batch of {len(self._raw)} bytes: {error}")
            return
        try:
            yield from self._batch if plain is self._raw else DefaultRecordBatch(bytes(plain))
        except (CorruptRecordException, ValueError):  # UnicodeDecodeError is one
            try:
                yield from _without_headers(plain)
            except (IndexError, ValueError) as error:
                self._skipped(1, f"the rest of a batch: {error}")


@dataclass(frozen=True, slots=True)
class _Record:
    """A record with the fields that aiokafka gives its records."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[()] = ()
    checksum: None = None


def _without_headers(batch: memoryview) -> Iterator[_Record]:
    """The records of an uncompressed batch. Raises IndexError or ValueError if it is malformed."""
    fields = _HEADER.unpack_from(batch)
    first_offset, first_time, last_time, count = fields[0], fields[7], fields[8], fields[12]
    appended = bool(fields[5] & 0x08)  # the broker's time
    data, at = bytes(batch), _HEADER.size
    for _ in range(count):
        length, at = decode_varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise ValueError(f"a record claims {length} bytes")
        later, at = decode_varint(data, at + 1)  # the byte before it holds the attributes
        further, at = decode_varint(data, at)
        key, at = _bytes(data, at, end)
        value, _ = _bytes(data, at, end)
        yield _Record(first_offset + further, last_time if appended else first_time + later, int(appended), key, value)
        at = end


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise ValueError(f"a key or value claims {length} bytes")
    return data[at : at + length], at + length


def _decompressed(batch: memoryview) -> memoryview:
    """The decompressed batch; `batch` itself if it isn't compressed. Raises ValueError if it is too large."""
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    codec, packed = attributes & _CODEC_MASK, batch[_HEADER.size :]
    if not codec:
        return batch
    if codec == _GZIP:
        inflate = zlib.decompressobj(wbits=31)
        records = inflate.decompress(packed, MAX_BATCH_BYTES)
        if not inflate.eof:
            raise ValueError(f"expected at most {MAX_BATCH_BYTES} bytes when decompressed, found more")
    elif codec in (_SNAPPY, _LZ4, _ZSTD):
        # The operating system only allocates the pages that are written. cramjam raises if the data doesn't fit.
        room = np.empty(MAX_BATCH_BYTES, np.uint8)
        records = room[: _into(codec, packed, room)].tobytes()
    else:
        raise ValueError(f"expected a codec from 0 to 4, found {codec}")
    head = bytearray(batch[: _HEADER.size])
    struct.pack_into(">i", head, _LENGTH_AT, len(head) + len(records) - _BEFORE_LENGTH_COUNTS)
    struct.pack_into(">h", head, _ATTRIBUTES_AT, attributes & ~_CODEC_MASK)
    return memoryview(bytes(head) + records)


def _into(codec: int, packed: memoryview, room: Any) -> int:
    """Decompress into `room`; returns the number of bytes."""
    if codec == _ZSTD:
        return int(cramjam.zstd.decompress_into(packed, room))
    if codec == _LZ4:
        return int(cramjam.lz4.decompress_into(packed, room))
    if packed[:8].tobytes() != _XERIAL:
        return int(cramjam.snappy.decompress_raw_into(packed, room))
    at, filled = 16, 0  # the header: 8 bytes of magic, two versions of 4 bytes each
    while at != len(packed):
        if at + 4 > len(packed):
            raise ValueError(f"expected the length of a snappy block at byte {at}, found the end at byte {len(packed)}")
        (length,) = struct.unpack_from(">i", packed, at)
        at += 4
        if length < 0 or at + length > len(packed):
            raise ValueError(f"a snappy block claims {length} bytes")
        filled += int(cramjam.snappy.decompress_raw_into(packed[at : at + length], room[filled:]))
        at += length
    return filled
