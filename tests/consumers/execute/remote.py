"""An asynchronous executor in memory, and the pool that runs micro-batches on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from millstream.consumers.events import BatchResult, ResultQueue
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
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import AsyncExecutor
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.opened import OpenedModel
from tests.broker.clients import wait_until
from tests.consumers.in_memory import MODEL
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from millstream.consumers.events import MicroBatch
    from millstream.consumers.execute.reorder_buffer import Ordering
    from millstream.inference.executors.interface import Tensors

Before = Callable[["Tensors"], Awaitable[object]]


async def nothing(_inputs: Tensors) -> None:
    """Let every request through."""


class NegatingServer(AsyncExecutor):
    """`y` = -`x`, after whatever `before` awaits or raises."""

    max_events = 64

    def __init__(self, before: Before = nothing, *, timeout: float = 30.0) -> None:
        self.limits = RequestLimits(timeout=timeout)
        self.before = before
        self.requests: list[list[float]] = []  # the events of each
        self.timeouts: list[float] = []
        self.flying = self.most_flying = 0

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, inputs: Tensors, timeout: float) -> dict[str, npt.NDArray[Any]]:
        self.requests.append(inputs["x"].reshape(-1).tolist())
        self.timeouts.append(timeout)
        self.flying += 1
        self.most_flying = max(self.flying, self.most_flying)
        try:
            await self.before(inputs)
        finally:
            self.flying -= 1
        return {"y": -inputs["x"]}


class Remote(Measured):
    """A pool on an executor, with what is around it. A context manager that ends its thread."""

    def __init__(
        self,
        executor: AsyncExecutor,
        *,
        concurrency: int | None = 100,
        ahead: int = 0,
        ordering: Ordering = "partition",
        is_outdated: Callable[[MicroBatch], bool] = lambda _batch: False,
        admit: Callable[[int, MicroBatch], MicroBatch] = lambda _number, batch: batch,
        quota: GroupQuota | None = None,
        runner_of: Callable[[OpenedModel, AsyncRunner], AsyncRunner] | None = None,
        share: Callable[[], tuple[Mapping[Any, int], float]] = lambda: ({}, 1.0),
    ) -> None:
        super().__init__()
        self.answers: ResultQueue = SimpleQueue()
        self._given: list[BatchResult] = []
        self.abandon = threading.Event()
        self.errors: list[BaseException] = []
        self.health = Health(60)
        self.health.ready = True
        self.blocking = BlockingExecutor(executor)
        self.thread = self.blocking.thread
        self.limit = ConcurrencyLimit(concurrency)
        self._is_outdated, self._admit = is_outdated, admit
        self.runner = self.runner_for(
            OpenedModel(MODEL, [self.blocking]),
            RequestPlaces(self.limit),
            QuotaGate(quota or GroupQuota(None, None, 0.0), share),
        )
        self.pool = AsyncExecutorPool(
            self.runner,
            runner_of or (lambda _model, before: before),
            Flights(ResultBuffer(self.answers), ordering=ordering, abandon=self.abandon),
            thread=self.thread,
            ahead=ahead,
            fail=self.errors.append,
            stalled_after=600,
        )

    def runner_for(self, model: OpenedModel, places: RequestPlaces, quota: QuotaGate) -> AsyncRunner:
        """Runs batches on a version."""
        (blocking,) = model.executors
        assert isinstance(blocking, BlockingExecutor)
        return AsyncRunner(
            blocking.executor,
            Bisection(max_events=64, allow_nan_outputs=False, net=SafetyNet("infer", self.metrics)),
            model,
            start=BatchStart(max_events=64, admit=self._admit, is_outdated=self._is_outdated, metrics=self.metrics),
            breaker=CircuitBreaker(Outages(self.health, self.metrics)),
            places=places,
            quota=quota,
            metrics=self.metrics,
        )

    def results(self) -> list[BatchResult]:
        """What has been passed on so far, in order."""
        given = [self.answers.get_nowait() for _ in range(self.answers.qsize())]
        self._given += [one for group in given if isinstance(group, list) for one in group]
        return self._given

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        self.blocking.close()


class Held:
    """Holds requests until they may go on."""

    def __init__(self) -> None:
        self.may: dict[float, asyncio.Event] = {}  # first number of the request

    async def __call__(self, inputs: Tensors) -> None:
        event = self.may[float(inputs["x"].reshape(-1)[0])] = asyncio.Event()
        await event.wait()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests are held or were."""
        wait_until(lambda: len(self.may) >= count, 10, f"{count} requests")

    def release(self, remote: Remote, *numbers: float) -> None:
        """Let the requests with these first numbers go on."""
        for number in numbers:
            remote.thread.loop.call_soon_threadsafe(self.may[number].set)
