"""The contract of an executor."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Tensors = Mapping[str, npt.NDArray[Any]]
"""Tensor name -> array whose first axis is the event of the micro-batch."""


class Executor(Protocol):
    """Runs micro-batches of one model version.

    `run` is called by one thread at a time and may block for as long as it computes.
    """

    def warm_up(self) -> None:
        """Run once for every batch size that will be used, so that no event pays for a first time.

        A model that refuses blank events stays cold. Raises ExecutorUnavailable where nothing can run.
        """

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Run one micro-batch: inputs [events, ...] in, one output array [events, ...] per named output back, same order.

        Raises:
            ModelRejected: this micro-batch is refused; its parts may not be.
            OutOfMemory: it is too large for the device.
            ExecutorUnavailable: nothing can run at the moment.
        """

    def close(self) -> None:
        """Give the device back."""


def rows_of(tensors: Tensors) -> int:
    """The number of events in `tensors`."""
    return len(next(iter(tensors.values())))


def rows_between(tensors: Tensors, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
    """Views of the events `start` to `stop`."""
    return {name: array[start:stop] for name, array in tensors.items()}


def join_rows(parts: list[Tensors]) -> dict[str, npt.NDArray[Any]]:
    """The events of all `parts`, in order; no copy where there is one part."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
