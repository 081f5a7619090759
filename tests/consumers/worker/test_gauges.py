"""What a worker says of itself while results wait to be written: the values of its gauges."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.flow.in_flight import MEASURED_COST
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.health import Health
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker import gauges as module
from millstream.consumers.worker.build import Serving, connect
from millstream.consumers.worker.shared import shared_of
from millstream.inference.executors.opened import OpenedModel
from tests.consumers.in_memory import MODEL, SIGNATURE, NegatingExecutor, NumberDecoder, ended
from tests.consumers.measured import Measured
from tests.consumers.source.fake_consumer import FakeConsumer
from tests.consumers.worker.sources import source_on
from tests.consumers.worker.test_worker import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.events import BatchResult, NextOffsets
    from millstream.consumers.observability.metric import Metric
    from millstream.schemas.decoded import Decoded

A = ("in", 0)
DECODING = 0.05  # seconds


class SlowDecoder(NumberDecoder):
    """Takes a while for each block."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        time.sleep(DECODING)
        return super().decode(values)


class StandingSink:
    """Writes nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.standing = threading.Event()

    def write(self, answers: Sequence[BatchResult]) -> NextOffsets:
        self.standing.set()
        assert self.may.wait(30)
        ends: NextOffsets = {}
        for part in (part for one in answers for part in one.batch.parts):
            ends |= {partition: (part.block.epochs[partition], end) for partition, end in part.next_offsets().items()}
        return ends

    def checkpoint(self, _ends: NextOffsets) -> None: ...
    def start(self) -> None: ...
    def push(self) -> None: ...
    def say_all(self) -> None: ...


class Working(Measured):
    """A worker on a consumer in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer = FakeConsumer({A: 0})
        self.sink = StandingSink()
        settings = replace(SETTINGS, exactly_once=False, until_idle=False)
        shared = shared_of(settings, CrashGuard(3, 100), Health(60.0), self.metrics)
        source = source_on(self.consumer, shared)
        self.worker = connect(
            shared,
            source=source,
            decoder=BlockDecoder(SlowDecoder(), EventFields(None, None), SIGNATURE, allow_nan=False),
            serving=Serving(OpenedModel(MODEL, [NegatingExecutor()]), 1, 0),
            sink=cast("Any", self.sink),
            shadows=None,
        )
        self.thread = threading.Thread(target=self.worker.run, daemon=True)

    def wait_for(self, value: float, metric: Metric, **labels: str) -> None:
        until = time.monotonic() + 10
        while (found := self.value(metric, **labels)) != value:
            assert time.monotonic() < until, f"{metric.name} is {found}, not {value}"
            time.sleep(0.002)


def test_gauges_follow_what_a_worker_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPDATE_INTERVAL", 0.0)
    own = Working()
    own.thread.start()
    own.wait_for(0, m.READY)
    until = time.monotonic() + 10
    while not own.consumer.topics and time.monotonic() < until:
        time.sleep(0.001)
    own.consumer.assign(A)
    own.wait_for(1, m.READY)
    own.wait_for(1, m.ASSIGNED)
    assert own.value(m.OLDEST_UNCOMMITTED) == own.value(m.IN_FLIGHT_EVENTS) == own.value(m.WRITE_QUEUE) == 0
    before = time.monotonic()
    own.consumer.logs[A] = 4
    assert own.sink.standing.wait(10)
    own.wait_for(4, m.IN_FLIGHT_EVENTS)
    own.wait_for(MEASURED_COST.copies * 4 + MEASURED_COST.overhead * 4, m.IN_FLIGHT_BYTES)  # values of one byte
    own.wait_for(0, m.WRITE_QUEUE)
    for waiting in (1, 2):
        own.consumer.logs[A] = 4 + waiting
        own.wait_for(waiting, m.WRITE_QUEUE)
        own.wait_for(4 + waiting, m.IN_FLIGHT_EVENTS)
    time.sleep(0.1)
    oldest = own.value(m.OLDEST_UNCOMMITTED)
    assert oldest is not None
    assert 0.1 <= oldest <= time.monotonic() - before
    own.sink.may.set()
    own.wait_for(0, m.IN_FLIGHT_EVENTS)
    own.wait_for(0, m.OLDEST_UNCOMMITTED)
    own.wait_for(0, m.LAG, topic="in", partition="0")
    assert own.value(m.IN_FLIGHT_BYTES) == own.value(m.WRITE_QUEUE) == 0
    assert own.value(m.RECORDS_READ, topic="in") == 6
    decoded, blocks = (own.value(m.STAGE_SECONDS, suffix, stage="decode") for suffix in ("_sum", "_count"))
    assert blocks == 3
    assert decoded is not None
    assert 3 * DECODING <= decoded <= time.monotonic() - before
    assert own.value(m.STAGE_SECONDS, "_count", stage="poll") == 3
    own.worker.stop()
    assert ended(own.thread)
    assert own.value(m.READY) == 0
    assert own.value(m.ASSIGNED) == 0
    assert own.value(m.LAG, topic="in", partition="0") == 0
    assert own.consumer.committed_offsets[A] == (6, "")
