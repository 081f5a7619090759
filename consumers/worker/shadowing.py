"""Creates what runs the shadows of a worker, or what writes their comparisons where they run in workers of their own."""

from collections.abc import Mapping

from millstream.consumers.shadow.comparison_sink import ComparisonSink
from millstream.consumers.shadow.shadow_loading import count_undelivered, make_shadows
from millstream.consumers.shadow.shadow_thread import ShadowThread
from millstream.consumers.sink.delivery import BestEffort, Delivery, LostBroker
from millstream.consumers.sink.result_sink import Outputs
from millstream.consumers.worker.plan import Plan
from millstream.consumers.worker.shared import Shared


def comparison_sink(
    plan: Plan, shared: Shared, delivery: Delivery, outputs: Outputs, limits: Mapping[str, int]
) -> ComparisonSink:
    """The sink of a worker for dedicated shadows. `limits`: bytes of the largest record that each output topic accepts."""
    metrics, topic = shared.metrics, plan.pipeline.comparison.topic
    shadows = make_shadows(plan.shadows, plan.pipeline, plan.store)
    return ComparisonSink(
        delivery,
        outputs,
        shadows,
        topic=topic,
        max_bytes=limits[topic],
        leave_out=lambda: count_undelivered(shadows, metrics),
        assignment=shared.assignment,
        metrics=metrics,
    )


def shadow_thread(plan: Plan, shared: Shared, lost_broker: LostBroker) -> ShadowThread:
    """The thread of the shadows that run beside the primary."""
    pipeline, metrics = plan.pipeline, shared.metrics
    shadows = make_shadows(plan.shadows, pipeline, plan.store)
    return ShadowThread(
        shadows,
        BestEffort(
            pipeline.client_config(),
            lost=lambda: count_undelivered(shadows, metrics),
            metrics=metrics,
            lost_broker=lost_broker,
        ),
        topic=pipeline.comparison.topic,
        max_load=min(shadow.section.max_load for shadow in plan.shadows),
        room=8 * pipeline.batch.max_events,
        # All events of a worker that ends when it is idle are a backlog. It would skip them all.
        busy=(lambda: False) if shared.settings.until_idle else shared.budget.has_backlog,
        assignment=shared.assignment,
        metrics=metrics,
    )
