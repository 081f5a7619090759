"""Opens a model in ONNX Runtime, and checks config.yaml against its inputs and outputs."""

from collections.abc import Sequence
from typing import Any

import onnxruntime as ort

from millstream.inference.errors import DeviceError, ModelConfigError
from millstream.inference.executors.axes import FREE, Sizes, check_axes
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.interface import check_names, no_such_output, write_dtype
from millstream.inference.executors.onnx_providers import Provider
from millstream.inference.foreign_models import WITHOUT_MAPS, advice_on_doubles, what_it_is
from millstream.inference.onnx_types import DTYPES, ONNX_TYPES
from millstream.inference.repository import ModelVersion

# ONNX Runtime's severity. It raises errors as exceptions; printed too, there would be one line per bisected part.
LOG_SEVERITY_FATAL = 4
_LIBRARIES_MISSING = "GPU requirements page"  # in ONNX Runtime's words


def open_session(model: ModelVersion, providers: Sequence[Provider], threads: int) -> ort.InferenceSession:
    """Load the model.

    Args:
        model: what to load.
        providers: ONNX Runtime's names for devices, from the first choice on, with their options.
        threads: CPU threads of one inference.

    Raises:
        DeviceError: the device could not start.
        ModelConfigError: the file is not a model, or this ONNX Runtime can't run it.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_SEVERITY_FATAL
    # Spinning threads would take the CPU from the consumer and the producer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    wanted = providers[0][0]
    if wanted != "CPUExecutionProvider":
        ort.preload_dlls()  # the CUDA libraries, if they are installed as Python packages
    try:
        # Without this option, ONNX Runtime goes on with the CPU after an error of the GPU, for good and without an exception.
        session = ort.InferenceSession(str(model.file), options, providers=list(providers), enable_fallback=0)
    except Exception as error:
        if _LIBRARIES_MISSING in str(error):
            raise _not_started(wanted) from None
        raise ModelConfigError(f"{model.file} can't be loaded: {_why(model, error)}") from None
    if session.get_providers()[0] != wanted:
        raise _not_started(wanted)
    return session


def _not_started(provider: str) -> DeviceError:
    return DeviceError(
        f"{provider} could not start: its libraries (CUDA, cuDNN, TensorRT) are missing or of another version than "
        f"onnxruntime-gpu {ort.__version__} needs. Install them (`millstream docs gpu`), or write `model.device: cpu`."
    )


def _why(model: ModelVersion, error: Exception) -> str:
    """Why a model can't be loaded, and what to do."""
    if known := what_it_is(model.file, error):
        return known
    said = line_of(error)
    if "external data" in said.lower():
        return f"its external data must be files in its folder, not links to elsewhere: {said}"
    if model.runtime.cuda_graphs and "graph" in said.lower() and "captur" in said.lower():
        return f"its operators can't be captured as a CUDA graph: leave out `runtime.cuda_graphs`. ONNX Runtime says: {said}"
    if advice := advice_on_doubles(said):
        return f"{said.rstrip('.')}. {advice}"
    return said


def check_inputs(model: ModelVersion, session: ort.InferenceSession) -> int | None:
    """Check every input. Returns the batch size if the model fixes it. Raises ModelConfigError."""
    own = {entry.name: entry for entry in session.get_inputs()}
    check_names(model, own.keys())
    fixed: set[int] = set()
    for found in model.signature.inputs:
        name, expected = found.tensor, own[found.tensor]
        if expected.type != ONNX_TYPES[found.dtype]:
            raise ModelConfigError(
                f"{model.place_at(found.line)}: tensor `{name}` is {expected.type} in the model, but config.yaml says "
                f"{found.dtype}.{write_dtype(DTYPES.get(expected.type))}"
            )
        axes = [Sizes(size, size) if isinstance(size, int) else FREE for size in expected.shape]
        check_axes(model, found, axes, expected.shape)
        if axes[0].is_fixed:
            fixed.add(axes[0].least)
    if len(fixed) > 1:
        raise ModelConfigError(f"{model.place}: the model's inputs fix different batch sizes: {sorted(fixed)}.")
    return fixed.pop() if fixed else None


def check_outputs(model: ModelVersion, session: ort.InferenceSession) -> None:
    """Check that the outputs of config.yaml are there, and are tensors. Raises ModelConfigError."""
    own: dict[str, Any] = {entry.name: entry.type for entry in session.get_outputs()}
    for entry in model.signature.outputs:
        if entry.tensor not in own:
            raise no_such_output(model, entry, own)
        if not own[entry.tensor].startswith("tensor("):
            raise ModelConfigError(
                f"{entry.at or model.place}: the output `{entry.tensor}` is {own[entry.tensor]} in the model, but a prediction "
                f"takes a tensor. Convert the model without it: {WITHOUT_MAPS}."
            )
