"""The data path without Kafka: recorded bytes -> decode -> batch -> executor -> encode, through the worker's own stages."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import cycle, takewhile
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from benchmarks.errors import PeerFailedError
from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.events import Barrier, FetchedBatch
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.opened_rollout import Opened
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import ServedModel, SlotModel
from millstream.consumers.flow.in_flight import MEASURED_COST, InFlightBudget
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_types import Position
from millstream.consumers.records import Records
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.sink.coalesce import coalesce
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.consumers.worker.compute import DECODE_RECORDS, Compute
from millstream.consumers.worker.plan import batches_ahead
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.packed import Packed
from millstream.schemas.predictions import PredictionEncoder
from millstream.schemas.row_models import RowModels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from millstream.consumers.events import BatchResult, ResultQueue
    from millstream.consumers.execute.bisecting import Run
    from millstream.inference.signature import Signature

HELD = (100_000, 64 << 20)  # events and bytes read and not yet encoded, as a worker holds by default
CALL_TIMEOUT = 300  # seconds in the model after which the process ends
WAIT = 0.1  # seconds between two looks at whether a stage has failed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Throughput:
    """So many events in so long a time."""

    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events/s."""
        return self.events / self.seconds


class DataPath:
    """The stages of a worker around an executor, made anew for each run."""

    def __init__(
        self,
        schemas: Path,
        schema: str,
        signature: Signature,
        run: Run,
        *,
        device: str,
        max_events: int,
        in_flight: int,
    ) -> None:
        """Args:
        schemas: folder of the schemas.
        schema: name of the events' schema.
        signature: of the model.
        run: runs the model, as `Executor.run`; called by `in_flight` threads.
        device: on which it runs.
        max_events: of a micro-batch.
        in_flight: micro-batches that run at a time, as `model.concurrent_batches`.
        """
        store = DirectoryStore(schemas)
        decoder = AvroDecoder(store, store.by_name(schema), [*signature.fields, "id", "event_time"])
        self._decoder = BlockDecoder(decoder, EventFields("id", "event_time"), signature, allow_nan=False)
        self._encoder = PredictionEncoder(1_000_001, pipeline="bench", variant="primary")
        self._run = run
        self._max_events = max_events
        self._ahead = batches_ahead(device, in_flight, max_events)
        self._watchdogs = [Watchdog(CALL_TIMEOUT) for _ in range(in_flight)]
        self._decoding = Watchdog(CALL_TIMEOUT)

    def run(self, polls: Iterable[Packed]) -> Throughput:
        """Read all polls, and wait for their predictions.

        Raises:
            PeerFailedError: an event has none.
            Exception: what ended a stage.
        """
        run = _Run(self._encoder, self._max_events)
        return run.through(self._compute(run), polls)

    def _compute(self, run: _Run) -> Compute:
        """The computing stage, as `Worker` puts it together."""
        metrics = Metrics("bench")
        retry = _NoPatience(run.abandon, Health(CALL_TIMEOUT), metrics)
        runners = [
            Runner(
                max_events=self._max_events,
                watchdog=watchdog,
                retry=retry,
                admit=lambda _number, batch: batch,
                is_outdated=lambda _batch: False,
                abandon=run.abandon,
                metrics=metrics,
            )
            for watchdog in self._watchdogs
        ]
        return Compute(
            run.inbox,
            run.answers,
            decoder=IsolatingDecoder(self._decoder, retry=retry, watchdog=self._decoding, metrics=metrics),
            batcher=Batcher(Limits(self._max_events, max_bytes=1 << 40, max_wait=3600)),
            order=OffsetOrderCheck({}),
            pool=ExecutorPool(
                runners,
                self._in_slots,
                OpenedModel(ModelId("bench", 1), [_Running(self._run)]),
                ResultBuffer(run.answers),
                ahead=self._ahead,
                ordering="partition",
                abandon=run.abandon,
                fail=run.fail,
            ),
            metrics=metrics,
        )

    def _in_slots(self, model: Opened) -> ServedModel:
        """The model in one slot for each batch that runs at a time."""
        assert isinstance(model, OpenedModel)
        return ServedModel(
            model,
            [
                SlotModel(BisectingExecutor(self._run, max_events=self._max_events, allow_nan_outputs=False), model)
                for _ in self._watchdogs
            ],
        )


class _Running:
    """An executor that runs a function."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def warm_up(self) -> None:
        """It is warmed up."""

    def close(self) -> None:
        """Its owner closes it."""


class _Run:
    """Reads in one thread, computes in a second and, with batches in flight, in as many more; encodes in the caller's."""

    def __init__(self, encoder: PredictionEncoder, max_events: int) -> None:
        self.inbox: SimpleQueue[FetchedBatch | Barrier | None] = SimpleQueue()
        self.answers: ResultQueue = SimpleQueue()
        self.abandon = threading.Event()
        self._encoder = encoder
        self._budget = InFlightBudget(*HELD, MEASURED_COST, max_events)
        self._read = 0
        self._error: BaseException | None = None

    def through(self, compute: Compute, polls: Iterable[Packed]) -> Throughput:
        """See `DataPath.run`."""
        stages = [
            threading.Thread(target=self._guard, args=(stage,), daemon=True)
            for stage in (lambda: self._feed(polls), compute.run)
        ]
        start = time.monotonic()
        for stage in stages:
            stage.start()
        written = 0
        try:
            for answered in self._answered():
                written += self._encode(answered)
        except BaseException as error:
            self.fail(error)
        seconds = time.monotonic() - start
        for stage in stages:
            stage.join()
        if self._error is not None:
            raise self._error
        if written != self._read:
            raise PeerFailedError(f"{written} of {self._read} events have a prediction")
        return Throughput(written, seconds)

    def fail(self, error: BaseException) -> None:
        """End all stages, whatever they wait for: the first error is the cause of those that follow."""
        self._error = self._error or error
        self.abandon.set()
        self.inbox.put(None)
        self.answers.put(None)

    def _guard(self, stage: Callable[[], None]) -> None:
        try:
            stage()
        except BaseException as error:
            self.fail(error)

    def _feed(self, polls: Iterable[Packed]) -> None:
        for values in polls:
            while not self._budget.wait_for_room(WAIT):
                if self.abandon.is_set():
                    return
            records = _records(values, self._read)
            polled = FetchedBatch(records, {("recorded", 0): 1}, time.monotonic(), time.time_ns() // 1_000_000)
            self._budget.add(len(records), records.bytes, polled.arrived)
            self._read += len(records)
            self.inbox.put(polled)
        self.inbox.put(None)

    def _answered(self) -> Iterator[BatchResult]:
        while (answers := self.answers.get()) is not None:
            assert not isinstance(answers, Barrier | Exception)  # no barrier is sent, and no record read again
            yield from coalesce(answers)

    def _encode(self, answered: BatchResult) -> int:
        batch = answered.batch
        if len(answered.rows) < batch.records:
            raise PeerFailedError(f"{len(answered.rows)} of a batch's {batch.records} events have a prediction")
        ingest_times = np.concatenate([np.full(part.last - part.first, part.block.ingest_time) for part in batch.parts])
        predictions = self._encoder.encode(
            batch.ids(),
            batch.event_times(),
            ingest_times,
            answered.prediction_times,
            answered.outputs,
            models=RowModels(answered.models, answered.answered_by),
        )
        self._budget.release(batch.records, batch.bytes)
        return len(predictions)


class _NoPatience(Retry):
    """What is away ends the run: its figures would tell of the wait."""

    def call(self, what: str, call: Callable[[], T], position: Callable[[Exception], Position] | None = None) -> T:  # noqa: ARG002
        return call()


def polls_of(values: Packed) -> Iterator[Packed]:
    """The values once, by as many as a worker decodes at once."""
    return (values[start : start + DECODE_RECORDS] for start in range(0, len(values), DECODE_RECORDS))


def polls_for(values: Packed, seconds: float) -> Iterator[Packed]:
    """The values over and over, for so long from now."""
    until = time.monotonic() + seconds
    return takewhile(lambda _: time.monotonic() < until, cycle(list(polls_of(values))))


def _records(values: Packed, start: int) -> Records:
    """As they are read: one partition's, from this offset."""
    count = len(values)
    zeros, types = np.zeros(count, np.int64), np.ones(count, np.int64)
    return Records(
        (("recorded", 0),),
        zeros,
        np.arange(start, start + count),
        zeros,
        types,
        [None] * count,
        values,
        {},
        values.lengths,
    )
