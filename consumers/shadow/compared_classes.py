"""The classes of the models that are compared, from the pipeline file or from the primary's config.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.errors import PlanError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.inference.class_answers import Classes
from millstream.inference.errors import ModelConfigError, SourceUnavailable

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


def compared_classes_of(pipeline: Pipeline) -> Classes | None:
    """The classes of the compared models; None if `comparison.task` is not `multiclass`.

    Raises:
        PlanError: neither the pipeline file nor a config.yaml on this machine names them.
    """
    section = pipeline.comparison
    if section.task != "multiclass":
        return None
    if section.classes is not None:
        return Classes(section.classes)
    models = PipelineModels(pipeline)
    try:
        primary = models.primary()
    except (ModelConfigError, SourceUnavailable) as error:
        found = f"and the primary's config.yaml can't be read here: {error}"
    else:
        outputs = [output for output in primary.signature.outputs if len(output.classes) > 1]
        named = [output for output in outputs if section.output in output.names] or outputs
        if named:
            return Classes(named[0].classes)
        found = f"and {primary.place} names none"
    finally:
        models.release()
    raise PlanError(
        f"{pipeline.at('comparison', 'classes')}: expected the names of the classes for `task: multiclass`; found none here, "
        f"{found}. Write them in the order of the model's scores, for example `classes: [bird, cat, dog]`."
    )
