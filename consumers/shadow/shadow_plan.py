"""The shadows of a pipeline file, with their models."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.model_id import ModelId
from millstream.inference.repository import ModelVersion
from millstream.pipeline.comparison_sections import Shadow as ShadowSection
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.decoded import Decoder
from millstream.schemas.lookup_columns import looked_up


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """A shadow with its loaded model."""

    section: ShadowSection
    model: ModelVersion
    executor: ModelExecutor
    decoder: Decoder | None = None  # reads the event's fields that the model needs; None: it needs none


def live_shadows(pipeline: Pipeline, primary: ModelId) -> list[ShadowSection]:
    """The shadows whose version is the primary's: they would be compared with themselves, so no worker runs them."""
    return [own for own in pipeline.shadows if pipeline.shadow_model(own) == primary]


def why_left_out(pipeline: Pipeline, shadow: ShadowSection) -> str:
    """What to do about one of `live_shadows`."""
    name, version = pipeline.shadow_model(shadow)
    return (
        f"{pipeline.at('shadows')}: the shadow `{shadow.name}` is left out, because its version is live now: version {version} "
        f"of {name} would be compared with itself. Take this shadow out of the file, or name another version."
    )


def loop_mate(model: ModelVersion, plans: Sequence[ShadowPlan]) -> ModelExecutor | None:
    """The executor of one of these shadows, whose event loop the executor of this model is to share; None: there is none.

    gRPC has one queue of events for all event loops of a process. With several loops, each wakes up for the events of all, which
    takes a tenth more CPU time for each request. Executors other than `kserve` share no loop, because they may block it.
    """
    if model.executor != "kserve":
        return None
    return next((plan.executor for plan in plans if plan.model.executor == "kserve"), None)


def looked_up_fields(model: ModelVersion) -> list[str]:
    """The columns of look-ups that a model needs."""
    return [field for field in model.signature.fields if looked_up(field) is not None]
