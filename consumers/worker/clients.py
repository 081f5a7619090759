"""The settings of a worker's Kafka clients."""

from collections.abc import Mapping
from typing import Any

from millstream.consumers.sink.dead_letter_sink import RECORD_OVERHEAD
from millstream.consumers.source.kafka_source import Subscription
from millstream.consumers.worker.plan import Plan, group_of
from millstream.pipeline.client_trial import membership
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import largest_records
from millstream.topics.group import client_id

FETCH_MIN_BYTES = 100_000  # that the broker answers with at once: full micro-batches of small events
MIN_FETCH_WAIT_MS, MAX_FETCH_WAIT_MS = 6, 12  # milliseconds that it collects them for otherwise


def subscription_of(plan: Plan, instance_id: str, *, until_idle: bool) -> Subscription:
    """What the worker reads, as which member; `instance_id` names it in its group, and lasts over restarts."""
    pipeline = plan.pipeline
    return Subscription(
        group=group_of(plan),
        topics=pipeline.input.topics,
        start=pipeline.input.start,
        # What the client fetches ahead of the worker, in all: its own default is 64 MiB.
        client={
            **_membership(pipeline, instance_id),
            **collecting(pipeline.batch.max_wait),
            "queued.max.messages.kbytes": str(_quarter_kib(pipeline)),
        },
        until_idle=until_idle,
    )


def largest_outputs(plan: Plan) -> Mapping[str, int]:
    """Bytes of the largest record that each topic takes which the worker writes to."""
    pipeline = plan.pipeline
    comparisons = [pipeline.comparison.topic] if plan.dedicated else []
    return largest_records(pipeline.client_config(), (pipeline.output.topic, pipeline.dead_letters.topic, *comparisons))


def producer_settings(plan: Plan, limits: Mapping[str, int]) -> dict[str, Any]:
    """The producer's; `limits` are the largest records that the output topics take, bytes."""
    return {
        # A batch of records that is larger than its topic takes would be refused as one.
        "batch.size": min(1_000_000, *(limit - RECORD_OVERHEAD for limit in limits.values())),
        # A record that is larger than the queue would wait for room in it for ever.
        "queue.buffering.max.kbytes": max(_quarter_kib(plan.pipeline), max(limits.values()) // 1024 + 1024),
        **plan.pipeline.client_config(),
    }


def collecting(max_wait: float) -> dict[str, str]:
    """How long the broker collects for one answer, where it has less than much; `max_wait` of a micro-batch in seconds.

    At a trickle an answer for each event costs broker and worker more than all else. Where batches wait, the broker may wait as
    well; not for long, and not too short either: an idle worker asks anew after it. A little longer than batches do: what it has
    collected is a bunch then, with nothing behind it in the window, and events don't wait twice.
    """
    wait = min(round(1.2 * max_wait * 1000), MAX_FETCH_WAIT_MS)
    if wait < MIN_FETCH_WAIT_MS:
        return {}
    return {"fetch.min.bytes": str(FETCH_MIN_BYTES), "fetch.wait.max.ms": str(wait)}


def _membership(pipeline: Pipeline, instance_id: str) -> dict[str, str]:
    """How the consumer is a member of its group."""
    named = {**membership(pipeline), "client.id": client_id(pipeline)}  # where `kafka.client` says nothing else
    return {**named, "group.instance.id": instance_id} if pipeline.membership.static else named


def _quarter_kib(pipeline: Pipeline) -> int:
    """A quarter of the bytes that the worker may hold."""
    return max(pipeline.limits.in_flight_bytes // 4 // 1024, 1)
