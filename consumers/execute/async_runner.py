"""Runs one micro-batch on an asynchronous executor: as `Runner` does, but as a coroutine."""

import asyncio
import time
from collections.abc import Callable

from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.batch_start import BatchStart, Work, no_result, not_run
from millstream.consumers.execute.bisecting import Bisection, Result
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.observability import metrics as m
from millstream.inference.errors import ExecutorUnavailable, Throttled
from millstream.inference.executors.blocking import timed_run
from millstream.inference.executors.interface import AsyncExecutor, Inputs, Tensors
from millstream.inference.model_id import ModelId


class _OverError(Exception):
    """While the micro-batch waited, all its events passed their deadline, or it became outdated."""


class AsyncRunner:
    """Runs micro-batches on one executor. Coroutines on the executor's event loop call it, many at a time."""

    def __init__(
        self,
        executor: AsyncExecutor,
        bisection: Bisection,
        models: Callable[[], tuple[ModelId, ...]],
        *,
        start: BatchStart,
        breaker: CircuitBreaker,
        places: RequestPlaces,
        quota: QuotaGate,
        metrics: m.Metrics,
    ) -> None:
        """Args:
        executor: runs the model.
        bisection: isolates bad events.
        models: returns the models that the executor runs, after a batch.
        start: leaves out events that are too late.
        breaker: waits during an outage of the executor.
        places: bound the requests in flight.
        quota: bounds the requests a minute.
        metrics: where to count.
        """
        self._executor = executor
        self._bisection = bisection
        self._models = models
        self._start = start
        self._breaker = breaker
        self._places = places
        self._quota = quota
        self._metrics = metrics
        executor.on_tokens = quota.correct

    async def answer(self, number: int, batch: MicroBatch) -> BatchResult:
        """Run the batch. During an outage of the executor, it waits.

        Args:
            number: of the batch, in order of submission.
            batch: what to run.
        """
        work = self._start.begin(batch)
        if work is None:
            return not_run(number, batch)

        async def once() -> BatchResult:
            async with self._places:
                return await self._once(number, work)

        return await self._breaker.call(
            number, once, is_over=lambda: self._start.is_over(work), position=lambda: batch.position
        )

    async def _once(self, number: int, begun: Work) -> BatchResult:
        """Run the events that are not too late by now. Raises ExecutorUnavailable."""
        while True:
            work = self._start.still(begun)
            if work is None:
                return not_run(number, begun.batch)
            if not work.events:
                return work.result(number, no_result(), 0.0, self._models())
            started = time.perf_counter()
            try:
                result = await self._run(work)
            except _OverError:
                continue
            self._breaker.answered()
            took = time.perf_counter() - started
            self._metrics.observe(m.STAGE_SECONDS, took, "infer")
            return work.result(number, result, took, self._models())

    async def _run(self, work: Work) -> Result:
        """Run these events, and find those that the model rejects."""
        steps = self._bisection.steps(work.inputs)
        try:
            part = next(steps)
            while True:
                try:
                    outputs = await self._request(part, work)
                except _OverError:
                    raise
                except Exception as error:
                    part = steps.throw(error)
                else:
                    part = steps.send(outputs)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _request(self, inputs: Inputs, work: Work) -> Tensors:
        if not await self._quota.take(lambda: self._executor.tokens(inputs), lambda: self._start.is_over(work)):
            raise _OverError
        timeout, left = self._executor.limits.timeout, work.seconds_left()
        if left is not None:
            if left <= 0:
                raise _OverError
            timeout = min(timeout, left)
        loop, limit = asyncio.get_running_loop(), self._places.limit
        sent = loop.time()
        try:
            outputs = await timed_run(self._executor, inputs, timeout)
        except Throttled:
            limit.throttled(sent, loop.time())
            raise
        except ExecutorUnavailable:
            if (
                left is not None and work.seconds_left() == 0
            ):  # no outage: the events had less time than a request may take
                raise _OverError from None
            raise
        limit.answered(sent, loop.time(), self._places.taken)
        return outputs
