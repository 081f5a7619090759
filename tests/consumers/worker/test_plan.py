"""What the pipeline file and the model's config say is what the worker's stages are given."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.events import FetchedBatch
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_types import Record
from millstream.consumers.records import Records
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker import build
from millstream.consumers.worker.clients import collecting, producer_settings
from millstream.consumers.worker.plan import Plan, batches_ahead, make_plan, outputs_of, settings_of
from millstream.consumers.worker.shared import shared_of
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.consumers.in_memory import EPOCHS, MemoryRecord, NegatingExecutor, batch_of
from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.sink.result_sink import Sink
    from millstream.consumers.source.kafka_source import Source
    from millstream.inference.executors.interface import Executor, ModelExecutor, Tensors

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
BATCH = {
    "max_events": 8,
    "max_bytes": "64KiB",
    "max_wait": "200ms",
    "target_p99": "50ms",
    "cost": "x",
    "max_cost": 40,
}
LIMITS = Limits(8, 65536, 0.2, 40, 0.05)


def plan_of(folder: Path, **sections: Any) -> Plan:
    service = python_service(folder, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, **sections)
    return make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(("max_wait", "asked"), [(0.0, None), (0.004, None), (0.005, "6"), (0.008, "10"), (0.5, "12")])
def test_broker_collects_while_a_batch_may_wait(max_wait: float, asked: str | None) -> None:
    settings = collecting(max_wait, exactly_once=False)
    assert settings.get("fetch.wait.max.ms") == asked
    assert ("fetch.min.bytes" in settings) == (asked is not None)


def test_broker_sends_each_event_at_once_to_a_worker_that_collects_until_its_commit() -> None:
    assert collecting(0.005, exactly_once=True) == {}


@pytest.mark.parametrize(
    ("device", "concurrent", "max_events", "ahead"),
    [("cpu", 1, 256, 0), ("cpu", 2, 256, 16), ("cuda", 1, 256, 16), ("tensorrt", 1, 10_000, 1)],
)
def test_device_has_batches_waiting_while_the_next_block_is_decoded(
    device: str, concurrent: int, max_events: int, ahead: int
) -> None:
    assert batches_ahead(device, concurrent, max_events) == ahead


# From the files to the settings


def test_batch_section_is_the_batchers_limits(tmp_path: Path) -> None:
    assert settings_of(plan_of(tmp_path, batch=BATCH), until_idle=True).batch == LIMITS


def test_batch_section_says_nothing_of_cost_and_target_where_they_are_left_out(tmp_path: Path) -> None:
    limits = settings_of(plan_of(tmp_path, batch={"max_events": 8}), until_idle=True).batch
    assert (limits.max_cost, limits.target_p99) == (None, None)


@pytest.mark.parametrize(("takes", "expected"), [(3, 3), (100, 8)])
def test_batches_are_no_larger_than_the_executor_takes(tmp_path: Path, takes: int, expected: int) -> None:
    executor = cast("ModelExecutor", SimpleNamespace(max_events=takes))
    plan = replace(plan_of(tmp_path, batch=BATCH), executors=[executor])
    assert settings_of(plan, until_idle=True).batch == replace(LIMITS, max_events=expected)


def test_field_that_the_batch_section_names_is_what_events_cost(tmp_path: Path) -> None:
    values = [b'{"id": "a", "x": 3.0}', b'{"id": "b", "x": 4.5}']
    records: list[Record] = [MemoryRecord(at, value) for at, value in enumerate(values)]
    block = plan_of(tmp_path, batch=BATCH).decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    assert block.costs is not None
    assert np.diff(block.costs, prepend=0).tolist() == [3, 5]


def test_as_many_copies_of_the_model_are_loaded_and_run_as_many_batches_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(build, "connect", lambda _shared, **named: given.update(named))
    plan = plan_of(tmp_path, model={"name": "number", "instances": 3, "concurrent_batches": 2})
    largest = dict.fromkeys((plan.pipeline.output.topic, plan.pipeline.dead_letters.topic), 1_000_000)
    build.build_worker(
        plan,
        Health(60),
        Metrics("p"),
        largest_outputs=largest,
        lost_broker=print,
        instance_id="p-0",
        until_idle=True,
    )
    assert len({id(executor) for executor in given["executors"]}) == 3
    assert given["executors"] == plan.executors
    assert given["in_flight"] == 2


@pytest.mark.parametrize(("largest", "least"), [(1_000_000, 2 * 1024), (12_000_000, 12_000_000 // 1024 + 1)])
def test_producers_queue_holds_the_largest_record(tmp_path: Path, largest: int, least: int) -> None:
    """One that does not fit would wait for room for ever."""
    plan = plan_of(tmp_path, limits={"in_flight_bytes": "8MiB"})
    settings = producer_settings(plan, {"out": 1_000_000, "dead": largest})
    assert settings["queue.buffering.max.kbytes"] >= least


def test_reasons_at_which_to_stop_or_to_write_nothing_are_the_sinks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, on_error={"stop": ["unfit", "crashed"], "skip": ["expired"]})
    topics = (plan.pipeline.output.topic, plan.pipeline.dead_letters.topic)
    outputs = outputs_of(plan, dict.fromkeys(topics, 1_000_000))
    assert outputs.stop_at == {"unfit", "crashed"}
    assert outputs.dead_letters.skip == {"expired"}


# From the settings to the stages


class Made:
    """What a worker makes of its settings and of these executors; it reads and writes nothing."""

    pool: ExecutorPool
    window: BatchWindow
    limits: Limits  # that the batcher is given

    def __init__(self, plan: Plan, executors: Sequence[Executor], in_flight: int) -> None:
        shared = shared_of(settings_of(plan, until_idle=True), CrashGuard(3, 100), Health(60), Metrics("p"))
        self.abandon = shared.ending.abandon
        shared.assignment.add([("in", 0)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build, "ExecutorPool", self._pool)
            patch.setattr(build, "Batcher", self._batcher)
            build.connect(
                shared,
                source=cast("Source", SimpleNamespace(markers=SimpleNamespace(start_offsets={}))),
                decoder=plan.decoder,
                executors=executors,
                in_flight=in_flight,
                ahead=1,
                sink=cast("Sink", None),
                shadows=None,
            )

    def _pool(self, *given: Any, **named: Any) -> ExecutorPool:
        self.pool = ExecutorPool(*given, **named)
        return self.pool

    def _batcher(self, limits: Limits, *given: Any, window: BatchWindow) -> Batcher:
        self.limits, self.window = limits, window
        return Batcher(limits, *given, window=window)


def test_batcher_and_its_window_are_given_the_batch_section(tmp_path: Path) -> None:
    made = Made(plan_of(tmp_path, batch=BATCH), [NegatingExecutor()], 1)
    assert made.limits == LIMITS
    assert made.window.enough == 8
    assert made.window.length == 0.05  # the target leaves no more


@pytest.mark.parametrize(("instances", "in_flight"), [(1, 2), (2, 1), (2, 3)])
def test_each_executor_has_as_many_batches_in_the_model_at_a_time_as_told(
    tmp_path: Path, instances: int, in_flight: int
) -> None:
    """All wait for each other in the model: one by one none would come out."""
    together = threading.Barrier(instances * in_flight, timeout=10)

    def wait_for_all(_inputs: Tensors) -> None:
        try:
            together.wait()
        finally:
            if together.broken:
                made.abandon.set()

    executors = [NegatingExecutor(wait_for_all) for _ in range(instances)]
    made = Made(plan_of(tmp_path), executors, in_flight)
    for number in range(instances * in_flight):
        made.pool.submit(batch_of("e", number))
    made.pool.settle()
    made.pool.close()
    assert [len(executor.sizes) for executor in executors] == [in_flight] * instances
