"""Record batches as aiokafka reads them, but for what a hostile writer can make of one.

A header's name that is not UTF-8, or headers that are cut short, make aiokafka 0.14 raise at that record, fetch it again and
raise again, for ever. A batch of a megabyte may decompress to tens of gigabytes. And 4,000 records of a poll may be a megabyte
each. Here the headers that can't be read are passed over, for the job reads none; a batch that decompresses to too much is
skipped whole and counted (a batch has one writer); and a poll ends at so many bytes.
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

MAX_BATCH_BYTES: Final = 64 << 20  # decompressed; Kafka's clients make batches of a megabyte
MAX_POLL_BYTES: Final = 8 << 20  # keys and values of a poll's records of one partition; a single record may be more

# https://kafka.apache.org/documentation/#recordbatch
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT, _BEFORE_LENGTH_COUNTS = 8, 12
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_CODEC_MASK: Final = 0x07
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL: Final = b"\x82SNAPPY\0"  # in front of snappy in blocks, as Java writes it


def install(skipped: Callable[[int, str], None]) -> None:
    """Let all consumers of aiokafka in this process read so; `skipped` is told how many records were skipped, and why."""
    names: Any = fetcher
    names.MemoryRecords = partial(BoundedRecords, skipped=skipped)
    names.FetchResult = _FetchResult


class _FetchResult(fetcher.FetchResult):  # type: ignore[misc]
    """One partition's part of a fetch."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        """As aiokafka's, up to so many bytes."""
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
    """The batches of one partition's part of a fetch: as aiokafka's MemoryRecords."""

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
    """One batch: as aiokafka's DefaultRecordBatch."""

    def __init__(self, batch: Any, raw: memoryview, skipped: Callable[[int, str], None]) -> None:
        self._batch = batch
        self._raw = raw
        self._skipped = skipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        """The records. After headers that can't be read all come again: aiokafka passes over those that it has had."""
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
    """A record as aiokafka reads one."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[()] = ()
    checksum: None = None


def _without_headers(batch: memoryview) -> Iterator[_Record]:
    """The records of a batch that is not compressed. Raises IndexError or ValueError where it is malformed."""
    fields = _HEADER.unpack_from(batch)
    first_offset, first_time, last_time, count = fields[0], fields[7], fields[8], fields[12]
    appended = bool(fields[5] & 0x08)  # the broker's time
    data, at = bytes(batch), _HEADER.size
    for _ in range(count):
        length, at = decode_varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise ValueError(f"a record claims {length} bytes")
        later, at = decode_varint(data, at + 1)  # behind the attributes
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
    """The batch as it was before compression; itself where there was none. Raises ValueError where that is too much."""
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
        # Memory of which only what is written is ever there. What does not fit is refused.
        room = np.empty(MAX_BATCH_BYTES, np.uint8)
        records = room[: _into(codec, packed, room)].tobytes()
    else:
        raise ValueError(f"expected a codec from 0 to 4, found {codec}")
    head = bytearray(batch[: _HEADER.size])
    struct.pack_into(">i", head, _LENGTH_AT, len(head) + len(records) - _BEFORE_LENGTH_COUNTS)
    struct.pack_into(">h", head, _ATTRIBUTES_AT, attributes & ~_CODEC_MASK)
    return memoryview(bytes(head) + records)


def _into(codec: int, packed: memoryview, room: Any) -> int:
    """Decompress into `room`; returns how many bytes."""
    if codec == _ZSTD:
        return int(cramjam.zstd.decompress_into(packed, room))
    if codec == _LZ4:
        return int(cramjam.lz4.decompress_into(packed, room))
    if packed[:8].tobytes() != _XERIAL:
        return int(cramjam.snappy.decompress_raw_into(packed, room))
    at, filled = 16, 0  # behind the two versions
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
