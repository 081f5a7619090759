"""A model version that is loaded, with its copies."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import Executor
from millstream.inference.model_id import ModelId


@dataclass(frozen=True, slots=True, eq=False)
class OpenedModel:
    """A model version that is loaded."""

    id: ModelId
    executors: Sequence[Executor]  # copies of the model, at least one; an asynchronous executor has no copies
    _alone: tuple[ModelId, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_alone", (self.id,))

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models that answer, see `ANSWERED_BY`: those of an executor of several models, or this one."""
        executor = self.executors[0]
        models: tuple[ModelId, ...] = getattr(
            executor.executor if isinstance(executor, BlockingExecutor) else executor, "models", self._alone
        )
        return models

    def close(self) -> None:
        """Release the devices and the memory."""
        for executor in self.executors:
            executor.close()
