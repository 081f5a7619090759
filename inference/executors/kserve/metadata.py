"""Checks a model's config.yaml against what the server says of its model."""

from collections.abc import Sequence

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.axes import FREE, Sizes, check_length, shape_fits
from millstream.inference.executors.interface import check_names, write_dtype
from millstream.inference.executors.kserve.endpoint import ModelMetadata, TensorMetadata
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput

DATATYPES = {
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "string": "BYTES",
}
"""Type in config.yaml -> the protocol's name."""
_DTYPES = {name: dtype for dtype, name in DATATYPES.items()}


def check_metadata(model: ModelVersion, found: ModelMetadata, where: str) -> None:
    """Check names, types and shapes. What the server doesn't say is not checked.

    Args:
        model: with its config.yaml.
        found: what the server says.
        where: the server's model, for messages.

    Raises:
        ModelConfigError: config.yaml does not fit the server's model.
    """
    if found.inputs:
        check_names(model, {tensor.name for tensor in found.inputs})
        own = {tensor.name: tensor for tensor in found.inputs}
        for entry in model.signature.inputs:
            _check_input(model, entry, own[entry.tensor], where)
    if found.outputs:
        _check_outputs(model, [tensor.name for tensor in found.outputs], where)


def _check_input(model: ModelVersion, entry: TensorInput, own: TensorMetadata, where: str) -> None:
    if own.datatype != DATATYPES[entry.dtype]:
        raise ModelConfigError(
            f"{model.place_at(entry.line)}: tensor `{entry.tensor}` is {own.datatype} in {where}, but config.yaml says "
            f"{entry.dtype} ({DATATYPES[entry.dtype]}).{write_dtype(_DTYPES.get(own.datatype))}"
        )
    if not own.shape:
        return
    batch, *axes = [Sizes(size, size) if size >= 0 else FREE for size in own.shape]
    if not shape_fits(entry, axes):
        raise ModelConfigError(
            f"{model.place}: tensor `{entry.tensor}` has shape {list(own.shape)} in {where} (first axis: the event), but "
            f"config.yaml gives {list(entry.shape)} an event. Change the mapping."
        )
    if batch.is_fixed:
        raise ModelConfigError(
            f"{model.place}: tensor `{entry.tensor}` has shape {list(own.shape)} in {where}, so it takes exactly {batch} events. "
            f"Give the server's model a free first axis (Triton: `max_batch_size` in config.pbtxt)."
        )
    if entry.max_length:
        check_length(model, entry, axes[0])


def _check_outputs(model: ModelVersion, own: Sequence[str], where: str) -> None:
    for entry in model.signature.outputs:
        if entry.tensor not in own:
            raise ModelConfigError(
                f"{model.place}: names the output `{entry.tensor}`, but the outputs of {where} are {sorted(own)}."
            )
