"""Runs a model of ONNX Runtime as CUDA graphs: one call of the driver starts all kernels of the model.

A graph reads and writes fixed places in the device's memory. So each shape of the inputs has a graph, and inputs and outputs on
the device that all its runs use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from millstream.inference.errors import InferenceError, ModelConfigError, OutOfMemory
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.executors.single_thread import SingleThread

GRAPH_ID = "gpu_graph_id"  # ONNX Runtime's name for the option of a run
NO_GRAPH = "-1"


@dataclass(frozen=True, slots=True)
class _Graph:
    """A captured graph with its inputs and outputs on the device."""

    binding: Any
    inputs: dict[str, Any]
    outputs: list[Any]
    options: Any


class GraphRunner:
    """Runs one session.

    ONNX Runtime keeps a graph for the thread that captured it, and it can't run two graphs of a session at a time. So one thread
    makes all calls. Other threads wait for it.
    """

    def __init__(self, session: ort.InferenceSession, outputs: Sequence[str], place: str, memory: str = "cuda") -> None:
        """Args:
        session: has the option `enable_cuda_graph`.
        outputs: names of the outputs.
        place: the model's name in messages.
        memory: where inputs and outputs are; `cpu` only in tests, where nothing is captured.
        """
        self._session = session
        self._outputs = list(outputs)
        self._place = place
        self._memory = memory
        self._graphs: dict[tuple[tuple[int, ...], ...], _Graph] = {}
        self._thread = SingleThread("cuda-graphs")

    def run(self, inputs: Tensors) -> list[npt.NDArray[Any]]:
        """The outputs, in order. The first call for a shape captures its graph.

        Raises:
            ModelConfigError: the model can't be captured.
            Exception: an error of ONNX Runtime.
        """
        return self._thread.call(lambda: self._run(inputs))

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    def _run(self, inputs: Tensors) -> list[npt.NDArray[Any]]:
        shapes = tuple(inputs[name].shape for name in sorted(inputs))
        graph = self._graphs.get(shapes)
        if graph is None:
            # An ordinary run shows the shapes of the outputs. It may also reject the events, and then nothing is captured.
            outputs: list[npt.NDArray[Any]] = self._session.run(self._outputs, inputs, _options(NO_GRAPH))
            self._graphs[shapes] = self._captured(inputs, outputs)
            return outputs
        for name, value in graph.inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(graph.binding, graph.options)
        # On the CPU, numpy() may be a view of the output that the next run writes to.
        return [np.array(value.numpy(), copy=self._memory == "cpu" or None) for value in graph.outputs]

    def _captured(self, inputs: Tensors, outputs: Sequence[npt.NDArray[Any]]) -> _Graph:
        try:
            return self._capture(inputs, outputs)
        except Exception as error:
            if isinstance(found := classify_error(error, self._place), OutOfMemory):
                raise found from error
            if isinstance(error, InferenceError):
                raise
            raise ModelConfigError(
                f"{self._place}: the model can't be captured as a CUDA graph for {rows_of(inputs)} events. Leave out "
                f"`runtime.cuda_graphs`. ONNX Runtime says: {line_of(error)}"
            ) from error

    def _capture(self, inputs: Tensors, outputs: Sequence[npt.NDArray[Any]]) -> _Graph:
        binding = self._session.io_binding()
        on_device = {
            name: ort.OrtValue.ortvalue_from_numpy(np.array(array), self._memory) for name, array in inputs.items()
        }
        results = [ort.OrtValue.ortvalue_from_numpy(np.array(output), self._memory) for output in outputs]
        for name, value in on_device.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(self._outputs, results, strict=True):
            binding.bind_ortvalue_output(name, value)
        options = _options(str(len(self._graphs) + 1))
        # This run makes the runs that are needed before a capture, and then captures.
        self._session.run_with_iobinding(binding, options)
        return _Graph(binding, on_device, results, options)


def _options(graph: str) -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry(GRAPH_ID, graph)
    return options
