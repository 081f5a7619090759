"""Loads the shadows of a pipeline file."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.consumers.errors import PlanError
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.metrics import SHADOW_SKIPPED, Metrics
from millstream.consumers.schema_store import own_schema_id
from millstream.consumers.shadow.shadow_thread import Shadow
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion
from millstream.pipeline.comparison_sections import Shadow as ShadowSection
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import ComparisonEncoder, Variant
from millstream.schemas.records import COMPARISON
from millstream.schemas.store import SchemaStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """A shadow with its loaded model."""

    section: ShadowSection
    model: ModelVersion
    executor: ModelExecutor


def load_shadows(
    pipeline: Pipeline, models: PipelineModels, primary: ModelVersion, *, dedicated: bool
) -> list[ShadowPlan]:
    """Load the models of the dedicated shadows, or of the others.

    Raises:
        ModelConfigError, DeviceError, PlanError: a model can't be loaded, or is the primary itself.
        SourceUnavailable: the model repository is away, and the cache lacks a model.
    """
    plans: list[ShadowPlan] = []
    for section in pipeline.shadows:
        if section.dedicated is not dedicated:
            continue
        name, version = pipeline.shadow_model(section)
        if (name, version) == (primary.name, primary.version):
            same = (
                f"{pipeline.path}: shadows: `{section.name}` is version {version} of {name}, and so is the primary: it would be "
                f"compared with itself. Name another version."
            )
            if not isinstance(pipeline.wanted_version, str):
                raise PlanError(same)
            log.warning("%s", same)  # an alias moved to it: workers must be able to start
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


def loop_mate(model: ModelVersion, plans: Sequence[ShadowPlan]) -> ModelExecutor | None:
    """The executor of one of these shadows, whose event loop the executor of this model is to share; None: there is none.

    gRPC has one queue of events for all event loops of a process. With several loops, each wakes up for the events of all, which
    takes a tenth more CPU time for each request. Executors other than `kserve` share no loop, because they may block it.
    """
    if model.executor != "kserve":
        return None
    return next((plan.executor for plan in plans if plan.model.executor == "kserve"), None)


def shadow_fields(plans: Sequence[ShadowPlan]) -> list[str]:
    """The event's fields that the shadows need."""
    return list(dict.fromkeys(field for plan in plans for field in plan.model.signature.fields))


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
