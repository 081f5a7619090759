"""A model version that is loaded, with its copies."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.inference.executors.interface import Executor
from millstream.inference.model_id import ModelId


@dataclass(frozen=True, slots=True, eq=False)
class OpenedModel:
    """A model version that is loaded."""

    id: ModelId
    executors: Sequence[Executor]  # copies of the model, at least one; an asynchronous executor has no copies
