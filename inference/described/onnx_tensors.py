"""The inputs and outputs of an ONNX model, from the model itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from millstream.inference.errors import ModelConfigError
from millstream.inference.foreign_models import WITHOUT_MAPS, what_it_is
from millstream.inference.onnx_types import DTYPES


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input that config.yaml could map."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # of one event


def tensors_of(file: Path, instead: str) -> tuple[list[OnnxInput], list[str]]:
    """The inputs, and the names of those outputs that a prediction can hold.

    Args:
        file: the model.
        instead: what to do if the model doesn't say enough, for messages.

    Raises:
        ModelConfigError: it can't be loaded, or has an input of another type or of a free size.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        said = what_it_is(file, error) or str(error).strip().split("\n")[0]
        raise ModelConfigError(f"{file} can't be loaded: {said}") from None
    inputs = [_input(entry, file, instead) for entry in session.get_inputs()]
    outputs = [entry.name for entry in session.get_outputs() if entry.type.startswith("tensor(")]
    if not outputs:
        raise ModelConfigError(
            f"{file}: expected an output that is a tensor, found none. Convert the model without maps: {WITHOUT_MAPS}."
        )
    return inputs, outputs


def _input(entry: Any, file: Path, instead: str) -> OnnxInput:
    dtype = DTYPES.get(entry.type)
    if dtype is None:
        raise ModelConfigError(f"{file}: the input `{entry.name}` is {entry.type}, which no event field can fill.")
    _, *shape = entry.shape or [None]
    if not entry.shape or not all(isinstance(size, int) for size in shape):
        raise ModelConfigError(
            f"{file}: the input `{entry.name}` has shape {list(entry.shape)}, so its size for one event isn't known. {instead}"
        )
    if not shape:
        raise ModelConfigError(
            f"{file}: the input `{entry.name}` has shape {list(entry.shape)}: one number an event, without an axis. Export "
            f"the model with shape [{entry.shape[0] or 'N'}, 1]."
        )
    return OnnxInput(entry.name, dtype, tuple(shape))
