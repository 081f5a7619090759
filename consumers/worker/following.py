"""What follows the versions that a worker is to serve, beside the stages of its events."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from millstream.consumers.worker.plan import Plan
from millstream.consumers.worker.worker import Stage, VersionOf
from millstream.inference.combined.version import CombinedVersion


class Following(NamedTuple):
    """Follows the wanted versions."""

    stages: Sequence[Stage]  # each runs in a thread of its own
    close: Callable[[], None]  # closes all versions that are loaded at the end
    prepare: Callable[[], None] = lambda: None  # called once the stages run, before the first poll
    version_of: VersionOf = lambda _key, _place: None


def loads_with_less_priority(plan: Plan) -> bool:
    """Whether a thread that loads versions may have a lower priority.

    Threads that an executor starts while it is loaded have the priority of the thread that loads it, for ever.
    """
    models = plan.model.several.models if isinstance(plan.model, CombinedVersion) else [plan.model]
    are_onnx = all(model.executor == "onnx" for model in models)
    return are_onnx and plan.executor.device == "cpu" and plan.pipeline.model.threads == 1
