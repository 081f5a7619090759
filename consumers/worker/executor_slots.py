"""Creates what runs micro-batches: threads for ordinary executors, an event loop for an asynchronous one."""

import time
from functools import partial

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
from millstream.consumers.observability.genai_metrics import observations
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import Executor, models_of
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.executors.request_report import RequestReport
from millstream.inference.model_id import ModelId


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
        model: runs the batches.
        retry: waits during an outage.
        results: takes the results.
        in_flight: micro-batches that each executor runs at a time; an asynchronous one has a limit of its own.
        ahead: micro-batches that may wait for an executor.
    """
    settings = shared.settings
    # A transaction commits offsets, so it must hold exactly the results below them. This needs the order of the partitions.
    ordering: Ordering = "partition" if settings.exactly_once else settings.ordering
    if isinstance(model.executors[0], BlockingExecutor):
        return _asynchronous(
            shared,
            model.executors[0],
            model.id,
            Flights(results, ordering=ordering, abandon=shared.ending.abandon),
            ahead,
        )
    return ExecutorPool(
        [_runner(executor, model.id, retry, shared) for _ in range(in_flight) for executor in model.executors],
        results,
        ahead=ahead,
        ordering=ordering,
        abandon=shared.ending.abandon,
        fail=shared.ending.fail,
    )


def _runner(executor: Executor, model: ModelId, retry: Retry, shared: Shared) -> Runner:
    settings = shared.settings
    isolation = BisectingExecutor(
        executor.run,
        max_events=settings.batch.max_events,
        allow_nan_outputs=settings.allow_nan_outputs,
        net=SafetyNet("infer", shared.metrics),
    )
    return Runner(
        isolation,
        partial(models_of, executor, (model,)),
        max_events=settings.batch.max_events,
        watchdog=Watchdog(settings.batch_timeout),
        retry=retry,
        is_outdated=shared.assignment.is_outdated,
        abandon=shared.ending.abandon,
        metrics=shared.metrics,
    )


def _asynchronous(shared: Shared, blocking: BlockingExecutor, model: ModelId, flights: Flights, ahead: int) -> Pool:
    """The pool of an asynchronous executor. It runs on the event loop on which the executor was warmed up."""
    settings, executor, assignment = shared.settings, blocking.executor, shared.assignment
    max_events, limits = settings.batch.max_events, executor.limits
    executor.on_request = partial(_note_request, shared.metrics)
    limit = ConcurrencyLimit(limits.concurrency)
    quota = GroupQuota(limits.requests_per_minute, limits.tokens_per_minute, time.monotonic())
    runner = AsyncRunner(
        executor,
        Bisection(
            max_events=max_events,
            allow_nan_outputs=settings.allow_nan_outputs,
            net=SafetyNet("infer", shared.metrics),
        ),
        partial(models_of, executor, (model,)),
        start=BatchStart(max_events=max_events, is_outdated=assignment.is_outdated, metrics=shared.metrics),
        # Reading goes on: an event that always fails would otherwise hold up those of all partitions, whatever `ordering` is.
        breaker=CircuitBreaker(Outages(shared.health, shared.metrics, stop_reading=False)),
        places=RequestPlaces(limit),
        quota=QuotaGate(quota, lambda: (assignment.epochs, assignment.share)),
        metrics=shared.metrics,
    )
    return AsyncExecutorPool(
        runner,
        flights,
        thread=blocking.thread,
        limit=limit,
        ahead=ahead,
        fail=shared.ending.fail,
        stalled_after=settings.batch_timeout,
    )


def _note_request(metrics: Metrics, report: RequestReport) -> None:
    for metric, value, labels in observations(report):
        metrics.observe(metric, value, *labels)
