"""A model of Triton's python backend. It runs the file model.onnx beside it with ONNX Runtime, on the CPU.

Triton loads a copy of this file as model.py, in an environment of its own. It can import nothing of Millstream.
"""

import os
import site
from collections.abc import Sequence
from pathlib import Path
from typing import Any

site.addsitedir(os.environ["TRITON_PY_SITE"])  # the backend ignores PYTHONPATH

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument


class TritonPythonModel:
    """Triton calls its methods by name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model. `args` has the model's folder, `model_repository`, and its `model_version`."""
        file = Path(args["model_repository"], args["model_version"], "model.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # as in a worker: the machine's cores are for all processes of the demo
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response for each request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        inputs = {tensor.name(): _decoded(tensor.as_numpy()) for tensor in request.inputs()}
        try:
            outputs = self._session.run(self._outputs, inputs)
        except InvalidArgument as error:  # a wrong shape, for example: the caller's fault and not the server's
            return pb.InferenceResponse(error=pb.TritonError(str(error), pb.TritonError.INVALID_ARG))
        return pb.InferenceResponse(
            [pb.Tensor(name, array) for name, array in zip(self._outputs, outputs, strict=True)]
        )


def _decoded(array: Any) -> Any:
    """The array; its texts, which come as bytes, as str, for ONNX Runtime would take bytes for their repr."""
    if array.dtype != object:
        return array
    return np.array([text.decode() for text in array.flat], dtype=object).reshape(array.shape)
