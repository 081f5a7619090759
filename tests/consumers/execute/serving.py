"""Model versions for pools and runners in tests."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.execute.opened_rollout import Opened
from millstream.consumers.execute.served import ModelSlots, ServedModel
from millstream.consumers.observability.metrics import Metrics
from millstream.inference.executors.interface import Executor, Inputs
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from tests.consumers.in_memory import MODEL

Run = Callable[[Inputs], dict[str, Any]]


class Running:
    """An executor that runs a function."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.closed = False

    def warm_up(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def running_model(run: Run, model: ModelId = MODEL) -> OpenedModel:
    """A version whose executor runs this function."""
    return OpenedModel(model, [cast("Executor", Running(run))])


def in_slots(count: int = 1, metrics: Metrics | None = None, **isolation: Any) -> Callable[[Opened], ServedModel]:
    """What a pool with this many slots makes of a version, or of a rollout."""
    options: Mapping[str, Any] = {"max_events": 16, "allow_nan_outputs": False, **isolation}

    def isolated(executor: Executor) -> BisectingExecutor:
        return BisectingExecutor(executor.run, **options)

    return ModelSlots(count, isolated, metrics or Metrics("p")).serve


def nothing(inputs: Inputs) -> dict[str, Any]:
    """For runners that run no model."""
    raise AssertionError(f"nobody runs {inputs}")


NO_MODEL = running_model(nothing)
