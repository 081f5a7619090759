"""The parts of what a rollout costs a worker, measured with models that do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import BatchResult, BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.execute.opened_rollout import OpenedRollout, OpenedVariant
from millstream.consumers.execute.served import ModelSlots, Slot
from millstream.consumers.execute.variant_outage import VariantOutage
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.rollout.routing import RoutingPlan, route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.serving.rollout_router import RolloutRouter, keys_of
from millstream.inference.executors.interface import Executor, Tensors, rows_of
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.predictions import PredictionEncoder

BLOCK = 6144  # records that a worker decodes together, under backlog
BATCH = 1024  # events that two versions get together, under backlog
FEATURES = 32
ROUNDS, EVENTS = 25, 200_000


class Nothing:
    """An executor that returns an output that was made before."""

    device = "cpu"

    def __init__(self) -> None:
        self._output = np.random.default_rng(1).random((BLOCK, 1)).astype(np.float32)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Return one number an event."""
        return {"score": self._output[: rows_of(inputs)]}


def measured_parts() -> dict[str, float]:
    """us per event, by what is measured."""
    block = _block()
    plan = RoutingPlan("r1", reallocated(whole(), (5000, 5000)), 2)
    one, two = _slot((10_000, 0)), _slot((5000, 5000))
    start = BatchStart(
        max_events=256, admit=lambda _number, batch: batch, is_outdated=lambda _batch: False, metrics=Metrics("bench")
    )
    batch = _batch(block, BATCH)
    run = partial(_answered, start, batch)
    encoder = PredictionEncoder(1, pipeline="bench", variant="primary", rollout=True)
    first, second = run(one), run(two)
    return {
        f"routing (in blocks of {BLOCK:,})": _microseconds(lambda: route(plan, keys_of(block)), BLOCK),
        "splitting and joining (in batches of 1,024)": _difference(lambda: run(two), lambda: run(one), BATCH),
        "encoding (of 1,024 results)": _difference(
            partial(_encoded, encoder, second), partial(_encoded, encoder, first), BATCH
        ),
    }


def _slot(shares: tuple[int, int]) -> Slot:
    plan, metrics = RoutingPlan("r1", reallocated(whole(), shares), 2), Metrics("bench")
    opened = [OpenedModel(ModelId("m", number), [cast("Executor", Nothing())]) for number in (1, 2)]
    variants = [
        OpenedVariant(name, model.id, model, VariantOutage(name))
        for name, model in zip(("primary", "canary"), opened, strict=True)
    ]
    router = RolloutRouter(plan, (), absent=(), fallback=0)
    rollout = OpenedRollout("r1", 3, variants, plan.shares, 0, router.assigned)

    def isolated(executor: Executor) -> BisectingExecutor:
        return BisectingExecutor(executor.run, max_events=256, allow_nan_outputs=False)

    return ModelSlots(1, isolated, metrics).serve(rollout).slots[0]


def _answered(start: BatchStart, batch: MicroBatch, slot: Slot) -> BatchResult:
    work = start.work_of(batch)
    assert work is not None
    begun = slot.begin(work)
    result = begun.run()
    choices = None if begun.choices is None else begun.choices(result[1])
    return work.result(0, result, 0.0, slot.models, begun.variants, choices)


def _encoded(encoder: PredictionEncoder, answered: BatchResult) -> object:
    batch = answered.batch
    times = np.full(batch.events, 1_700_000_000_000)
    return encoder.encode(batch.ids(), times, times, times, answered.outputs, models=answered.row_models)


def _block() -> DecodedBatch:
    chance, rows = np.random.default_rng(7), np.arange(BLOCK)
    keys = Packed.of([b"customer-%012d" % number for number in chance.integers(0, 1_000_000, BLOCK)])
    zeros = np.zeros(BLOCK, np.int64)
    return DecodedBatch(
        {},
        0.0,
        0,
        partitions={0: ("in", 0)},
        places=zeros,
        offsets=rows,
        timestamps=zeros,
        timestamp_types=zeros,
        keys=keys,
        values=keys,
        headers={},
        ends=rows,
        good=rows,
        ids=Texts.of([f"event-{row:010d}" for row in rows.tolist()]),
        event_times=zeros,
        deadlines=None,
        costs=None,
        tensors={"x": chance.random((BLOCK, FEATURES)).astype(np.float32)},
        features=None,
        invalid_deadlines=0,
        rejected={},
    )


def _batch(block: DecodedBatch, events: int) -> MicroBatch:
    return MicroBatch((BatchSlice(block, 0, events, 0, events),), "size")


def _microseconds(run: Callable[[], object], events: int) -> float:
    return median(_seconds(run, events) for _ in range(ROUNDS)) / events * 1e6


def _difference(run: Callable[[], object], base: Callable[[], object], events: int) -> float:
    """The time beyond that of the other one. They take turns."""
    return median(_seconds(run, events) - _seconds(base, events) for _ in range(ROUNDS)) / events * 1e6


def _seconds(run: Callable[[], object], events: int) -> float:
    calls = EVENTS // events
    started = time.thread_time()  # other programs on the machine do not count
    for _ in range(calls):
        run()
    return (time.thread_time() - started) / calls
