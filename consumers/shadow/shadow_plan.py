"""The shadows of a pipeline file, with their models."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion
from millstream.pipeline.comparison_sections import Shadow as ShadowSection


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """A shadow with its loaded model."""

    section: ShadowSection
    model: ModelVersion
    executor: ModelExecutor


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
