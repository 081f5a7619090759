"""Writes record batches that no client writes: header names that are not UTF-8, any timestamp, any compression."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

UNCOMPRESSED, GZIP, SNAPPY, LZ4, ZSTD = range(5)


class RawName(str):
    """A header's name that is sent byte for byte: each character stands for a byte."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        """The bytes, whatever the encoding asked for."""
        return super().encode("latin-1")


def send_batch(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"k",
    name: bytes | None = None,
    timestamp: int = 1_700_000_000_000,
    codec: int = UNCOMPRESSED,
    partition: int = 0,
) -> None:
    """Write one batch and wait until it is stored; `name` is that of a header of each record."""
    asyncio.run(_send(bootstrap, topic, values, key, name, timestamp, codec, partition))


async def _send(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    key: bytes | None,
    name: bytes | None,
    timestamp: int,
    codec: int,
    partition: int,
) -> None:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415  (comes with Faust)
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy  # noqa: PLC0415

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch: Any = producer.create_batch()
        builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 30)
        headers: list[Any] = [] if name is None else [(RawName(name.decode("latin-1")), b"v")]
        for number, value in enumerate(values):
            builder.append(number, timestamp, key, value, headers)
        batch._builder, batch._relative_offset = builder, len(values)
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()
