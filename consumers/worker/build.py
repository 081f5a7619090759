"""Creates the parts of a worker in the order of an event's path, and connects them.

Parts that only some pipelines have are imported where they are chosen: a plain worker starts sooner without them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from millstream.consumers.batch.batcher import Batcher
from millstream.consumers.client_handle import report_native
from millstream.consumers.decode.decoder import BlockDecoder
from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.events import Barrier, FetchedBatch
from millstream.consumers.execute.interface import Pool
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import SERVING_MODEL, Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.sink.delivery import AtLeastOnce, Delivery, LostBroker
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.sink.transactions import COMMIT_SETTLE_TIME, ExactlyOnce
from millstream.consumers.sink.writer import Checkpoints, ResultSink, Writer
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.consumers.worker.clients import producer_settings, subscription_of
from millstream.consumers.worker.compute import Compute
from millstream.consumers.worker.event_source import EventSource
from millstream.consumers.worker.executor_slots import pool_of
from millstream.consumers.worker.following import Following
from millstream.consumers.worker.plan import Plan, batches_ahead, check_answers, outputs_of, settings_of
from millstream.consumers.worker.shared import Shared, shared_of
from millstream.consumers.worker.worker import Models, Stage, Worker
from millstream.inference.combined.version import CombinedVersion
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.opened import OpenedModel

if TYPE_CHECKING:
    from millstream.consumers.shadow.shadow_thread import ShadowThread
    from millstream.consumers.worker.rollout_following import Control

MAX_UNCOMMITTED_SHARE = 1 / 2  # of the in-flight limit: a checkpoint is due when the uncommitted results reach it
DECODE_TIMEOUT = 90.0  # seconds that a decode may take at least: a slow registry may need half of them


Follow = Callable[[OpenedModel, Pool], Following]


def keep_version(first: OpenedModel, _pool: Pool) -> Following:
    """What follows nothing: the version is fixed."""
    return Following((), first.close)


class Serving(NamedTuple):
    """The model that a worker serves."""

    model: OpenedModel  # at the start
    in_flight: int  # micro-batches that each executor runs at a time
    ahead: int  # micro-batches that may wait for an executor
    follow: Follow = keep_version  # creates what follows the wanted versions


def build_worker(
    plan: Plan,
    health: Health,
    metrics: Metrics,
    *,
    largest_outputs: Mapping[str, int],
    lost_broker: LostBroker,
    instance_id: str,
    until_idle: bool,
    control: "Control | None" = None,
) -> Worker:
    """Create a worker.

    Args:
        plan: the pipeline, loaded and checked.
        health: gets the worker's state.
        metrics: where to count.
        largest_outputs: bytes of the largest record that each output topic accepts.
        lost_broker: called when one of its clients loses a broker.
        instance_id: the worker's name in its group, the same over restarts.
        until_idle: whether the worker ends once all input is processed.
        control: the rollout that the worker follows; None: it follows none.
    """
    report_native()
    pipeline = plan.pipeline
    guard = CrashGuard(pipeline.limits.crash_attempts, span=4 * pipeline.batch.max_events)
    shared = shared_of(settings_of(plan, until_idle=until_idle), guard, health, metrics)
    source = Source(
        pipeline.client_config(),
        subscription_of(plan, instance_id, until_idle=until_idle),
        assignment=shared.assignment,
        guard=guard,
        health=health,
        metrics=metrics,
        lost_broker=lost_broker,
    )
    if isinstance(plan.model, CombinedVersion):
        from millstream.consumers.worker.several_metrics import count_several  # noqa: PLC0415

        count_several(plan.executors, metrics)
    sink = _sink(plan, shared, largest_outputs, instance_id, lost_broker)
    shadows = _shadow_thread(plan, shared, lost_broker) if plan.shadows and not plan.dedicated else None
    return connect(
        shared,
        source=source,
        decoder=plan.decoder,
        serving=serving_of(plan, _follow(plan, shared, control)),
        sink=sink,
        shadows=shadows,
    )


def serving_of(plan: Plan, follow: Follow = keep_version) -> Serving:
    """The plan's model, as `connect` takes it. `follow`: see `Serving`."""
    if isinstance(plan.executor, BlockingExecutor):
        plan.executor.checks.append(partial(check_answers, plan))
    in_flight = plan.pipeline.model.concurrent_batches
    ahead = batches_ahead(plan.executor.device, in_flight * len(plan.executors), plan.pipeline.batch.max_events)
    return Serving(OpenedModel(plan.model.id, plan.executors), in_flight, ahead, follow)


def connect(
    shared: Shared,
    *,
    source: EventSource,
    decoder: BlockDecoder,
    serving: Serving,
    sink: ResultSink,
    shadows: "ShadowThread | None",
) -> Worker:
    """Create the stages between a source and a sink, and connect them.

    Args:
        shared: what the stages share.
        source: reads the events.
        decoder: turns records into columns.
        serving: the model that runs the batches.
        sink: writes the results.
        shadows: get the delivered results.
    """
    limits = shared.settings.batch
    inbox: SimpleQueue[FetchedBatch | Barrier | None] = SimpleQueue()
    window = BatchWindow(limits.max_wait, limits.target_p99, enough=limits.max_events)
    results = ResultBuffer(shared.answers)
    retry = Retry(shared.ending.abandon, shared.health, shared.metrics, before_waiting=results.flush)
    pool = pool_of(shared, serving.model, retry, results, in_flight=serving.in_flight, ahead=serving.ahead)
    compute = Compute(
        inbox,
        shared.answers,
        decoder=_decoding(decoder, shared, retry),
        batcher=Batcher(limits, shared.quotas.weights if shared.quotas else None, window=window),
        order=OffsetOrderCheck(source.start_offsets),
        pool=pool,
        metrics=shared.metrics,
        quotas=shared.quotas,
    )
    writer = _writer(shared, sink, window, shadows)
    following = serving.follow(serving.model, pool)
    stages: list[Stage] = [("compute", compute.run), ("write", writer.run), *following.stages]
    return Worker(
        shared,
        source=source,
        inbox=inbox,
        window=window,
        stages=stages,
        models=Models(serving.model, following.close, following.prepare, following.version_of),
        sink=sink,
        shadows=shadows,
    )


def _decoding(decoder: BlockDecoder, shared: Shared, retry: Retry) -> IsolatingDecoder:
    return IsolatingDecoder(
        decoder,
        retry=retry,
        watchdog=Watchdog(max(2 * shared.health.stall_after, DECODE_TIMEOUT)),
        metrics=shared.metrics,
    )


def _writer(shared: Shared, sink: ResultSink, window: BatchWindow, shadows: "ShadowThread | None") -> Writer:
    settings = shared.settings
    rest = COMMIT_SETTLE_TIME if settings.exactly_once else 0.0
    return Writer(
        shared.answers,
        sink=sink,
        budget=shared.budget,
        assignment=shared.assignment,
        checkpoints=Checkpoints(settings.commit_every, MAX_UNCOMMITTED_SHARE, settings.exactly_once, rest),
        window=window,
        shadows=shadows,
    )


def _sink(
    plan: Plan,
    shared: Shared,
    limits: Mapping[str, int],
    instance_id: str,
    lost_broker: LostBroker,
) -> Sink:
    outputs, producer = outputs_of(plan, limits), producer_settings(plan, limits)
    abandon, metrics = shared.ending.abandon, shared.metrics
    delivery: Delivery
    if shared.settings.exactly_once:
        delivery = ExactlyOnce(
            producer,
            transactional_id=instance_id,
            assignment=shared.assignment,
            abandon=abandon,
            metrics=metrics,
            lost_broker=lost_broker,
            broker_away=lambda: shared.health.broker_away is not None,
        )
    else:
        delivery = AtLeastOnce(producer, abandon=abandon, metrics=metrics, lost_broker=lost_broker)
    if not plan.dedicated:
        return Sink(delivery, outputs, assignment=shared.assignment, metrics=metrics)
    from millstream.consumers.worker.shadowing import comparison_sink  # noqa: PLC0415

    return comparison_sink(plan, shared, delivery, outputs, limits)


def _shadow_thread(plan: Plan, shared: Shared, lost_broker: LostBroker) -> "ShadowThread":
    from millstream.consumers.worker.shadowing import shadow_thread  # noqa: PLC0415

    return shadow_thread(plan, shared, lost_broker)


def _follow(plan: Plan, shared: Shared, control: "Control | None") -> Follow:
    """See `Serving.follow`. `control`: see `build_worker`."""
    if control is not None:
        from millstream.consumers.worker.rollout_following import follow_rollout  # noqa: PLC0415

        return partial(follow_rollout, plan, shared, control, shared.health)
    if isinstance(plan.model, CombinedVersion):
        from millstream.consumers.worker.members_following import follow_members  # noqa: PLC0415

        return partial(follow_members, plan, shared)
    if isinstance(plan.pipeline.wanted_version, str):
        from millstream.consumers.worker.version_following import follow_version  # noqa: PLC0415

        return partial(follow_version, plan, shared)
    shared.metrics.set(SERVING_MODEL, 1, plan.model.name, str(plan.model.version))
    return keep_version
