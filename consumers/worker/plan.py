"""From a pipeline file to the parts of a worker: everything is loaded and checked here, before the first event."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.named_fields import (
    check_cost,
    check_event_fields,
    field_names,
    own_fields,
    schema_of,
    time_unit,
)
from millstream.consumers.errors import PlanError
from millstream.consumers.flow.held import weight_of
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_types import Partition
from millstream.consumers.schema_store import open_store, own_schema_id
from millstream.consumers.shadow.comparison_sink import ComparisonSink
from millstream.consumers.shadow.shadow_lane import ShadowLane
from millstream.consumers.shadow.shadow_plan import (
    ShadowPlan,
    count_undelivered,
    load_shadows,
    make_shadows,
    shadow_fields,
)
from millstream.consumers.sink.dead_letter_sink import BESIDE, DeadLetterOutput
from millstream.consumers.sink.delivery import AtLeastOnce, BestEffort, Delivery
from millstream.consumers.sink.result_sink import Outputs, Sink
from millstream.consumers.sink.transactions import ExactlyOnce, Membership
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.kafka_source import Source, Subscription
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.consumers.worker.stages import Settings, Stages
from millstream.inference.errors import ModelRejected
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion, load_version
from millstream.inference.signature import blank, check_fields
from millstream.pipeline.client_trial import membership
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.dead_letters import DeadLetterEncoder
from millstream.schemas.decoded import Decoder
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.predictions import (
    JsonPredictionEncoder,
    PredictionEncoder,
    PredictionRows,
    UnsupportedOutputError,
)
from millstream.schemas.records import DEAD_LETTER, PREDICTION
from millstream.schemas.store import Schema, SchemaStore
from millstream.topics.admin import largest_records
from millstream.topics.group import client_id

VARIANT = "primary"
MUCH = 100_000  # bytes that the broker answers with at once: full micro-batches of small events
LEAST_COLLECTING, MOST_COLLECTING = 6, 12  # milliseconds that it collects them for otherwise


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline with all that it names loaded."""

    pipeline: Pipeline
    store: SchemaStore
    reader: Schema
    model: ModelVersion
    executors: list[ModelExecutor]  # copies of one model
    decoder: BlockDecoder
    shadows: list[ShadowPlan]
    detached: bool  # whether the shadows are all that this worker is for

    @property
    def executor(self) -> ModelExecutor:
        """The first one."""
        return self.executors[0]


def make_plan(pipeline: Pipeline, *, detached: bool = False) -> Plan:
    """Load schemas and models and check them against each other. Kafka is not asked.

    Args:
        pipeline: what to load.
        detached: whether for the workers of the detached shadows.

    Raises:
        SchemaError, ModelConfigError, DeviceError, PlanError: with the place, what was expected and what to do.
    """
    store = open_store(pipeline)
    reader = schema_of(pipeline, store, "input")
    model = load_version(
        pipeline.model.repository,
        pipeline.model.name,
        pipeline.model.version,
        _field_overrides(pipeline),
        lambda tensor: pipeline.at("model", "inputs", tensor),
    )
    shadows = load_shadows(pipeline, model, detached=detached)
    if detached and not shadows:
        raise PlanError(
            f"{pipeline.at('shadows')}: expected one with `detached: true` for `--role shadow`, found none. Add it, or leave out "
            f"`--role`."
        )
    wanted = list(dict.fromkeys([*model.signature.fields, *shadow_fields(shadows)]))
    # A field that a model wants and the schema lacks is left to `check_fields`, which names the tensor that takes it.
    there = field_names(reader)
    check_event_fields(pipeline, reader)
    fields = list(dict.fromkeys([*(field for field in wanted if field in there), *own_fields(pipeline)]))
    avro = pipeline.input.format == "avro"
    decoder: Decoder = AvroDecoder(store, reader, fields) if avro else JsonDecoder(reader, fields)
    check_cost(pipeline, reader, decoder.columns)
    for checked in (model, *(shadow.model for shadow in shadows)):
        check_fields(checked.signature, decoder.columns, checked.place, reader.name)
    settings = pipeline.model
    executors = [
        open_executor(
            model,
            trust=settings.trust,
            device=settings.device,
            threads=settings.threads,
            max_events=pipeline.batch.max_events,
        )
        for _ in range(settings.instances)
    ]
    event_fields = EventFields(
        pipeline.input.event_id,
        pipeline.input.event_time,
        time_unit(pipeline, reader),
        None if pipeline.input.max_age is None else round(pipeline.input.max_age * 1000),
        pipeline.input.deadline_header,
        pipeline.batch.cost,
    )
    blocks = BlockDecoder(
        decoder,
        event_fields,
        model.signature,
        allow_nan=pipeline.model.allow_nan,
        keep=shadow_fields(shadows),
    )
    return Plan(pipeline, store, reader, model, executors, blocks, shadows, detached)


def settings_of(plan: Plan, *, until_idle: bool) -> Settings:
    """The worker's limits."""
    batch, limits = plan.pipeline.batch, plan.pipeline.limits
    return Settings(
        batch=Limits(
            min(batch.max_events, plan.executor.max_events),
            batch.max_bytes,
            batch.max_wait,
            batch.max_cost,
            batch.target_p99,
        ),
        held_events=limits.held_events,
        held_bytes=limits.held_bytes,
        weight=weight_of(plan.model.signature),
        commit_every=plan.pipeline.commit_seconds,
        exactly_once=plan.pipeline.delivery == "exactly_once",
        ordering=plan.pipeline.ordering,
        weights=_weights(plan.pipeline),
        allow_nan_outputs=plan.pipeline.model.allow_nan_outputs,
        batch_timeout=limits.batch_timeout,
        drain_timeout=limits.drain_timeout,
        until_idle=until_idle,
    )


def stages_of(plan: Plan, metrics: Metrics, *, slot: str, until_idle: bool) -> Stages:
    """The worker's stages; `slot` names it in its group, and lasts over restarts."""
    pipeline = plan.pipeline
    client = pipeline.client_config()
    topic = pipeline.comparison.topic
    outputs_here = (pipeline.output.topic, pipeline.dead_letters.topic, *([topic] if plan.detached else []))
    limits = largest_records(client, outputs_here)
    outputs = outputs_of(plan, limits)
    quarter = max(pipeline.limits.held_bytes // 4 // 1024, 1)  # KiB
    # A batch of records that is larger than its topic takes would be refused as one.
    producer = {
        "batch.size": min(1_000_000, *(limit - BESIDE for limit in limits.values())),
        "queue.buffering.max.kbytes": quarter,
        **client,
    }
    exactly_once = pipeline.delivery == "exactly_once"

    subscription = Subscription(
        group=group_of(plan),
        topics=pipeline.input.topics,
        start=pipeline.input.start,
        # What the client fetches ahead of the worker, in all: its own default is 64 MiB.
        client={
            **_membership(pipeline, slot),
            **collecting(pipeline.batch.max_wait),
            "queued.max.messages.kbytes": str(quarter),
        },
        until_idle=until_idle,
    )

    shadows = make_shadows(plan.shadows, pipeline, plan.model, plan.store)
    guard = CrashGuard(pipeline.limits.crash_attempts, span=4 * pipeline.batch.max_events)

    def source(on_revoke: Callable[[list[Partition]], object]) -> Source:
        return Source(client, subscription, on_revoke=on_revoke, guard=guard, metrics=metrics)

    def sink(source: Source, abandon: threading.Event) -> Sink:
        delivery: Delivery
        if exactly_once:
            membership = Membership(lambda: source.epochs, source.lock, lambda: source.group_metadata)
            delivery = ExactlyOnce(
                producer, transactional_id=slot, membership=membership, abandon=abandon, metrics=metrics
            )
        else:
            delivery = AtLeastOnce(producer, abandon=abandon, metrics=metrics)
        if plan.detached:
            return ComparisonSink(
                delivery,
                outputs,
                shadows,
                topic=topic,
                max_bytes=limits[topic],
                leave_out=lambda: count_undelivered(shadows, metrics),
                epochs=lambda: source.epochs,
                metrics=metrics,
            )
        return Sink(delivery, outputs, epochs=lambda: source.epochs, metrics=metrics)

    def lane(source: Source, busy: Callable[[], bool]) -> ShadowLane:
        return ShadowLane(
            shadows,
            BestEffort(client, lost=lambda: count_undelivered(shadows, metrics), metrics=metrics),
            topic=topic,
            budget=min(shadow.section.budget for shadow in plan.shadows),
            room=8 * pipeline.batch.max_events,
            busy=busy,
            settled=source.settled,
            metrics=metrics,
        )

    beside = lane if shadows and not plan.detached else None
    in_flight = pipeline.model.in_flight
    ahead = batches_ahead(plan.executor.device, in_flight * len(plan.executors), pipeline.batch.max_events)
    return Stages(plan.decoder, plan.executors, in_flight, ahead, guard, source, sink, beside)


def batches_ahead(device: str, lanes: int, max_events: int) -> int:
    """Micro-batches that may wait for a lane: what one decoded block gives, so that a device computes while the next is decoded.

    None where one batch runs at a time on the CPU: the computing thread runs it itself, see `Lanes`.
    """
    return 0 if device == "cpu" and lanes == 1 else max(1, DECODE_RECORDS // max_events)


def group_of(plan: Plan) -> str:
    """The consumer group of the worker."""
    return f"{plan.pipeline.group_id}-shadow" if plan.detached else plan.pipeline.group_id


def _weights(pipeline: Pipeline) -> dict[str, float] | None:
    """Each input topic's weight, where the pipeline file has any."""
    weights = pipeline.input.weights
    return {topic: weights.get(topic, 1.0) for topic in pipeline.input.topics} if weights else None


def _membership(pipeline: Pipeline, slot: str) -> dict[str, str]:
    """How the consumer is a member of its group."""
    named = {**membership(pipeline), "client.id": client_id(pipeline)}  # where `kafka.client` says nothing else
    return {**named, "group.instance.id": slot} if pipeline.membership.static else named


def collecting(max_wait: float) -> dict[str, str]:
    """How long the broker collects for one answer, where it has less than much; `max_wait` of a micro-batch in seconds.

    At a trickle an answer for each event costs broker and worker more than all else. Where batches wait, the broker may wait as
    well; not for long, and not too short either: an idle worker asks anew after it. A little longer than batches do: what it has
    collected is a bunch then, with nothing behind it in the window, and events don't wait twice.
    """
    wait = min(round(1.2 * max_wait * 1000), MOST_COLLECTING)
    return {"fetch.min.bytes": str(MUCH), "fetch.wait.max.ms": str(wait)} if wait >= LEAST_COLLECTING else {}


def outputs_of(plan: Plan, limits: Mapping[str, int]) -> Outputs:
    """What is written, where; `limits` are the largest records that the output topics take, bytes."""
    pipeline, store = plan.pipeline, plan.store
    identity: dict[str, Any] = {
        "pipeline": pipeline.name,
        "model": plan.model.name,
        "version": plan.model.version,
        "variant": VARIANT,
    }
    predictions: PredictionRows
    if pipeline.output.format == "avro":
        predictions = PredictionEncoder(own_schema_id(pipeline, store, PREDICTION, pipeline.output.topic), **identity)
    else:
        predictions = JsonPredictionEncoder(**identity)
    check_answers(plan)
    letters = DeadLetterEncoder(own_schema_id(pipeline, store, DEAD_LETTER, pipeline.dead_letters.topic))
    return Outputs(
        model=plan.model.name,
        version=plan.model.version,
        variant=VARIANT,
        predictions=predictions,
        prediction_topic=pipeline.output.topic,
        prediction_bytes=limits[pipeline.output.topic],
        dead_letters=DeadLetterOutput(
            pipeline=pipeline.name,
            topic=pipeline.dead_letters.topic,
            encoder=letters,
            max_bytes=limits[pipeline.dead_letters.topic],
            skip=frozenset(reason for reason, action in pipeline.on_error if action == "skip"),
        ),
        carry_headers=frozenset(pipeline.output.carry_headers),
        stop_at=frozenset(reason for reason, action in pipeline.on_error if action == "stop"),
    )


def check_answers(plan: Plan) -> ModelRejected | None:
    """Encode one answer: what a prediction can't hold is found now, not at the first event.

    Returns:
        why there is none: the model takes no blank event, and so the first real one tells.

    Raises:
        PlanError: naming the output.
    """
    predictions = JsonPredictionEncoder(pipeline="", model="", version=1, variant="")
    time = np.zeros(1, np.int64)
    try:
        predictions.encode(["check"], time, time, time, plan.executor.run(blank(plan.model.signature.inputs, 1)))
    except ModelRejected as refusal:
        return refusal
    except UnsupportedOutputError as error:
        raise PlanError(f"{plan.model.place}: {error}") from None
    return None


def _field_overrides(pipeline: Pipeline) -> dict[str, str | list[str]]:
    return {
        tensor: fields if isinstance(fields, str) else list(fields) for tensor, fields in pipeline.model.inputs.items()
    }
