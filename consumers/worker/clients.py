"""The settings of a worker's Kafka clients."""

from collections.abc import Mapping
from typing import Any

from millstream.consumers.sink.dead_letter_sink import RECORD_OVERHEAD
from millstream.consumers.source.kafka_source import Subscription
from millstream.consumers.worker.plan import Plan, group_of
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.pipeline.client_trial import membership
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import Admin, largest_records
from millstream.topics.group import client_id

FETCH_MIN_BYTES = 100_000  # the broker answers at once if it has this many: full micro-batches of small events
MIN_FETCH_WAIT_MS, MAX_FETCH_WAIT_MS = 6, 12  # milliseconds that it may wait for them


def subscription_of(plan: Plan, instance_id: str, *, until_idle: bool) -> Subscription:
    """The topics and the group. `instance_id` is the worker's name in the group, which stays the same over restarts."""
    pipeline = plan.pipeline
    return Subscription(
        group=group_of(plan),
        topics=pipeline.input.topics,
        start=pipeline.input.start,
        # Bounds all records that the client fetches ahead. The client's default is 64 MiB.
        client={
            **_membership(pipeline, instance_id),
            **collecting(pipeline.batch.max_wait, exactly_once=pipeline.delivery == "exactly_once"),
            "queued.max.messages.kbytes": str(_quarter_kib(pipeline)),
        },
        until_idle=until_idle,
        exactly_once=pipeline.delivery == "exactly_once",
        counts_partitions=has_quota(plan),
    )


def has_quota(plan: Plan) -> bool:
    """Whether the group shares a quota of the executor, for which each worker must know its share of the partitions."""
    return isinstance(plan.executor, BlockingExecutor) and plan.executor.executor.limits.has_quota


def largest_outputs(plan: Plan, admin: Admin) -> Mapping[str, int]:
    """The topics that the worker writes to, each with the size of the largest record that it accepts, in bytes."""
    pipeline = plan.pipeline
    comparisons = [pipeline.comparison.topic] if plan.dedicated else []
    return largest_records(admin, (pipeline.output.topic, pipeline.dead_letters.topic, *comparisons))


def producer_settings(plan: Plan, limits: Mapping[str, int]) -> dict[str, Any]:
    """The producer's settings. `limits`: bytes of the largest record that each output topic accepts."""
    return {
        # The broker refuses a whole batch of records if it is larger than the topic accepts.
        "batch.size": min(1_000_000, *(limit - RECORD_OVERHEAD for limit in limits.values())),
        # A record that is larger than the queue would never find room in it.
        "queue.buffering.max.kbytes": max(_quarter_kib(plan.pipeline), max(limits.values()) // 1024 + 1024),
        **plan.pipeline.client_config(),
    }


def collecting(max_wait: float, *, exactly_once: bool) -> dict[str, str]:
    """How long the broker waits for more records before it answers a fetch. `max_wait`: seconds that a micro-batch waits.

    At a low rate, one answer per event would cost the broker and the worker more than everything else. So the broker may wait
    where batches wait too. It waits a little longer than a batch: then its answer has all events that belong together, and the
    batch need not wait for more. The wait is bounded, and if it would be very short, there is none: an idle worker sends a new
    fetch after each.

    With exactly once, the broker doesn't wait. There, the source itself collects until the next commit, so an answer per event
    costs little. And an event that the broker still keeps when a batch closes would wait for a whole further commit.
    """
    if exactly_once:
        return {}
    wait = min(round(1.2 * max_wait * 1000), MAX_FETCH_WAIT_MS)
    if wait < MIN_FETCH_WAIT_MS:
        return {}
    return {"fetch.min.bytes": str(FETCH_MIN_BYTES), "fetch.wait.max.ms": str(wait)}


def _membership(pipeline: Pipeline, instance_id: str) -> dict[str, str]:
    """The settings of the consumer's group membership."""
    named = {**membership(pipeline), "client.id": client_id(pipeline)}  # unless `kafka.client` sets them
    return {**named, "group.instance.id": instance_id} if pipeline.membership.static else named


def _quarter_kib(pipeline: Pipeline) -> int:
    """A quarter of `limits.in_flight_bytes`, in KiB."""
    return max(pipeline.limits.in_flight_bytes // 4 // 1024, 1)
