"""Reads what a program saved by torch.export says of itself.

The program isn't loaded, because that runs its code: its description is JSON in the archive.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from millstream.consumers.scaffold.model_file import ModelFile, ModelInput
from millstream.inference.executors.axes import UNBOUNDED

_DESCRIPTION = re.compile(r"(?:.+/models/[^/]+|serialized_exported_program)\.json")  # the second one until torch 2.7
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_DTYPES = {4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool"}
"""Number of a type in torch's format -> name in config.yaml."""


def exported_program(path: Path) -> ModelFile:
    """The inputs, and the outputs if the model returns a dict. Both are empty if the description has another form."""
    try:
        with ZipFile(path) as archive:
            (name,) = filter(_DESCRIPTION.fullmatch, archive.namelist())
            program = json.loads(archive.read(name))
        return ModelFile(path, "model.pt2", _inputs(program), _outputs(program))
    except (BadZipFile, LookupError, TypeError, ValueError):  # a version of torch may write another form
        return ModelFile(path, "model.pt2", [], [])


def _inputs(program: Mapping[str, Any]) -> list[ModelInput]:
    module, ranges = program["graph_module"], program["range_constraints"]
    specs = [spec["user_input"] for spec in module["signature"]["input_specs"] if "user_input" in spec]
    names = [spec["arg"]["as_tensor"]["name"] for spec in specs]
    tensors = module["graph"]["tensor_values"]
    return [_input(name, tensors[name], ranges) for name in names]


def _input(name: str, tensor: Mapping[str, Any], ranges: Mapping[str, Any]) -> ModelInput:
    _, *sizes = tensor["sizes"]
    shape = tuple(size.get("as_int") for size in sizes)
    most = _most(sizes[0]["as_expr"]["expr_str"], ranges) if shape == (None,) else None
    return ModelInput(name, _DTYPES[tensor["dtype"]], shape, most)


def _most(expression: str, ranges: Mapping[str, Any]) -> int | None:
    """The upper bound of an axis that is one symbol; None: it has none."""
    symbol = _SYMBOL.fullmatch(expression)
    most = ranges.get(symbol[1] if symbol else expression, {}).get("max_val")
    return most if most is not None and most < UNBOUNDED else None


def _outputs(program: Mapping[str, Any]) -> list[str]:
    """The keys of the dict that the model returns. Other outputs have no names."""
    _, spec = json.loads(program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"])
    return list(json.loads(spec["context"])) if spec["type"] == "builtins.dict" else []
