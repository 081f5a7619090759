"""Creates what runs micro-batches: threads for ordinary executors, an event loop for an asynchronous one."""

import time
from functools import partial
from typing import Any

from millstream.consumers.execute.async_pool import AsyncExecutorPool
from millstream.consumers.execute.async_runner import AsyncRunner
from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.bisecting import BisectingExecutor, Bisection
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.interface import Pool
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import ModelSlots
from millstream.consumers.observability.genai_metrics import observations
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import AsyncExecutor, Executor
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.executors.request_report import RequestReport


def pool_of(
    shared: Shared,
    model: OpenedModel,
    retry: Retry,
    results: ResultBuffer,
    *,
    in_flight: int,
    ahead: int,
) -> Pool:
    """Create the pool for a model.

    Args:
        shared: what the stages share.
        model: the version that runs the batches first.
        retry: waits during an outage.
        results: takes the results.
        in_flight: micro-batches that each executor runs at a time; an asynchronous one has a limit of its own.
        ahead: micro-batches that may wait for an executor.
    """
    settings = shared.settings
    # A transaction commits offsets, so it must hold exactly the results below them. This needs the order of the partitions.
    ordering: Ordering = "partition" if settings.exactly_once else settings.ordering
    if isinstance(model.executors[0], BlockingExecutor):
        return _asynchronous(shared, model, Flights(results, ordering=ordering, abandon=shared.ending.abandon), ahead)
    return ExecutorPool(
        [_runner(retry, shared) for _ in range(in_flight * len(model.executors))],
        ModelSlots(in_flight, partial(_isolated, shared), shared.metrics).serve,
        model,
        results,
        ahead=ahead,
        ordering=ordering,
        abandon=shared.ending.abandon,
        fail=shared.ending.fail,
    )


def _runner(retry: Retry, shared: Shared) -> Runner:
    settings = shared.settings
    return Runner(
        max_events=settings.batch.max_events,
        watchdog=Watchdog(settings.batch_timeout),
        retry=retry,
        is_outdated=shared.assignment.is_outdated,
        abandon=shared.ending.abandon,
        metrics=shared.metrics,
    )


def _isolated(shared: Shared, executor: Executor) -> BisectingExecutor:
    return BisectingExecutor(executor.run, **_isolation(shared, executor))


def _isolation(shared: Shared, executor: Executor | AsyncExecutor) -> dict[str, Any]:
    """How bad events of a version are isolated."""
    # Another version may take fewer events at a time than the first one, for which the batches are cut.
    most = shared.settings.batch.max_events
    return {
        "max_events": min(most, getattr(executor, "max_events", most)),
        "allow_nan_outputs": shared.settings.allow_nan_outputs,
        "net": SafetyNet("infer", shared.metrics),
    }


def _asynchronous(shared: Shared, model: OpenedModel, flights: Flights, ahead: int) -> Pool:
    """The pool of an asynchronous executor. It runs on the event loop on which the executor was warmed up."""
    return AsyncExecutorPool(
        _async_runner(shared, model, *_gates(shared, blocking_of(model).executor.limits)),
        partial(_next_async_runner, shared),
        flights,
        thread=blocking_of(model).thread,
        ahead=ahead,
        fail=shared.ending.fail,
        stalled_after=shared.settings.batch_timeout,
    )


def _next_async_runner(shared: Shared, model: OpenedModel, before: AsyncRunner) -> AsyncRunner:
    """The runner of another version.

    If both have the same limits of requests, they share them: batches of the version before may still be in flight.
    """
    limits = blocking_of(model).executor.limits
    same = limits == blocking_of(before.model).executor.limits
    return _async_runner(shared, model, *((before.places, before.quota) if same else _gates(shared, limits)))


def _gates(shared: Shared, limits: RequestLimits) -> tuple[RequestPlaces, QuotaGate]:
    assignment = shared.assignment
    quota = GroupQuota(limits.requests_per_minute, limits.tokens_per_minute, time.monotonic())
    places = RequestPlaces(ConcurrencyLimit(limits.concurrency))
    return places, QuotaGate(quota, lambda: (assignment.epochs, assignment.share))


def blocking_of(model: OpenedModel) -> BlockingExecutor:
    """The executor of a version whose executor is asynchronous."""
    (blocking,) = model.executors
    assert isinstance(blocking, BlockingExecutor)
    return blocking


def _async_runner(shared: Shared, model: OpenedModel, places: RequestPlaces, quota: QuotaGate) -> AsyncRunner:
    executor = blocking_of(model).executor
    executor.on_request = partial(_note_request, shared.metrics)
    return AsyncRunner(
        executor,
        Bisection(**_isolation(shared, executor)),
        model,
        start=BatchStart(
            max_events=shared.settings.batch.max_events,
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
