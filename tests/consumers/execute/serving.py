"""Model versions for pools and runners in tests."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.execute.opened_rollout import Opened
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import ModelSlots, ServedModel
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.inference.executors.interface import Executor, Inputs
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from tests.consumers.in_memory import MODEL

WATCHDOG = Watchdog(600)  # has a thread
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


def plain_runner(max_events: int, abandon: threading.Event, metrics: Metrics) -> Runner:
    """A runner that leaves out no event."""
    return Runner(
        max_events=max_events,
        watchdog=WATCHDOG,
        retry=Retry(abandon, Health(60), metrics),
        admit=lambda _number, batch: batch,
        is_outdated=lambda _batch: False,
        abandon=abandon,
        metrics=metrics,
    )


def nothing(inputs: Inputs) -> dict[str, Any]:
    """For runners that run no model."""
    raise AssertionError(f"nobody runs {inputs}")


NO_MODEL = running_model(nothing)
