"""A model version as the executor slots of a pool run it."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId


@dataclass(frozen=True, slots=True, eq=False)
class SlotModel:
    """A model version in one executor slot, which runs one batch at a time."""

    isolation: BisectingExecutor
    model: OpenedModel

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models that may have answered a batch so far."""
        return self.model.models


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model version in all executor slots of a pool."""

    model: OpenedModel
    slots: Sequence[SlotModel]  # one for each
