"""The contract of an executor."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.ragged import Ragged
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, blank
from millstream.inference.varying import length_buckets_of

log = logging.getLogger(__name__)

Tensors = Mapping[str, npt.NDArray[Any]]
"""Tensor name -> array whose first axis is the event of the micro-batch."""

Inputs = Mapping[str, Any]
"""Tensors: `Ragged` for variable-length inputs, arrays for others. Only `ByLength` takes `Ragged`, other executors take arrays.
The model's signature says which inputs vary; the types can't express it."""


class Executor(Protocol):
    """Runs micro-batches of one model version.

    `run` may block for as long as it computes. As many threads call it at a time as the pipeline has batches in flight: one where
    `model.concurrent_batches` is not set.
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


class ModelExecutor(Executor, Protocol):
    """An executor with what it decided when it loaded the model."""

    device: str  # cpu, cuda or tensorrt
    batch_sizes: tuple[int, ...]  # the sizes that it is warmed up for, events, ascending
    max_events: int  # the largest micro-batch it takes


def rows_of(tensors: Inputs) -> int:
    """The number of events in `tensors`."""
    return len(next(iter(tensors.values())))


def rows_between(tensors: Inputs, start: int, stop: int) -> dict[str, Any]:
    """Views of the events `start` to `stop`."""
    return {name: array[start:stop] for name, array in tensors.items()}


def join_rows(parts: Sequence[Inputs]) -> dict[str, Any]:
    """The events of all `parts`, in order; no copy where there is one part."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(arrays: Sequence[Any]) -> Any:
    return Ragged.concatenate(arrays) if isinstance(arrays[0], Ragged) else np.concatenate(arrays)


def padded(tensors: Tensors, size: int) -> dict[str, npt.NDArray[Any]]:
    """The tensors with their last event repeated up to `size` events: real values, so that no model meets ones it never saw."""
    return {
        name: np.concatenate([array, np.repeat(array[-1:], size - len(array), axis=0)])
        for name, array in tensors.items()
    }


def check_names(model: ModelVersion, own: Collection[str]) -> None:
    """Check that the mapped tensors are a model's own inputs. Raises ModelConfigError."""
    mapped = {entry.tensor for entry in model.signature.inputs}
    if mapped != set(own):
        raise ModelConfigError(
            f"{model.place}: maps the tensors {sorted(mapped)}, but the model's inputs are {sorted(own)}. Map each once."
        )


def check_length(model: ModelVersion, entry: TensorInput, own: object) -> None:
    """Check that a model takes all lengths it will be run at, `own` being what it says of that axis. Raises ModelConfigError."""
    if (
        isinstance(own, int)
        and entry.max_length
        and length_buckets_of(model.length_buckets, entry.max_length) != (own,)
    ):
        raise ModelConfigError(
            f"{model.place}: tensor `{entry.tensor}` varies in length in config.yaml, but the model takes {own} items only. "
            f"Export it with a free axis, or write `max_length: {own}` and `length_buckets: [{own}]`."
        )


def check_rows(outputs: Tensors, events: int, place: str) -> None:
    """Check that each output has one row for each event. Raises ModelConfigError: dead letters would not help."""
    for name, output in outputs.items():
        if output.ndim == 0 or len(output) != events:
            raise ModelConfigError(
                f"{place}: output `{name}` has shape {list(output.shape)} for {events} events: its first axis must be the event."
            )


def warm_up(run: Callable[[Tensors], object], inputs: Sequence[TensorInput], batch_sizes: Sequence[int]) -> None:
    """Run blank events, once for each size, ascending. Raises what `run` does, but for what says nothing against a start."""
    for size in batch_sizes:
        try:
            run(blank(inputs, size))
        except ModelRejected as error:
            # Its right, but then the first events of each size pay for the first time.
            log.warning("not warmed up for %d events: the model refuses blank ones: %s", size, error)
        except OutOfMemory as error:
            if size == 1:
                raise ExecutorUnavailable(str(error)) from error
            log.warning("%d events at once do not fit the memory, so batches will run in parts: %s", size, error)
            return
