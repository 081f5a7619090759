"""The interfaces of executors, blocking and asynchronous, and helpers for them."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import (
    CodeAtFault,
    ExecutorUnavailable,
    ModelConfigError,
    ModelRejected,
    OutOfMemory,
)
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.request_report import RequestReport
from millstream.inference.ragged import Ragged
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, TensorOutput, blank
from millstream.schemas.wording import meant

log = logging.getLogger(__name__)

Tensors = Mapping[str, npt.NDArray[Any]]
"""Tensor name -> array whose first axis is the event of the micro-batch."""

Inputs = Mapping[str, Any]
"""Tensors: `Ragged` for variable-length inputs, arrays for others. Only `ByLength` takes `Ragged`, other executors take arrays.
The model's signature says which inputs vary; the types can't express it."""

ANSWERED_BY = "__answered_by__"
"""A reserved output of executors that run several models: int64 [events], the index in `executor.models` of the model whose
output is the event's. Their attribute `models` is a tuple of `ModelId`, which may only grow. Other executors have neither."""


class Executor(Protocol):
    """Runs micro-batches of one model version.

    `run` blocks while it computes. With `model.concurrent_batches`, so many threads call it at a time; by default it is one.
    """

    def warm_up(self) -> None:
        """Run once for every batch size, so that no event is delayed by a first run.

        A model that rejects blank events is not warmed up. Raises ExecutorUnavailable if the executor can't run, and
        ModelConfigError if the model's code is at fault, see `CodeAtFault`.
        """

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Run one micro-batch. It takes inputs [events, ...], and returns output name -> [events, ...] in the same order.

        Raises:
            ModelRejected: the model rejects this micro-batch. It may accept parts of it.
            OutOfMemory: the micro-batch is too large for the device.
            ExecutorUnavailable: the executor can't run now.
        """

    def close(self) -> None:
        """Release the device."""


class ModelExecutor(Executor, Protocol):
    """An executor of a loaded model.

    After the warm-up, it may have `warmed_sizes`: those of its batch sizes that ran (of the shortest length, if lengths vary).
    """

    device: str  # cpu, cuda or tensorrt
    batch_sizes: tuple[int, ...]  # the batch sizes that it is warmed up for, ascending
    max_events: int  # the largest micro-batch that it takes


class AsyncExecutor(Protocol):
    """Runs micro-batches somewhere else, such as on a server, and meanwhile takes the next ones. Derive from this class.

    All coroutines run on one event loop, which has a thread of its own. `run` is called for many micro-batches at a time, so
    it must never block: await, or use `asyncio.to_thread`. The caller decides how many run at a time, retries them during an
    outage, and isolates bad events.
    """

    device: str = "remote"  # for messages
    batch_sizes: tuple[int, ...] = ()  # the batch sizes that it is warmed up for, ascending
    max_events: int = 1  # the largest micro-batch that it takes; `warm_up` may make it smaller
    limits: RequestLimits = RequestLimits()
    # Set by the caller before the first `run`. If the server reports how many tokens a request took, call it with this number
    # less the estimate of `tokens`. Call it on the event loop only.
    on_tokens: Callable[[int], object] | None = None
    # Set by `warm_up`, if a request costs more than a model call usually does: what the model answered to one event, its outputs
    # or the rejection. Then the caller needs no request of its own to see the outputs.
    sample_result: Tensors | ModelRejected | None = None
    # Set by the caller for metrics. If the model completes or embeds texts, call it after each request.
    on_request: Callable[[RequestReport], object] | None = None

    async def warm_up(self) -> None:
        """Connect, check that the server has the model, and run once. It is called again until it succeeds.

        Raises:
            ExecutorUnavailable: the server is away, or does not have the model yet. The caller waits.
            ModelConfigError: config.yaml doesn't fit the server's model. The caller ends.
        """

    async def run(self, inputs: Tensors, timeout: float) -> dict[str, npt.NDArray[Any]]:
        """Run one micro-batch, like `Executor.run`.

        Args:
            inputs: tensor name -> [events, ...].
            timeout: seconds after which the result is of no use. It is the time limit of a request, or less if the events
                have a deadline. Pass it on to the server if the protocol has a place for it.

        Raises:
            ModelRejected: the server's model rejects this micro-batch. It may accept parts of it.
            OutOfMemory: the micro-batch is too large for the server.
            Throttled: the server has too much to do.
            ExecutorUnavailable: the server is away, or did not answer in time.
        """
        ...

    def tokens(self, inputs: Tensors) -> int:  # noqa: ARG002
        """How many tokens the request will take, for `limits.tokens_per_minute`: an estimate."""
        return 0

    async def close(self) -> None:
        """Close the connections."""


def rows_of(tensors: Inputs) -> int:
    """The number of events in `tensors`."""
    return len(next(iter(tensors.values())))


def rows_between(tensors: Inputs, start: int, stop: int) -> dict[str, Any]:
    """Views of the events `start` to `stop`."""
    return {name: array[start:stop] for name, array in tensors.items()}


def join_rows(parts: Sequence[Inputs]) -> dict[str, Any]:
    """The events of all `parts`, in order. A single part is not copied."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(arrays: Sequence[Any]) -> Any:
    return Ragged.concatenate(arrays) if isinstance(arrays[0], Ragged) else np.concatenate(arrays)


def check_names(model: ModelVersion, own: Set[str]) -> None:
    """Check that the mapped tensors are a model's own inputs. Raises ModelConfigError."""
    mapped = {entry.tensor: entry.line for entry in model.signature.inputs}
    left = sorted(own - mapped.keys())
    problems = [
        f"{model.place_at(line)}: the model has no input `{tensor}`.{meant(tensor, left)} {_left(left)}"
        for tensor, line in mapped.items()
        if tensor not in own
    ]
    if left and not problems:
        problems = [f"{model.place}: {_left(left)}"]
    if problems:
        raise ModelConfigError("\n".join(problems))


def _left(inputs: Sequence[str]) -> str:
    """What to do about the model's inputs that are not mapped."""
    if not inputs:
        return "All its inputs are mapped: take this one out."
    return f"Inputs of the model that are not mapped: {', '.join(inputs)}. Map each once."


def write_dtype(own: str | None) -> str:
    """What to write for an input of this type, with a space before it. None: a type that no event field fills."""
    if own is None:
        return " No event field fills this type: export the model with another one."
    return f" Write `dtype: {own}`."


def no_such_output(model: ModelVersion, entry: TensorOutput, own: Collection[str]) -> ModelConfigError:
    """The error for an output of config.yaml that the model lacks. `own`: the names of the model's outputs."""
    return ModelConfigError(
        f"{entry.at or model.place}: names the output `{entry.tensor}`, but the model's outputs are {sorted(own)}."
        f"{meant(entry.tensor, own)}"
    )


def check_rows(outputs: Tensors, events: int, place: str) -> None:
    """Check that each output has one row per event. Raises ModelConfigError, because no event is at fault."""
    for name, output in outputs.items():
        if output.ndim == 0 or len(output) != events:
            raise ModelConfigError(
                f"{place}: output `{name}` has shape {list(output.shape)} for {events} events: its first axis must be the event."
            )


def warm_up(
    run: Callable[[Tensors], object], inputs: Sequence[TensorInput], batch_sizes: Sequence[int]
) -> tuple[int, ...]:
    """Run blank events once for each batch size, ascending. Errors that don't prevent a start are only logged.

    Returns:
        the batch sizes that ran.

    Raises:
        ModelConfigError: the model's code is at fault, see `CodeAtFault`.
        ExecutorUnavailable: one event doesn't fit the memory.
    """
    refused: dict[int, ModelRejected] = {}
    ran = []
    for size in batch_sizes:
        try:
            run(blank(inputs, size))
            ran.append(size)
        except CodeAtFault as error:  # no event is at fault, because these are blank
            raise ModelConfigError(str(error)) from None
        except ModelRejected as error:
            refused[size] = error
        except OutOfMemory as error:
            if size == 1:
                raise ExecutorUnavailable(str(error)) from error
            log.warning("%d events at once do not fit the memory, so batches will run in parts: %s", size, error)
            break
    if refused:
        # The model may reject blank events. But then the first batch of each size takes longer.
        sizes, why = ", ".join(map(str, refused)), next(iter(refused.values()))
        log.warning("not warmed up for %s events: the model refuses blank ones: %s", sizes, why)
    return tuple(ran)
