"""Triton's config.pbtxt in place of a config.yaml: for models of ONNX and of PyTorch."""

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.inference.described.description import Description, array_of, as_config
from millstream.inference.entries import file_beside
from millstream.inference.errors import ModelConfigError
from millstream.schemas.wording import shown

log = logging.getLogger(__name__)

_EXECUTORS = {
    "onnxruntime_onnx": "onnx",
    "onnxruntime": "onnx",
    "pytorch_libtorch": "torch",
    "pytorch": "torch",
}
"""Triton's platform or backend -> executor."""
_FILES = {"onnx": "model.onnx", "torch": "model.pt"}
_DTYPES = {
    "TYPE_BOOL": "bool",
    "TYPE_INT32": "int32",
    "TYPE_INT64": "int64",
    "TYPE_FP16": "float16",
    "TYPE_FP32": "float32",
    "TYPE_FP64": "float64",
    "TYPE_STRING": "string",
}
_IMPOSSIBLE = {
    "ensemble_scheduling": "an ensemble of models",
    "sequence_batching": "sequences, which need one server to keep their state",
    "batch_input": "inputs that Triton makes of a batch",
    "batch_output": "outputs that Triton splits by another tensor",
}
"""Part of the file without which the model would answer something else -> what it is."""
_INSTEAD = {
    "instance_group": "`model.instances` and `model.device` in the pipeline file",
    "optimization": "`model.device` in the pipeline file",
    "response_cache": "nothing",
    "model_warmup": "Millstream's own warm-up",
}
"""Part of the file that says how to run the model -> what says it here."""


def described(path: Path, folder: Path) -> Description:
    """What the file says of the model.

    Args:
        path: the file.
        folder: of the version.

    Raises:
        ModelConfigError: it can't be read, or asks for what Millstream doesn't have.
    """
    config = _parsed(path.read_bytes(), path)
    executor = _executor(config, path)
    _refuse_impossible(config, path)
    inputs = [_input(entry, config.max_batch_size, path) for entry in config.input]
    outputs = [{"tensor": entry.name} for entry in config.output]
    if not inputs or not outputs:
        raise ModelConfigError(
            f"{path}: expected `input` and `output`, found no `{'output' if inputs else 'input'}`. Triton completes them from "
            f"the model; Millstream needs them written, or a config.yaml (`millstream docs registries`)."
        )
    batching = config.dynamic_batching
    data = {
        "executor": executor,
        "inputs": inputs,
        "outputs": outputs,
        "batch_sizes": sorted(
            {*batching.preferred_batch_size, *([config.max_batch_size] if config.max_batch_size else [])}
        ),
    }
    for remark in _remarks(config):
        log.warning("%s: %s", path, remark)
    return Description(
        as_config(path, data),
        _file(config, folder, executor, path),
        config.max_batch_size or None,
        batching.max_queue_delay_microseconds / 1e6 if batching.max_queue_delay_microseconds else None,
    )


def chosen_by_policy(content: bytes, path: str, versions: list[int]) -> int | None:
    """The version that Triton would serve, if it is one; None: it would serve several.

    Args:
        content: of config.pbtxt.
        path: of this file, for messages.
        versions: those that are there.

    Raises:
        ModelConfigError: the file can't be read.
    """
    policy = _parsed(content, path).version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            served = versions
        case "specific":
            served = [version for version in versions if version in policy.specific.versions]
        case _:  # Triton's default is the latest one
            served = versions[-(policy.latest.num_versions or 1) :]
    return served[0] if len(served) == 1 else None


def _parsed(content: bytes, path: Path | str) -> Any:
    try:
        text_format = importlib.import_module("google.protobuf.text_format")
        messages = importlib.import_module("tritonclient.grpc.model_config_pb2")
    except ModuleNotFoundError as error:
        raise ModelConfigError(
            f"{path} is read with tritonclient, and {error.name} is not installed. Install Millstream's extra `kserve`: "
            f"{sys.executable} -m pip install 'millstream[kserve]'; or write a config.yaml."
        ) from None
    try:
        return text_format.Parse(content.decode(), messages.ModelConfig())
    except UnicodeDecodeError:
        raise ModelConfigError(f"{path} can't be read: expected text, found something else.") from None
    except text_format.ParseError as error:
        raise ModelConfigError(f"{path} can't be read: {error}. Triton would refuse it too.") from None


def _executor(config: Any, path: Path) -> str:
    named = config.backend or config.platform
    if named not in _EXECUTORS:
        raise ModelConfigError(
            f"{path}: expected the backend onnxruntime or pytorch, found {shown(named or None)}. Other models stay on Triton: "
            f"`executor: kserve` in a config.yaml calls it (`millstream docs executors`)."
        )
    return _EXECUTORS[named]


def _file(config: Any, folder: Path, executor: str, path: Path) -> Path:
    """The model's file, which is in the version's folder: the configuration may come from others."""
    named = config.default_model_filename
    return file_beside(named, folder, f"{path}: `default_model_filename`") if named else folder / _FILES[executor]


def _refuse_impossible(config: Any, path: Path) -> None:
    for part, what in _IMPOSSIBLE.items():
        found = getattr(config, part)
        if config.HasField(part) if not hasattr(found, "__len__") else len(found):
            raise ModelConfigError(
                f"{path}: `{part}` is {what}, which Millstream doesn't run. Leave the model on Triton: `executor: kserve` in a "
                f"config.yaml calls it (`millstream docs executors`)."
            )
    if config.model_transaction_policy.decoupled:
        raise ModelConfigError(
            f"{path}: a decoupled model gives several answers to a request, and Millstream needs one. Leave the option out."
        )


def _input(entry: Any, max_batch_size: int, path: Path) -> dict[str, Any]:
    """An input of one event, filled by the field of its name."""
    dtype = _DTYPES.get(_type_name(entry))
    if dtype is None:
        raise ModelConfigError(
            f"{path}: input `{entry.name}` is {_type_name(entry)}; expected one of {', '.join(_DTYPES)}. Export the model "
            f"with one."
        )
    for option in ("is_shape_tensor", "allow_ragged_batch"):
        if getattr(entry, option):
            raise ModelConfigError(
                f"{path}: input `{entry.name}` has `{option}`, which Millstream doesn't have. Leave it out."
            )
    dims = list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
    if not max_batch_size:  # then the first size is that of the batch
        if dims[:1] != [-1]:
            raise ModelConfigError(
                f"{path}: with `max_batch_size: 0`, input `{entry.name}` has dims {dims}, and no axis for the events of a batch. "
                f"Export the model with a free first axis, and write `max_batch_size`."
            )
        dims = dims[1:]
    if not dims:
        raise ModelConfigError(
            f"{path}: input `{entry.name}` has no dims for one event, so the model takes one number an event without an axis. "
            f"Export the model with dims [1]."
        )
    if any(size < 1 for size in dims):
        raise ModelConfigError(
            f"{path}: input `{entry.name}` has dims {dims}, with a free size. Write a config.yaml with `max_length` for it "
            f"(`millstream docs models`)."
        )
    if dims == [1]:
        return {"tensor": entry.name, "dtype": dtype, "fields": [entry.name]}
    return {"tensor": entry.name, "dtype": dtype, "field": array_of(entry.name), "shape": dims}


def _type_name(entry: Any) -> str:
    values = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return str(values[entry.data_type].name)


def _remarks(config: Any) -> Iterator[str]:
    """What is left out, because it changes no answer."""
    for part, instead in _INSTEAD.items():
        found = getattr(config, part)
        if config.HasField(part) if not hasattr(found, "__len__") else len(found):
            yield f"`{part}` has no meaning here; in its place is {instead}"
    if config.dynamic_batching.priority_levels or config.dynamic_batching.HasField("default_queue_policy"):
        yield "priorities and queue policies have no meaning here; `input.weights` and `input.max_age` are in their place"
    if config.parameters:
        yield f"the parameters {', '.join(sorted(config.parameters))} have no meaning here"
    for entry in config.input:
        if entry.optional:
            yield f"input `{entry.name}` is optional in Triton, and needed here"
    for entry in config.output:
        if entry.label_filename:
            yield f"the labels of output `{entry.name}` are left out; a config.yaml has `classes` for them"
