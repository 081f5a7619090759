"""How a worker isolates the events that an executor can't take."""

from typing import Any

from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.interface import AsyncExecutor, Executor


def isolation(shared: Shared, executor: Executor | AsyncExecutor) -> dict[str, Any]:
    """How bad events of a version are isolated."""
    # Another version may take fewer events at a time than the first one, for which the batches are cut.
    most = shared.settings.batch.max_events
    return {
        "max_events": min(most, getattr(executor, "max_events", most)),
        "allow_nan_outputs": shared.settings.allow_nan_outputs,
        "net": SafetyNet("infer", shared.metrics),
    }
