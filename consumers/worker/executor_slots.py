"""Creates what runs micro-batches: threads for ordinary executors, an event loop for an asynchronous one (async_slots.py)."""

from functools import partial

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.interface import Pool
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import ModelSlots
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.worker.isolation import isolation
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import Executor
from millstream.inference.executors.opened import OpenedModel


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
        # Imported here, because ordinary executors need nothing of it.
        from millstream.consumers.worker.async_slots import asynchronous_pool  # noqa: PLC0415

        flights = Flights(results, ordering=ordering, abandon=shared.ending.abandon)
        return asynchronous_pool(shared, model, flights, ahead)
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
        admit=shared.assignment.admit,
        is_outdated=shared.assignment.is_outdated,
        abandon=shared.ending.abandon,
        metrics=shared.metrics,
    )


def _isolated(shared: Shared, executor: Executor) -> BisectingExecutor:
    return BisectingExecutor(executor.run, **isolation(shared, executor))
