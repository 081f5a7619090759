"""Runs one micro-batch on an asynchronous executor: as `Runner` does, but as a coroutine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.batch_start import BatchStart, Work, no_result, not_run
from millstream.consumers.execute.bisecting import Bisection, Result
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.observability import metrics as m
from millstream.inference.errors import ExecutorUnavailable, ModelRejected, NotSent, Throttled, TimedOut
from millstream.inference.executors.blocking import TimedExecutor
from millstream.inference.executors.interface import AsyncExecutor, Inputs, Tensors
from millstream.inference.executors.opened import OpenedModel
from millstream.schemas.failures import failure_of

Finish = Callable[[], BatchResult]
"""Makes the result of a micro-batch whose request was answered. It is called later, so that the next request is sent first."""


class _OverError(Exception):
    """While the micro-batch waited, all its events passed their deadline, or it became outdated."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A micro-batch whose first try failed, or that can't be tried now."""

    number: int
    work: Work
    error: Exception | None  # of the first try; None: there was none


class AsyncRunner:
    """Runs micro-batches on one executor. Coroutines on the executor's event loop call it, many at a time."""

    def __init__(
        self,
        executor: AsyncExecutor,
        bisection: Bisection,
        model: OpenedModel,
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
        model: the model version of the executor.
        start: leaves out events that are too late.
        breaker: waits during an outage of the executor.
        places: bound the requests in flight.
        quota: bounds the requests a minute.
        metrics: where to count.
        """
        self.places = places
        self._executor = executor
        self._timed = TimedExecutor(executor)
        self._bisection = bisection
        self.model = model
        self._start = start
        self._breaker = breaker
        self.quota = quota
        self._note_seconds = metrics.observer(m.STAGE_SECONDS, "infer")
        executor.on_tokens = quota.correct

    @property
    def max_events(self) -> int:
        """The largest micro-batch that the executor takes. It may shrink during the warm-up."""
        return self._executor.max_events

    async def first_try(self, number: int, batch: MicroBatch) -> Finish | Unanswered:
        """Run the batch, if the executor isn't known to be away. The caller has a place.

        Args:
            number: of the batch, in order of submission.
            batch: what to run.
        """
        batch = self._start.admit(number, batch)
        work = self._start.begin(batch)
        if work is None:
            return partial(not_run, number, batch)
        if not self._breaker.is_calm():
            return Unanswered(number, work, None)
        try:
            return await self._answer(number, work)
        except Exception as error:
            if failure_of(error) != "wait":
                raise
            return Unanswered(number, work, error)

    async def retry(self, failed: Unanswered) -> Finish:
        """Run the batch after its first try. During an outage of the executor, it waits. It takes a place for each try."""
        number, work = failed.number, failed.work

        async def once() -> Finish:
            async with self.places:
                still = self._start.still(work)
                return partial(not_run, number, work.batch) if still is None else await self._answer(number, still)

        return await self._breaker.call(
            number,
            once,
            failed.error,
            is_over=lambda: self._start.is_over(work),
            position=lambda: work.batch.position,
        )

    async def _answer(self, number: int, begun: Work) -> Finish:
        """Run the events that are not too late by now. Raises ExecutorUnavailable."""
        work: Work | None = begun
        while work is not None:
            if not work.events:
                return partial(work.result, number, no_result(), 0.0, self.model.models)
            started = time.perf_counter()
            try:
                result = await self._run(work)
            except _OverError:
                work = self._start.still(begun)
                continue
            return partial(self._finish, number, work, result, time.perf_counter() - started)
        return partial(not_run, number, begun.batch)

    def _finish(self, number: int, work: Work, result: Callable[[], Result], took: float) -> BatchResult:
        self._note_seconds(took)
        return work.result(number, result(), took, self.model.models)

    async def _run(self, work: Work) -> Callable[[], Result]:
        """Run these events, and find those that the model rejects."""
        steps, part = None, work.inputs
        if not self._bisection.runs_whole(work.events):
            steps = self._bisection.steps(part)
            part = next(steps)
        try:
            while True:
                try:
                    outputs = await self._request(part, work)
                except _OverError:
                    raise
                except Exception as error:
                    if steps is None:  # the usual batch needs no steps
                        steps = self._bisection.steps(part, whole=True)
                        next(steps)
                    part = steps.throw(error)
                else:
                    if steps is None:
                        return partial(self._bisection.whole, part, outputs)
                    part = steps.send(outputs)
        except StopIteration as end:
            result: Result = end.value
            return lambda: result

    async def _request(self, inputs: Inputs, work: Work) -> Tensors:
        if self.quota.is_set and not await self.quota.take(
            lambda: self._executor.tokens(inputs), lambda: self._start.is_over(work)
        ):
            raise _OverError
        timeout, left = self._executor.limits.timeout, work.seconds_left()
        if left is not None:
            if left <= 0:
                raise _OverError
            timeout = min(timeout, left)
        limit, sent = self.places.limit, time.monotonic()
        try:
            outputs = await self._timed.run(inputs, timeout)
        except Throttled:
            limit.throttled(sent, time.monotonic())
            raise
        except NotSent:
            raise
        except ModelRejected:
            self._breaker.answered()
            raise
        except ExecutorUnavailable as error:
            # No outage: the events had less time than a request may take.
            is_short = isinstance(error, TimedOut) and timeout < self._executor.limits.timeout
            if left is not None and (is_short or work.seconds_left() == 0):
                raise _OverError from None
            raise
        self._breaker.answered()
        limit.answered(sent, time.monotonic(), self.places.taken)
        return outputs
