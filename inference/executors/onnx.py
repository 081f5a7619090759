"""The ONNX Runtime executor: CPU, CUDA and TensorRT."""

from typing import Any

import numpy.typing as npt
import onnxruntime as ort

from millstream.inference.batch_sizes import batch_sizes_of, bucket_of
from millstream.inference.devices import gpus
from millstream.inference.errors import DeviceError, ModelConfigError
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.interface import (
    Tensors,
    check_length,
    check_names,
    check_rows,
    padded,
    rows_of,
    warm_up,
)
from millstream.inference.foreign_models import what_it_is
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion

PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    # TensorRT runs only the parts of a model that it supports; CUDA runs the rest.
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}
ONNX_TYPES = {
    "float16": "tensor(float16)",
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    "int32": "tensor(int32)",
    "int64": "tensor(int64)",
    "bool": "tensor(bool)",
    "string": "tensor(string)",
}
# ONNX Runtime's severity. It raises errors as exceptions; printed too, there would be one line per bisected part.
LOG_SEVERITY_FATAL = 4


class OnnxExecutor:
    """Runs `model.onnx` in ONNX Runtime."""

    def __init__(self, model: ModelVersion, *, device: str = "auto", threads: int = 1, max_events: int = 256) -> None:
        """Load the model and check the mapping against its own inputs and outputs.

        Args:
            model: what to load.
            device: auto, cpu, cuda or tensorrt; auto takes CUDA if there is a GPU, otherwise the CPU.
            threads: CPU threads of one inference.
            max_events: the largest micro-batch.

        Raises:
            DeviceError: the device doesn't exist.
            ModelConfigError: the file is not a model, or config.yaml does not fit it.
        """
        self.model = model
        self._place = model.place
        self._outputs = model.signature.output_tensors
        self.device = _device(device, model)
        self._session = _open(model, self.device, threads)
        fixed = _check_inputs(model, self._session)
        _check_outputs(model, self._session)
        # A GPU compiles or tunes for each new shape, so it gets few shapes. On the CPU, any size is fine.
        self._pads = self.device != "cpu" or fixed is not None
        self.batch_sizes = (fixed,) if fixed else batch_sizes_of(model.batch_sizes, max_events)
        self.max_events = min(max_events, self.batch_sizes[-1]) if self._pads else max_events

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        warm_up(self.run, self.model.signature.inputs, self.batch_sizes)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`."""
        events = rows_of(inputs)
        size = bucket_of(events, self.batch_sizes) if self._pads else events
        try:
            outputs = self._session.run(self._outputs, inputs if size == events else padded(inputs, size))
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            if not isinstance(error, MemoryError) and not type(error).__module__.startswith("onnxruntime"):
                raise  # an error of Millstream
            raise classify_error(error, self._place) from error
        tensors = dict(zip(self._outputs, outputs, strict=True))
        check_rows(tensors, size, self._place)
        kept = {name: output[:events] for name, output in tensors.items()}
        return named(self.model.signature.outputs, kept, self._place)

    def close(self) -> None:
        """See `Executor.close`."""
        del self._session


def _device(asked: str, model: ModelVersion) -> str:
    there = ort.get_available_providers()
    if asked in {"auto", "cpu"}:
        return "cuda" if asked == "auto" and PROVIDERS["cuda"][0] in there and gpus() else "cpu"
    if PROVIDERS[asked][0] not in there or not gpus():
        reason = "no NVIDIA GPU is visible" if PROVIDERS[asked][0] in there else "this ONNX Runtime is built without it"
        raise DeviceError(
            f"the pipeline asks for `model.device: {asked}` for model {model.name}, but {reason}. Write `auto` or `cpu`, or run "
            f"where a GPU is."
        )
    return asked


def _open(model: ModelVersion, device: str, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_SEVERITY_FATAL
    # Spinning threads would take the CPU from the consumer and the producer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if device != "cpu":
        ort.preload_dlls()  # the CUDA libraries, if they are installed as Python packages
    try:
        session = ort.InferenceSession(str(model.file), options, providers=PROVIDERS[device])
    except Exception as error:
        if known := what_it_is(model.file):
            raise ModelConfigError(f"{model.file} can't be loaded: {known}") from None
        said = line_of(error)
        why = (
            "its external data must be files in its folder, not links to elsewhere: "
            if "external data" in said.lower()
            else ""
        )
        raise ModelConfigError(f"{model.file} can't be loaded: {why}{said}") from None
    if session.get_providers()[0] != PROVIDERS[device][0]:
        raise DeviceError(
            f"{PROVIDERS[device][0]} could not start, though a GPU is there: its libraries (CUDA, cuDNN, TensorRT) are missing "
            f"or of another version than onnxruntime-gpu {ort.__version__} needs. Install them, or write `model.device: cpu`."
        )
    return session


def _check_inputs(model: ModelVersion, session: ort.InferenceSession) -> int | None:
    """Check every input. Returns the batch size if the model fixes it."""
    own = {entry.name: entry for entry in session.get_inputs()}
    check_names(model, own)
    fixed: set[int] = set()
    for found in model.signature.inputs:
        name, expected = found.tensor, own[found.tensor]
        if expected.type != ONNX_TYPES[found.dtype]:
            raise ModelConfigError(
                f"{model.place}: tensor `{name}` is {expected.type} in the model, but config.yaml says {found.dtype}."
            )
        batch, *shape = expected.shape or [None]
        if (
            not expected.shape
            or len(shape) != len(found.shape)
            or any(isinstance(size, int) and size != given for size, given in zip(shape, found.shape, strict=True))
        ):
            raise ModelConfigError(
                f"{model.place}: tensor `{name}` has shape {list(expected.shape)} in the model (first axis: the event), but "
                f"config.yaml gives {list(found.shape)} an event, from {', '.join(found.fields)}."
            )
        if found.max_length:
            check_length(model, found, shape[0])
        if isinstance(batch, int):
            fixed.add(batch)
    if len(fixed) > 1:
        raise ModelConfigError(f"{model.place}: the model's inputs fix different batch sizes: {sorted(fixed)}.")
    return fixed.pop() if fixed else None


def _check_outputs(model: ModelVersion, session: ort.InferenceSession) -> None:
    own = {entry.name: entry.type for entry in session.get_outputs()}
    for entry in model.signature.outputs:
        if entry.tensor not in own:
            raise ModelConfigError(
                f"{model.place}: names the output `{entry.tensor}`, but the model's outputs are {sorted(own)}."
            )
        if not own[entry.tensor].startswith("tensor("):
            raise ModelConfigError(
                f"{model.place}: the output `{entry.tensor}` is {own[entry.tensor]} in the model, but a prediction takes a "
                f"tensor. Convert the model without it (scikit-learn's converter: `zipmap` False)."
            )
