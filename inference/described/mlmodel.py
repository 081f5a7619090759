"""MLflow's file MLmodel in place of a config.yaml: ONNX models, and with trust all that MLflow's `pyfunc` loads."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yaml import YAMLError, safe_load

from millstream.inference.config_file import ConfigFile
from millstream.inference.described.description import Description, array_of, as_config
from millstream.inference.described.onnx_tensors import OnnxInput, tensors_of
from millstream.inference.errors import ModelConfigError

MLMODEL_FILE = "MLmodel"
EXECUTOR = "mlflow"
UNNAMED = "prediction"
"""The output of a `pyfunc` model whose signature names none."""
_MAX_BYTES = 1 << 20
_COLUMNS = {
    "boolean": "bool",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
}
"""MLflow's type of a column -> dtype."""
_INSTEAD = "Log a config.yaml beside the model (`millstream docs registries`)."


def described(folder: Path) -> Description:
    """What MLmodel says of the model.

    Raises:
        ModelConfigError: it can't be read, or doesn't say enough.
    """
    path = folder / MLMODEL_FILE
    content = _content(path)
    flavours = content.get("flavors")
    if not isinstance(flavours, dict) or not flavours:
        raise ModelConfigError(f"{path}: expected `flavors`, found none. Log the model again with MLflow.")
    inputs, outputs = _signature(content, path)
    if "onnx" in flavours:
        return Description(_onnx(path, inputs))
    if "python_function" not in flavours:
        raise ModelConfigError(
            f"{path}: expected the flavour onnx or python_function, found {', '.join(map(str, flavours))}. Log the model as ONNX "
            f"(`mlflow.onnx.log_model`)."
        )
    return Description(_pyfunc(path, inputs, outputs))


def _content(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = safe_load(file.read(_MAX_BYTES).decode())
    except (YAMLError, ValueError, RecursionError):  # ValueError: no UTF-8, or a date that is none
        data = None
    except OSError as error:
        raise ModelConfigError(f"{path} can't be read: {error.strerror}.") from None
    if not isinstance(data, dict):
        raise ModelConfigError(f"{path}: expected MLflow's description of a model, found something else.")
    return data


def _signature(content: Mapping[str, Any], path: Path) -> tuple[list[Any], list[Any]]:
    """The entries of inputs and outputs; empty: the model was logged without a signature."""
    signature = content.get("signature") or {}
    found = []
    for part in ("inputs", "outputs"):
        try:
            entries = json.loads(signature.get(part) or "[]")
        except (ValueError, TypeError, AttributeError, RecursionError):
            entries = None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ModelConfigError(f"{path}: signature.{part} can't be read. Log the model again with MLflow.")
        found.append(entries)
    return found[0], found[1]


def _onnx(path: Path, signature: Sequence[Mapping[str, Any]]) -> ConfigFile:
    """The inputs and outputs are the file's own. The signature's columns say which fields fill them."""
    inputs, outputs = tensors_of(path.with_name("model.onnx"), _INSTEAD)
    columns = [str(entry["name"]) for entry in signature if entry.get("type") != "tensor" and "name" in entry]
    entries = [_mapped(entry, columns if len(inputs) == 1 else []) for entry in inputs]
    return as_config(path, {"executor": "onnx", "inputs": entries, "outputs": [{"tensor": name} for name in outputs]})


def _mapped(entry: OnnxInput, columns: Sequence[str]) -> dict[str, Any]:
    known = {"tensor": entry.name, "dtype": entry.dtype}
    if columns and entry.shape == (len(columns),):
        return {**known, "fields": list(columns)}
    if entry.shape == (1,):  # one column of a table
        return {**known, "fields": [entry.name]}
    return {**known, "field": array_of(entry.name), "shape": list(entry.shape)}


def _pyfunc(path: Path, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> ConfigFile:
    if not inputs:
        raise ModelConfigError(
            f"{path}: expected a signature, which names the inputs; found none. Log the model with one "
            f"(`signature=infer_signature(X, y)`)."
        )
    entries = [_column(entry, path) for entry in inputs]
    names = [{"tensor": str(entry.get("name", UNNAMED))} for entry in outputs] or [{"tensor": UNNAMED}]
    return as_config(path, {"executor": EXECUTOR, "inputs": entries, "outputs": names})


def _column(entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """An input: one value an event, or a tensor."""
    name = entry.get("name", "inputs")
    if entry.get("type") == "tensor":
        spec = entry.get("tensor-spec")
        if not isinstance(spec, dict) or not isinstance(spec.get("shape"), list):
            raise ModelConfigError(
                f"{path}: the input `{name}` has a `tensor-spec` that can't be read. Log the model again with MLflow."
            )
        dtype, (_, *shape) = str(spec.get("dtype")), spec["shape"] or [-1]
        dtype = "string" if dtype in {"str", "object"} else dtype
        if any(not isinstance(size, int) or size < 1 for size in shape):
            raise ModelConfigError(
                f"{path}: the input `{name}` has shape {spec.get('shape')}, with a free size. {_INSTEAD}"
            )
        if not shape:
            return {"tensor": str(name), "fields": [str(name)], "dtype": dtype}
        return {"tensor": str(name), "field": array_of(str(name)), "dtype": dtype, "shape": shape}
    dtype = _COLUMNS.get(str(entry.get("type")), "")
    if not dtype:
        raise ModelConfigError(
            f"{path}: the column `{name}` has MLflow's type {entry.get('type')}; expected one of {', '.join(_COLUMNS)}. "
            f"{_INSTEAD}"
        )
    return {"tensor": str(name), "fields": [str(name)], "dtype": dtype}
