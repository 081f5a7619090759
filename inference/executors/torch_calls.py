"""Calls a torch model with arrays: on the CPU, on a CUDA stream, or as CUDA graphs."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError, OutOfMemory
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.free_list import FreeList
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.executors.torch_library import torch
from millstream.inference.repository import ModelVersion

Outputs = Mapping[str, npt.NDArray[Any]] | list[npt.NDArray[Any]]
Module = Callable[[Mapping[str, Any]], Any]
"""Takes torch tensors by name; returns a tensor, several, or a dict."""

RUNS_BEFORE_CAPTURE = 3  # as torch recommends: libraries allocate their memory in the first runs


class Calls(Protocol):
    """A way to call a model."""

    def run(self, inputs: Tensors) -> Outputs:
        """Call the model. The inputs may change after the call, and the outputs stay. Raises what torch raises."""


def calls_of(
    model: ModelVersion, call: Callable[..., Any], positional: tuple[str, ...], keywords: tuple[str, ...], device: str
) -> Calls:
    """The way for this device and the options of the model.

    Args:
        model: with its options.
        call: the loaded model.
        positional: names of the positional inputs, in order.
        keywords: names of the other inputs.
        device: cpu or cuda.
    """

    def by_name(tensors: Mapping[str, Any]) -> Any:
        return call(*[tensors[name] for name in positional], **{name: tensors[name] for name in keywords})

    module = by_name if model.runtime.dtype is None else _with_16_bits(by_name, device, model.runtime.dtype)
    if device == "cpu":
        return CpuCalls(module)
    return GraphCalls(module, model.place) if model.runtime.cuda_graphs else StreamCalls(module)


def _with_16_bits(module: Module, device: str, dtype: str) -> Module:
    """Operators that gain from 16 bits compute with them; those that lose too much keep 32 (torch's autocast)."""
    library = torch()

    def cast(tensors: Mapping[str, Any]) -> Any:
        with library.autocast(device, getattr(library, dtype)):
            return module(tensors)

    return cast


class CpuCalls:
    """Calls a model on the CPU."""

    def __init__(self, module: Module) -> None:
        """Args:
        module: the model.
        """
        self._module = module

    def run(self, inputs: Tensors) -> Outputs:
        """See `Calls.run`."""
        library = torch()
        with library.inference_mode():
            # Copies, because the model may write into its inputs.
            return on_host(self._module({name: library.from_numpy(array.copy()) for name, array in inputs.items()}))


class StreamCalls:
    """Calls a model on a GPU. Calls at the same time have their own streams: one copies while another one computes."""

    def __init__(self, module: Module) -> None:
        """Args:
        module: the model, on the device.
        """
        self._module = module
        self._streams = FreeList(torch().cuda.Stream)
        torch().cuda.synchronize()  # the weights were copied on another stream

    def run(self, inputs: Tensors) -> Outputs:
        """See `Calls.run`. Inputs in pinned memory are copied in the background."""
        library = torch()
        with self._streams.borrowed() as stream, library.inference_mode(), library.cuda.stream(stream):
            given = {name: library.from_numpy(array).to("cuda", non_blocking=True) for name, array in inputs.items()}
            return on_host(self._module(given))


@dataclass(frozen=True, slots=True)
class _Graph:
    """A captured graph with its inputs and outputs on the device."""

    graph: Any
    inputs: Mapping[str, Any]
    outputs: Any


class GraphCalls:
    """Calls a model on a GPU as CUDA graphs, one for each shape. One at a time runs, because they share memory."""

    def __init__(self, module: Module, place: str) -> None:
        """Args:
        module: the model, on the device.
        place: the model's name in messages.
        """
        self._module = module
        self._place = place
        self._graphs: dict[tuple[tuple[int, ...], ...], _Graph] = {}
        self._lock = threading.Lock()
        self._stream = torch().cuda.Stream()
        self._pool = torch().cuda.graph_pool_handle()
        torch().cuda.synchronize()

    def run(self, inputs: Tensors) -> Outputs:
        """See `Calls.run`. The first call for a shape captures its graph. Raises ModelConfigError if that is impossible."""
        library = torch()
        shapes = tuple(array.shape for array in inputs.values())
        with self._lock, library.inference_mode(), library.cuda.stream(self._stream):
            given = {name: library.from_numpy(array) for name, array in inputs.items()}
            graph = self._graphs.get(shapes)
            if graph is None:
                on_device = {name: tensor.to("cuda") for name, tensor in given.items()}
                outputs = on_host(self._module(on_device))  # may reject the events, and then nothing is captured
                self._graphs[shapes] = self._captured(on_device)
                return outputs
            for name, tensor in given.items():
                graph.inputs[name].copy_(tensor, non_blocking=True)
            graph.graph.replay()
            return on_host(graph.outputs)

    def _captured(self, inputs: Mapping[str, Any]) -> _Graph:
        library = torch()
        try:
            for _ in range(RUNS_BEFORE_CAPTURE):
                self._module(inputs)
            graph = library.cuda.CUDAGraph()
            with library.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                outputs = self._module(inputs)
        except Exception as error:
            if isinstance(found := classify_error(error, self._place), OutOfMemory):
                raise found from error
            raise ModelConfigError(
                f"{self._place}: the model can't be captured as a CUDA graph for {rows_of(inputs)} events. Leave out "
                f"`runtime.cuda_graphs`. torch says: {line_of(error)}"
            ) from error
        return _Graph(graph, inputs, outputs)


def on_host(outputs: Any) -> Outputs:
    """Copies of a model's outputs. Raises ModelConfigError if one is no tensor."""
    if isinstance(outputs, Mapping):
        return {str(name): _array(output) for name, output in outputs.items()}
    return [_array(output) for output in (outputs if isinstance(outputs, list | tuple) else [outputs])]


def _array(output: Any) -> npt.NDArray[Any]:
    library = torch()
    if not isinstance(output, library.Tensor):
        raise ModelConfigError(
            f"the model gives {type(output).__name__} where a tensor is expected: a tensor, a tuple or a dict."
        )
    copied = output.detach().cpu()
    if copied.dtype in (library.bfloat16, library.float16):  # numpy has no bfloat16
        return np.asarray(copied.float().numpy())
    # On the CPU, a copy, because the program may reuse the tensor for the next micro-batch.
    return np.asarray(copied.numpy()) if output.is_cuda else np.array(copied.numpy())
