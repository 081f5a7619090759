"""Creates what runs the micro-batches of an asynchronous executor: an event loop."""

import time
from functools import partial

from millstream.consumers.execute.async_pool import AsyncExecutorPool
from millstream.consumers.execute.async_runner import AsyncRunner
from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.bisecting import Bisection
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.interface import Pool
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.observability.genai_metrics import observations
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.worker.isolation import isolation
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.executors.request_report import RequestReport


def asynchronous_pool(shared: Shared, model: OpenedModel, flights: Flights, ahead: int) -> Pool:
    """The pool of an asynchronous executor. It runs on the event loop on which the executor was warmed up."""
    return AsyncExecutorPool(
        _async_runner(shared, model, *_gates(shared, _blocking_of(model).executor.limits)),
        partial(_next_async_runner, shared),
        flights,
        thread=_blocking_of(model).thread,
        ahead=ahead,
        fail=shared.ending.fail,
        stalled_after=shared.settings.batch_timeout,
    )


def _next_async_runner(shared: Shared, model: OpenedModel, before: AsyncRunner) -> AsyncRunner:
    """The runner of another version.

    If both have the same limits of requests, they share them: batches of the version before may still be in flight.
    """
    limits = _blocking_of(model).executor.limits
    same = limits == _blocking_of(before.model).executor.limits
    return _async_runner(shared, model, *((before.places, before.quota) if same else _gates(shared, limits)))


def _gates(shared: Shared, limits: RequestLimits) -> tuple[RequestPlaces, QuotaGate]:
    assignment = shared.assignment
    quota = GroupQuota(limits.requests_per_minute, limits.tokens_per_minute, time.monotonic())
    places = RequestPlaces(ConcurrencyLimit(limits.concurrency))
    return places, QuotaGate(quota, lambda: (assignment.epochs, assignment.share))


def _blocking_of(model: OpenedModel) -> BlockingExecutor:
    """The executor of a version whose executor is asynchronous."""
    (blocking,) = model.executors
    assert isinstance(blocking, BlockingExecutor)
    return blocking


def _async_runner(shared: Shared, model: OpenedModel, places: RequestPlaces, quota: QuotaGate) -> AsyncRunner:
    executor = _blocking_of(model).executor
    executor.on_request = partial(_note_request, shared.metrics)
    return AsyncRunner(
        executor,
        Bisection(**isolation(shared, executor)),
        model,
        start=BatchStart(
            max_events=shared.settings.batch.max_events,
            admit=shared.assignment.admit,
            is_outdated=shared.assignment.is_outdated,
            metrics=shared.metrics,
        ),
        # Reading goes on: an event that always fails would otherwise hold up those of all partitions, whatever `ordering` is.
        breaker=CircuitBreaker(Outages(shared.health, shared.metrics, stop_reading=False)),
        places=places,
        quota=quota,
        metrics=shared.metrics,
    )


def _note_request(metrics: Metrics, report: RequestReport) -> None:
    for metric, value, labels in observations(report):
        metrics.observe(metric, value, *labels)
