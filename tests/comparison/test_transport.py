from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
errors = pytest.importorskip("aiokafka.errors")
faust = pytest.importorskip("faust.exceptions")
transport = pytest.importorskip("millstream.consumers.comparison.transport")


def test_records_that_wait_are_thrown_away_by_a_rebalance_and_not_by_its_end() -> None:
    from millstream.consumers.comparison.transport import FoldingApp  # noqa: PLC0415  (needs Faust)

    async def run() -> None:
        app = FoldingApp("comparison", store="memory://")
        waiting = app.FlowControlQueue(maxsize=8, clear_on_resume=True)
        app.flow_control.resume()  # the tables are restored
        waiting.put_nowait("a record")
        app.flow_control.resume()  # they are whole
        assert waiting.qsize() == 1
        app.flow_control.suspend()  # a rebalance
        app.flow_control.resume()
        assert waiting.empty()

    asyncio.run(run())


FETCHES = [
    [range(5), range(5, 10), range(10, 15), range(15, 20)],
    [range(1), range(1, 7), range(7, 20)],
    [range(3), [4, 5, 7], [9], [12, 19]],  # ends of transactions have offsets, too
]
SOUGHT = [range(5, 10), range(5, 12), range(12, 20)]  # while the first is processed, a seek goes back to its start


@pytest.mark.parametrize(("fetches", "folded"), [*itertools.product(FETCHES, [True, False]), (SOUGHT, True)])
def test_one_commit_passes_all_fetches_that_are_done(
    fetches: list[Sequence[int]], folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faust.transport.consumer import Fetcher  # noqa: PLC0415
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread  # noqa: PLC0415
    from faust.types import TP  # noqa: PLC0415

    from millstream.consumers.comparison.transport import FoldingApp  # noqa: PLC0415

    place, waiting, committed = TP("comparisons", 0), list(fetches), dict[Any, int]()

    async def getmany(*_: Any) -> dict[Any, list[Any]]:
        await asyncio.sleep(0)
        return {place: [record(offset) for offset in waiting.pop(0)]} if waiting else {}

    async def commit(_: Any, offsets: dict[Any, int]) -> bool:
        committed.update(offsets)
        return True

    async def seek_to_committed(_: Any) -> dict[Any, int]:
        return {place: 5}

    monkeypatch.setattr(AIOKafkaConsumerThread, "getmany", getmany)
    monkeypatch.setattr(AIOKafkaConsumerThread, "seek_to_committed", seek_to_committed)
    monkeypatch.setattr(AIOKafkaConsumerThread, "commit", commit)
    monkeypatch.setattr(AIOKafkaConsumerThread, "assignment", lambda _: {place})
    monkeypatch.setattr(AIOKafkaConsumerThread, "highwater", lambda *_: 20)

    async def run() -> None:
        app = FoldingApp("comparison", store="memory://")
        app.folded_topics = frozenset({"comparisons"} if folded else ())
        monkeypatch.setattr(app, "producer", SimpleNamespace(flush=nothing))
        monkeypatch.setattr(app.topics, "acks_enabled_for", lambda _: True)
        done = asyncio.Event()

        async def process(message: Any) -> None:
            if fetches is SOUGHT and message.offset == 9:
                await app.consumer.perform_seek()
            app.consumer.ack(message)
            if message.offset == 19:
                done.set()

        app.consumer = app.transport.create_consumer(
            process, on_partitions_revoked=nothing, on_partitions_assigned=nothing
        )
        app.consumer.resume_partitions({place})
        app.consumer.resume_flow()
        fetcher = Fetcher(app)
        await fetcher.start()
        await asyncio.wait_for(done.wait(), 30)
        assert await app.consumer.commit()
        if fetches is SOUGHT:  # offset 9 was processed twice: the first commit ends there
            assert await app.consumer.commit()
        await fetcher.stop()

    asyncio.run(run())
    assert committed == {place: 20}


async def nothing(*_: Any) -> None: ...


def record(offset: int) -> SimpleNamespace:
    return SimpleNamespace(
        topic="comparisons",
        partition=0,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        headers=(),
        key=None,
        value=b"",
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
    )


def wrapped(error: Exception) -> Exception:
    """As Faust wraps what its producer raises."""
    made: Exception = faust.ProducerSendError("could not send")
    made.__cause__ = error
    return made


@pytest.mark.parametrize("wrap", [lambda error: error, wrapped], ids=["as it is", "wrapped by Faust"])
@pytest.mark.parametrize(
    ("error", "of_records"),
    [
        (errors.TopicAuthorizationFailedError("t"), False),
        (errors.KafkaTimeoutError(), False),
        (errors.ProducerClosed(), False),
        (faust.NotReady("Producer service not yet started"), False),
        (errors.MessageSizeTooLargeError(), True),
        (ValueError("a damaged label"), True),
    ],
)
def test_errors_of_the_broker_and_the_producer_are_not_those_of_records(
    wrap: Callable[[Exception], Exception], error: Exception, of_records: bool
) -> None:
    assert transport.is_of_records(wrap(error)) is of_records
    assert transport.cause_of(wrap(error)) is error
