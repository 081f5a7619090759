"""Batches that no client writes, read by aiokafka from a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.raw_batch import GZIP, LZ4, SNAPPY, UNCOMPRESSED, ZSTD, send_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable


@pytest.fixture
def skipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str]]]:
    from aiokafka.consumer import fetcher  # noqa: PLC0415

    from millstream.consumers.comparison.record_batches import install  # noqa: PLC0415

    monkeypatch.setattr(fetcher, "MemoryRecords", fetcher.MemoryRecords)
    monkeypatch.setattr(fetcher, "FetchResult", fetcher.FetchResult)
    told: list[tuple[int, str]] = []
    install(lambda count, why: told.append((count, why)))
    yield told


def polls(kafka: Broker, topic: str, count: int) -> list[list[Any]]:
    """What each poll of the only partition gives, until so many records are there."""

    async def run() -> list[list[Any]]:
        from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

        consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
        found: list[list[Any]] = []
        await consumer.start()
        try:
            async with asyncio.timeout(30):
                while sum(map(len, found)) < count:
                    found += (await consumer.getmany(timeout_ms=500)).values()
        finally:
            await consumer.stop()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("codec", [UNCOMPRESSED, GZIP, SNAPPY, LZ4, ZSTD])
def test_records_whose_headers_can_not_be_read_are_read_without_them(
    kafka: Broker, make_topic: MakeTopic, skipped: list[tuple[int, str]], codec: int
) -> None:
    topic = make_topic(1)
    for name in (b"fine", b"\xff\xfe", None):
        send_batch(kafka.bootstrap, topic, [b"a" * 300, None, b""], name=name, codec=codec)
    records = [record for poll in polls(kafka, topic, 9) for record in poll]
    assert [record.offset for record in records] == list(range(9))
    assert [record.value for record in records] == [b"a" * 300, None, b""] * 3
    assert [record.headers for record in records[::3]] == [(("fine", b"v"),), (), ()]
    assert {(record.timestamp, record.key) for record in records} == {(1_700_000_000_000, b"k")}
    assert skipped == []


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_batch_that_decompresses_to_too_much_is_skipped_and_counted(
    kafka: Broker, make_topic: MakeTopic, skipped: list[tuple[int, str]], codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.comparison.record_batches.MAX_BATCH_BYTES", 1 << 20)
    topic = make_topic(1)
    send_batch(kafka.bootstrap, topic, [b"before"], codec=codec)
    send_batch(kafka.bootstrap, topic, [bytes(1 << 20)] * 3, codec=codec)
    send_batch(kafka.bootstrap, topic, [bytes(1 << 19), b"after"], codec=codec)
    records = [record for poll in polls(kafka, topic, 3) for record in poll]
    assert [record.offset for record in records] == [0, 4, 5]
    assert [count for count, _ in skipped] == [3]


def test_poll_ends_at_so_many_bytes_and_the_next_goes_on(
    kafka: Broker, make_topic: MakeTopic, skipped: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.comparison.record_batches.MAX_POLL_BYTES", 100_000)
    topic = make_topic(1)
    send_batch(kafka.bootstrap, topic, [b"%03d" % number + bytes(10_000) for number in range(95)], codec=ZSTD)
    found = polls(kafka, topic, 95)
    assert [record.offset for poll in found for record in poll] == list(range(95))
    assert max(map(len, found)) == 10
    assert skipped == []
