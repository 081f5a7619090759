"""Loads the shadows of a pipeline file."""

from collections.abc import Sequence
from dataclasses import replace

from millstream.consumers.errors import PlanError
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.metrics import SHADOW_SKIPPED, Metrics
from millstream.consumers.schema_store import own_schema_id
from millstream.consumers.shadow.shadow_fields import ShadowFields
from millstream.consumers.shadow.shadow_plan import ShadowPlan, live_shadows, looked_up_fields, loop_mate
from millstream.consumers.shadow.shadow_thread import Shadow
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import ModelVersion
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import ComparisonEncoder, Variant
from millstream.schemas.records import COMPARISON
from millstream.schemas.store import SchemaStore


def load_shadows(
    pipeline: Pipeline, models: PipelineModels, primary: ModelVersion, *, dedicated: bool
) -> list[ShadowPlan]:
    """Load the models of the dedicated shadows, or of the others. Those that became the primary meanwhile are left out.

    Raises:
        ModelConfigError, DeviceError, PlanError: a model can't be loaded, or the file itself makes it the primary, too.
        SourceUnavailable: the model repository is away, and the cache lacks a model.
    """
    plans: list[ShadowPlan] = []
    live = live_shadows(pipeline, primary.id)
    for section in pipeline.shadows:
        if section.dedicated is not dedicated:
            continue
        if section in live:
            if pipeline.rollout is None and not isinstance(pipeline.wanted_version, str):
                raise PlanError(
                    f"{pipeline.at('shadows')}: `{section.name}` is version {primary.version} of {primary.name}, and so is the "
                    f"primary: it would be compared with itself. Name another version, or take this shadow out."
                )
            continue  # an alias moved to it, or a rollout promoted it: workers must be able to start
        model = models.shadow(section)
        executor = open_executor(
            # A shadow warms up while the primary works, and CUDA can't capture a graph then.
            replace(model, runtime=model.runtime.model_copy(update={"cuda_graphs": False})),
            trust=pipeline.model.trust,
            device=pipeline.model.device,
            threads=pipeline.model.threads,
            max_events=pipeline.batch.max_events,
            gpu_memory=pipeline.model.gpu_memory,
            engine_cache=pipeline.model.engine_cache,
            beside=loop_mate(model, plans),
        )
        plans.append(ShadowPlan(section, model, executor))
    return plans


def make_shadows(plans: Sequence[ShadowPlan], pipeline: Pipeline, store: SchemaStore) -> list[Shadow]:
    """Create the shadows."""
    if not plans:
        return []
    schema_id = own_schema_id(pipeline, store, COMPARISON, pipeline.comparison.topic)
    return [
        Shadow(
            plan.section.name,
            # Unlike a prediction, a comparison can hold NaN.
            BisectingExecutor(plan.executor.run, max_events=plan.executor.max_events, allow_nan_outputs=True),
            plan.model.id,
            ShadowFields(plan.decoder, looked_up_fields(plan.model)),
            plan.model.signature.inputs,
            ComparisonEncoder(
                schema_id, pipeline.name, shadow=Variant(plan.model.name, plan.model.version, plan.section.name)
            ),
            sample_rate=plan.section.sample_rate,
            allow_nan=pipeline.model.allow_nan,
        )
        for plan in plans
    ]


def count_undelivered(shadows: Sequence[Shadow], metrics: Metrics) -> None:
    """Count a comparison that was not written."""
    metrics.count(SHADOW_SKIPPED, 1, shadows[0].name if len(shadows) == 1 else "any", "undelivered")
