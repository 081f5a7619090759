"""The pool that a worker has around an asynchronous executor, without Kafka: retries, limits, isolation, the order of results."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.execute.async_pool import AsyncExecutorPool
from millstream.consumers.execute.async_runner import AsyncRunner
from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.bisecting import Bisection
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.worker.plan import batches_ahead
from millstream.inference.executors.interface import rows_of
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.packed import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.consumers.events import ResultQueue
    from millstream.inference.executors.blocking import BlockingExecutor


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many events took."""

    events: int
    seconds: float
    cpu: float  # seconds, of this process

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of an event, us."""
        return self.cpu / self.events * 1e6


def measured(run: Callable[[], object], events: int) -> Cost:
    """What a call takes."""
    started, cpu = time.perf_counter(), time.process_time()
    run()
    return Cost(events, time.perf_counter() - started, time.process_time() - cpu)


def micro_batch(tensors: Mapping[str, Any]) -> MicroBatch:
    """A micro-batch of one whole block, with these inputs."""
    count = rows_of(tensors)
    rows = np.arange(count)
    block = DecodedBatch(
        {("in", 0): 1},
        time.monotonic(),
        0,
        partitions={0: ("in", 0)},
        places=np.zeros(count, np.int64),
        offsets=rows,
        timestamps=rows,
        timestamp_types=rows,
        keys=[None] * count,
        values=[b""] * count,
        headers={},
        ends=rows,
        good=rows,
        ids=Texts.of([""] * count),
        event_times=rows,
        deadlines=None,
        costs=None,
        tensors=tensors,
        features=None,
        invalid_deadlines=0,
        rejected={},
    )
    return MicroBatch((BatchSlice(block, 0, count, 0, count),), "size")


class WorkerPool:
    """The pool of a worker on an asynchronous executor."""

    def __init__(self, executor: BlockingExecutor, concurrency: int) -> None:
        self.answers: ResultQueue = SimpleQueue()
        metrics, limit = Metrics("p"), ConcurrencyLimit(concurrency)
        max_events = executor.max_events
        runner = AsyncRunner(
            executor.executor,
            Bisection(max_events=max_events, allow_nan_outputs=False, net=SafetyNet("infer", metrics)),
            OpenedModel(ModelId("bench", 1), [executor]),
            start=BatchStart(
                max_events=max_events,
                admit=lambda _number, batch: batch,
                is_outdated=lambda _batch: False,
                metrics=metrics,
            ),
            breaker=CircuitBreaker(Outages(Health(60), metrics)),
            places=RequestPlaces(limit),
            quota=QuotaGate(GroupQuota(None, None, 0.0), lambda: ({}, 1.0)),
            metrics=metrics,
        )
        self._pool = AsyncExecutorPool(
            runner,
            lambda _model, before: before,
            Flights(ResultBuffer(self.answers), ordering="partition", abandon=threading.Event()),
            thread=executor.thread,
            ahead=batches_ahead(executor.device, concurrency, max_events),
            fail=lambda error: print(error, file=sys.stderr),
            stalled_after=600,
        )
        self._next = 0  # the number of the next result

    def run(self, batches: Sequence[MicroBatch]) -> None:
        """Run the batches, and take their results in order."""
        last = self._next + len(batches)
        for batch in batches:
            self._pool.submit(batch)
            self._take()
        self._pool.settle()
        self._take()
        assert self._next == last

    def close(self) -> None:
        """End what runs."""
        self._pool.close()

    def _take(self) -> None:
        """Take the results that are there, as the write thread does. Nothing keeps them."""
        while not self.answers.empty():
            for one in self.answers.get_nowait():  # type: ignore[union-attr]
                assert (one.number, len(one.rows)) == (self._next, one.batch.events)
                self._next += 1
