"""Compressed batches that are cut short at any byte, or go on after their end: read or skipped, and never an error.

aiokafka would fetch a batch whose reading raises again, for ever.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.raw_batch import GZIP, LZ4, SNAPPY, ZSTD

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")

HEAD = 61  # bytes of a batch before its records
ROWS = 3


def a_batch(codec: int) -> bytes:
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy  # noqa: PLC0415

    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 20)
    for number in range(ROWS):
        builder.append(number, 1_700_000_000_000, b"k", b"value %d " % number * 40, [])
    return bytes(builder.build())


def a_snappy_batch(*ends: int) -> bytes:
    """Snappy without blocks; or, as Java writes it, in blocks that end at these bytes of the records."""
    import cramjam  # noqa: PLC0415
    from aiokafka.codec import snappy_decode  # noqa: PLC0415

    batch = a_batch(SNAPPY)
    records = snappy_decode(batch[HEAD:])
    if not ends:
        return batch[:HEAD] + bytes(cramjam.snappy.compress_raw(records))
    blocks = [bytes(cramjam.snappy.compress_raw(records[first:end])) for first, end in pairwise((0, *ends))]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return batch[:HEAD] + b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed


def read(batch: bytes) -> tuple[list[Any], int]:
    """The offsets of the records that are read, and how many were skipped."""
    from millstream.consumers.comparison.record_batches import BoundedRecords  # noqa: PLC0415

    skipped: list[int] = []
    sized = bytearray(batch)
    struct.pack_into(">i", sized, 8, len(batch) - 12)
    records = BoundedRecords(bytes(sized), skipped=lambda count, _: skipped.append(count))
    return [record.offset for record in records.next_batch()], sum(skipped)


BATCHES: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: a_batch(GZIP),
    "snappy": a_snappy_batch,
    "xerial": lambda: a_snappy_batch(200, 1 << 20),
    "lz4": lambda: a_batch(LZ4),
    "zstd": lambda: a_batch(ZSTD),
}


@pytest.mark.parametrize("name", BATCHES)
def test_whole_batch_is_read(name: str) -> None:
    assert read(BATCHES[name]()) == (list(range(ROWS)), 0)


@pytest.mark.parametrize("name", BATCHES)
def test_batch_cut_at_any_byte_is_read_as_far_as_it_goes_or_skipped(name: str) -> None:
    batch = BATCHES[name]()
    for end in range(HEAD, len(batch)):
        offsets, skipped = read(batch[:end])
        assert offsets == list(range(len(offsets)))
        assert skipped or len(offsets) == ROWS, f"cut at byte {end}"


@pytest.mark.parametrize("name", BATCHES)
def test_batch_with_bytes_after_its_end_is_read_or_skipped(name: str) -> None:
    for length in range(1, 9):
        for byte in (b"\0", b"\1", b"\xff"):
            offsets, skipped = read(BATCHES[name]() + length * byte)
            assert (offsets, skipped) in (([], ROWS), (list(range(ROWS)), 0))
