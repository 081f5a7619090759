"""Loads all that a pipeline file names, and checks it before the first event is read."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.event_filter import filter_of
from millstream.consumers.decode.lookups import columns_of_lookups, included_ages, open_lookups
from millstream.consumers.decode.named_fields import (
    check_columns,
    check_event_fields,
    check_model_columns,
    check_model_fields,
    event_time_format,
    override_fields,
    schema_of,
    time_format,
)
from millstream.consumers.decode.path_types import PathTypes
from millstream.consumers.decode.replaced_values import replaceable_in, replaceable_included, replaceable_own
from millstream.consumers.errors import PlanError
from millstream.consumers.flow.in_flight import record_cost_of
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.schema_store import dead_letter_record, open_store, own_schema_id, prediction_record
from millstream.consumers.shadow.shadow_plan import ShadowPlan, looked_up_fields, loop_mate
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput
from millstream.consumers.sink.result_sink import Outputs
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.consumers.worker.model_opening import open_here, open_settings, open_several
from millstream.consumers.worker.shared import Settings
from millstream.inference.combined.version import CombinedExecutor, CombinedVersion
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import ANSWERED_BY, ModelExecutor, Tensors
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import blank, merged_paths
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dead_letters import DeadLetterEncoder
from millstream.schemas.decoded import Decoder
from millstream.schemas.dtypes import Dtype
from millstream.schemas.predictions import (
    JsonPredictionEncoder,
    PredictionEncoder,
    PredictionRows,
    UnsupportedOutputError,
)
from millstream.schemas.row_models import RowModels
from millstream.schemas.store import Schema, SchemaStore

VARIANT = "primary"
GPU_MEMORY_LIMITED = ("onnx", "torch")
"""The executors that keep `model.gpu_memory`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline with its schemas and models."""

    pipeline: Pipeline
    store: SchemaStore
    reader: Schema | None  # None: events are JSON without a schema
    model: ModelVersion
    executors: list[ModelExecutor]  # copies of one model
    decoder: BlockDecoder
    shadows: list[ShadowPlan]
    dedicated: bool  # whether this worker runs only the dedicated shadows
    included: Mapping[str, Dtype]  # the event's fields that predictions include, with their types
    models: PipelineModels  # the repository that they come from

    @property
    def executor(self) -> ModelExecutor:
        """The first one."""
        return self.executors[0]


def make_plan(pipeline: Pipeline, *, dedicated: bool = False, models: PipelineModels | None = None) -> Plan:
    """Load schemas and models, and check them against each other. It does not connect to Kafka.

    Args:
        pipeline: the pipeline file's settings.
        dedicated: whether the worker is to run only the dedicated shadows.
        models: of the pipeline, if some are fetched already.

    Raises:
        SchemaError, ModelConfigError, DeviceError, PlanError: the parts can't be loaded, or don't fit each other.
        SourceUnavailable: the model repository is away, and the cache lacks the model.
    """
    store = open_store(pipeline)
    reader = schema_of(pipeline, store, "input")
    repository = models or PipelineModels(pipeline)
    model = load_primary(repository, reader)
    shadows = _shadows(pipeline, repository, model, reader, dedicated=dedicated)
    versions = [model, *(shadow.model for shadow in shadows)]
    check_event_fields(pipeline, reader)
    check_model_fields(versions, reader)
    paths = PathTypes(pipeline, reader, [model])
    paths.add_options(versions)
    include = [] if dedicated else paths.include()  # workers for dedicated shadows write no predictions
    decoder = _decoder(pipeline, store, paths, versions)
    lookups = open_lookups(pipeline, versions)
    of_lookups = columns_of_lookups(lookups)
    check_columns(pipeline, reader, [model], decoder.columns, of_lookups)
    shadows = [
        replace(shadow, decoder=shadow_decoder(pipeline, store, reader, shadow.model, of_lookups)) for shadow in shadows
    ]
    ages = {} if dedicated else included_ages(lookups)
    replaceable = replaceable_in(model) | replaceable_own(pipeline)
    if include:
        replaceable |= replaceable_included(pipeline, model)
    blocks = BlockDecoder(
        decoder,
        _event_fields(pipeline, store, reader, decoder.columns),
        model.signature,
        allow_nan=pipeline.model.allow_nan,
        keep=list(dict.fromkeys([*_looked_up(shadows), *include, *ages, *override_fields(pipeline)])),
        lookups=lookups,
        replaceable=replaceable,
        fill=model.several.inputs.fill if isinstance(model, CombinedVersion) else None,
    )
    included = {field: decoder.columns[field] for field in include} | ages
    copies = open_copies(pipeline, model, loop_mate(model, shadows))
    return Plan(pipeline, store, reader, model, copies, blocks, shadows, dedicated, included, repository)


def _shadows(
    pipeline: Pipeline, models: PipelineModels, model: ModelVersion, reader: Schema | None, *, dedicated: bool
) -> list[ShadowPlan]:
    if not any(section.dedicated is dedicated for section in pipeline.shadows):
        if dedicated:
            raise PlanError(
                f"{pipeline.at('shadows')}: expected one with `dedicated: true` for `--role shadow`, found none. Add it, or "
                f"leave out `--role`."
            )
        return []
    # Imported here, because a plain worker needs neither.
    from millstream.consumers.shadow.compared_output import check_compared_output  # noqa: PLC0415
    from millstream.consumers.shadow.shadow_loading import load_shadows  # noqa: PLC0415

    shadows = [
        replace(shadow, model=shadow.model.with_time_formats(partial(time_format, reader)))
        for shadow in load_shadows(pipeline, models, model, dedicated=dedicated)
    ]
    check_compared_output(pipeline, [model, *(shadow.model for shadow in shadows)])
    return shadows


def _looked_up(shadows: Sequence[ShadowPlan]) -> list[str]:
    return [field for shadow in shadows for field in looked_up_fields(shadow.model)]


def shadow_decoder(
    pipeline: Pipeline,
    store: SchemaStore,
    reader: Schema | None,
    model: ModelVersion,
    of_lookups: Mapping[str, Dtype] | None,
) -> Decoder | None:
    """Open the decoder of a shadow, which reads the fields of its model and no others; None: the model needs none.

    It is not the primary's, because a wrong value in a field that only a shadow reads must not fail the primary's event.

    Args:
        pipeline: the pipeline file's settings.
        store: where the schemas of events are.
        reader: the schema of the events; None: JSON without one.
        model: the shadow's.
        of_lookups: see `check_columns`.

    Raises:
        SchemaError, PlanError, ModelConfigError: the fields don't fit each other, or the model.
    """
    paths = PathTypes(pipeline, reader, [model])
    decoder = paths.open_decoder(store) if paths.types else None
    check_model_columns(reader, model, {} if decoder is None else decoder.columns, of_lookups)
    return decoder


def _decoder(pipeline: Pipeline, store: SchemaStore, paths: PathTypes, models: Sequence[ModelVersion]) -> Decoder:
    """The primary's decoder. `models`: with those of the shadows, whose fields a JSON Schema must allow, too."""
    decoder = paths.open_decoder(store)
    if pipeline.input.json_schema is None:
        return decoder
    from millstream.consumers.decode.json_schema import checked_decoder  # noqa: PLC0415  (few pipelines need it)

    return checked_decoder(pipeline, decoder, paths.types | merged_paths([model.signature for model in models]))


def open_copies(pipeline: Pipeline, model: ModelVersion, beside: object = None) -> list[ModelExecutor]:
    """Load as many copies of the primary as the pipeline file says.

    Args:
        pipeline: the pipeline file's settings.
        model: what to load.
        beside: an executor of the version that is served now, or of a shadow, for asynchronous executors to share its event
            loop; None: there is none.

    Raises:
        ModelConfigError, DeviceError, PlanError: it can't be loaded.
    """
    settings = pipeline.model
    models = model.several.models if isinstance(model, CombinedVersion) else [model]
    open_model = open_settings(pipeline, len(models), beside)
    executors = [
        open_several(model, open_model) if isinstance(model, CombinedVersion) else open_model(model)
        for _ in range(settings.instances)
    ]
    for each in models:
        check_gpu_options(pipeline, each, executors[0].device)
    if pipeline.rollout is not None and isinstance(executors[0], BlockingExecutor):
        raise PlanError(
            f"{pipeline.at('rollout')}: expected an executor that runs in the worker, found {model.executor} in "
            f"{model.place}: it sends requests to a server. Let the server choose among versions, or leave `rollout` out."
        )
    for option in ("instances", "concurrent_batches") if isinstance(executors[0], BlockingExecutor) else ():
        if (found := getattr(settings, option)) > 1:
            raise PlanError(
                f"{pipeline.at('model', option)}: expected 1 for the executor {model.executor}, found {found}: one copy has "
                f"many requests in flight. Leave the option out; `server.concurrency` in the model's config.yaml bounds them "
                f"(`millstream docs executors`)."
            )
    return executors


def open_member_copies(
    pipeline: Pipeline, several: CombinedVersion, model: ModelVersion, beside: object
) -> list[ModelExecutor]:
    """Load as many copies of a model of `models` as the pipeline file says. Raises as `open_copies` does.

    Args:
        pipeline: the pipeline file's settings.
        several: all models.
        model: what to load.
        beside: an executor of the version that is served now.
    """
    open_model = open_settings(pipeline, len(several.several.models), beside)
    executors = [open_here(open_model, model) for _ in range(pipeline.model.instances)]
    check_gpu_options(pipeline, model, executors[0].device)
    return executors


def check_gpu_options(pipeline: Pipeline, model: ModelVersion, device: str) -> None:
    """Check the options of the pipeline file that only some executors have. Raises PlanError."""
    settings = pipeline.model
    if settings.gpu_memory is not None and model.executor not in GPU_MEMORY_LIMITED:
        raise PlanError(
            f"{pipeline.at('model', 'gpu_memory')}: only the executors {' and '.join(GPU_MEMORY_LIMITED)} keep a limit, found "
            f"{model.executor}. Leave the option out, and limit the memory in the model."
        )
    if device == "cuda" and model.runtime.cuda_graphs and settings.concurrent_batches > 1:
        raise PlanError(
            f"{pipeline.at('model', 'concurrent_batches')}: expected 1, because the model has `runtime.cuda_graphs`, and a copy "
            f"runs one CUDA graph at a time; found {settings.concurrent_batches}. Write `instances: "
            f"{settings.concurrent_batches}` instead, or leave out `cuda_graphs`."
        )


def _event_fields(
    pipeline: Pipeline, store: SchemaStore, reader: Schema | None, columns: Mapping[str, Dtype]
) -> EventFields:
    max_age = pipeline.input.max_age
    return EventFields(
        pipeline.input.event_id,
        pipeline.input.event_time,
        event_time_format(pipeline, reader, columns),
        None if max_age is None else round(max_age * 1000),
        pipeline.input.deadline_header,
        pipeline.batch.cost,
        filter_of(pipeline, store, reader),
    )


def load_primary(models: PipelineModels, reader: Schema | None) -> ModelVersion:
    """The primary, with the fields that the pipeline file maps to its inputs. Raises as `PipelineModels.primary` does."""
    if models.pipeline.models is not None:
        from millstream.consumers.worker.several_models import load_several  # noqa: PLC0415  (few pipelines need it)

        return load_several(models, models.pipeline.models, reader)
    return models.primary().with_time_formats(partial(time_format, reader))


def settings_of(plan: Plan, *, until_idle: bool) -> Settings:
    """The worker's limits."""
    batch, limits = plan.pipeline.batch, plan.pipeline.limits
    return Settings(
        batch=Limits(
            min(batch.max_events, plan.executor.max_events),
            batch.max_bytes,
            _max_wait(plan),
            batch.max_cost,
            batch.target_p99,
        ),
        in_flight_events=limits.in_flight_events,
        in_flight_bytes=limits.in_flight_bytes,
        weight=record_cost_of(plan.model.signature, plan.included),
        commit_every=plan.pipeline.commit_seconds,
        exactly_once=plan.pipeline.delivery == "exactly_once",
        ordering=plan.pipeline.ordering,
        weights=_weights(plan.pipeline),
        allow_nan_outputs=plan.pipeline.model.allow_nan_outputs,
        batch_timeout=limits.batch_timeout,
        drain_timeout=limits.drain_timeout,
        until_idle=until_idle,
    )


def _max_wait(plan: Plan) -> float:
    """Seconds that a batch waits for more events: as the pipeline file says, else as Triton's file says, else the default."""
    batch = plan.pipeline.batch
    stated = "max_wait" in batch.model_fields_set
    return batch.max_wait if stated or plan.model.max_wait is None else plan.model.max_wait


def batches_ahead(device: str, concurrent: int, max_events: int) -> int:
    """Micro-batches that may wait for an executor: as many as one block gives, so that a GPU is busy during the next decode.

    It is 0 if one batch at a time runs on the CPU: the compute thread then runs it itself, see `ExecutorPool`.
    """
    return 0 if device == "cpu" and concurrent == 1 else max(1, DECODE_RECORDS // max_events)


def group_of(plan: Plan) -> str:
    """The consumer group of the worker."""
    return f"{plan.pipeline.group_id}-shadow" if plan.dedicated else plan.pipeline.group_id


def _weights(pipeline: Pipeline) -> dict[str, float] | None:
    """The weight of each input topic; None if the pipeline file sets none."""
    weights = pipeline.input.weights
    return {topic: weights.get(topic, 1.0) for topic in pipeline.input.topics} if weights else None


def outputs_of(plan: Plan, limits: Mapping[str, int], *, variant: str = VARIANT) -> Outputs:
    """The outputs, their topics and encoders.

    Args:
        plan: the pipeline.
        limits: bytes of the largest record that each output topic accepts.
        variant: what the predictions name as theirs.
    """
    pipeline, store = plan.pipeline, plan.store
    predictions: PredictionRows
    if pipeline.output.format == "avro":
        schema_id = own_schema_id(pipeline, store, prediction_record(pipeline), pipeline.output.topic)
        predictions = PredictionEncoder(
            schema_id, pipeline=pipeline.name, variant=variant, rollout=pipeline.rollout is not None
        )
    else:
        predictions = JsonPredictionEncoder(
            pipeline=pipeline.name, variant=variant, rollout=pipeline.rollout is not None
        )
    if not isinstance(plan.executor, BlockingExecutor):  # a server may be away; the worker checks it after the warm-up
        # What a Python model needs may be away, too: the worker waits in the warm-up.
        with suppress(ExecutorUnavailable):
            check_answers(plan)
    letters = DeadLetterEncoder(
        own_schema_id(pipeline, store, dead_letter_record(pipeline), pipeline.dead_letters.topic),
        rollout=pipeline.rollout is not None,
    )
    return Outputs(
        variant=variant,
        predictions=predictions,
        prediction_topic=pipeline.output.topic,
        prediction_bytes=limits[pipeline.output.topic],
        dead_letters=DeadLetterOutput(
            pipeline=pipeline.name,
            topic=pipeline.dead_letters.topic,
            encoder=letters,
            max_bytes=limits[pipeline.dead_letters.topic],
            skip=frozenset(pipeline.on_error.skip),
            file=quote(str(pipeline.named_in_log)),
        ),
        carry_headers=frozenset(pipeline.output.carry_headers),
        stop_at=frozenset(pipeline.on_error.stop),
        include=tuple(plan.included),
    )


def answer_blank(model: ModelVersion, executor: ModelExecutor) -> dict[str, npt.NDArray[Any]]:
    """The outputs of one event that has no data, as the prediction has them.

    Raises:
        ModelRejected: the models reject it.
        ModelConfigError: several models don't fit each other.
    """
    if isinstance(model, CombinedVersion):
        outputs = cast("CombinedExecutor", executor).answer_blank()
        return {name: output for name, output in outputs.items() if name != ANSWERED_BY}
    known = executor.executor.sample_result if isinstance(executor, BlockingExecutor) else None
    if isinstance(known, ModelRejected):
        raise known
    return executor.run(blank(model.signature.inputs, 1)) if known is None else dict(known)


def check_answers(plan: Plan) -> Tensors | ModelRejected:
    """Run one blank event, or take the sample of the warm-up, and encode its prediction: can a prediction hold all outputs?

    Returns:
        the outputs, or the model's error if it rejects the blank event. Then only a real event can show whether the outputs fit.

    Raises:
        PlanError: a prediction can't hold one of the outputs, or the comparison doesn't fit them.
    """
    found = check_outputs(plan.model, plan.executor)
    # A shadow stops no worker, so only `millstream check` asks them.
    is_judged = plan.shadows or (plan.pipeline.rollout is not None and plan.pipeline.labels is not None)
    if is_judged:
        from millstream.consumers.shadow.compared_output import check_compared_answers, check_named_classes  # noqa: PLC0415

        if isinstance(found, ModelRejected):
            check_named_classes(plan.pipeline, plan.model)
        else:
            check_compared_answers(plan.pipeline, [plan.model], [found])
    return found


def check_outputs(model: ModelVersion, executor: ModelExecutor, *, encode: bool = True) -> Tensors | ModelRejected:
    """Run one blank event and encode its prediction. Returns the outputs, or the model's error if it rejects the event.

    `encode`: whether predictions have these outputs.

    Raises:
        PlanError: a prediction can't hold one of the outputs.
    """
    predictions = JsonPredictionEncoder(pipeline="", variant="")
    time = np.zeros(1, np.int64)
    try:
        outputs = answer_blank(model, executor)
        if encode:
            predictions.encode(["check"], time, time, time, outputs, models=RowModels([model.id]))
    except ModelRejected as refusal:
        return refusal
    except UnsupportedOutputError as error:
        raise PlanError(f"{model.place}: {error}") from None
    return outputs
