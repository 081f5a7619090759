"""The JSON Schema of a pipeline's predictions."""

from collections.abc import Container, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.predictions import Outputs
from millstream.schemas.records import ROLLOUT_PREDICTION

JsonSchema = dict[str, Any]
_TYPES: Final = {
    "string": "string",
    "mixed": "string",
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "int32": "integer",
    "int64": "integer",
    "float32": "number",
    "float64": "number",
    "double": "number",
}
_NOT_FINITE: Final = {"enum": ["NaN", "Infinity", "-Infinity"]}


def prediction_schema(
    title: str,
    outputs: Mapping[str, JsonSchema],
    included: Mapping[str, Dtype] | None,
    *,
    rollout: bool = False,
    optional: Container[str] = (),
) -> JsonSchema:
    """The JSON Schema of predictions in JSON.

    Args:
        title: what the schema is of.
        outputs: the type of each output, see `output_types`.
        included: the fields of their events that predictions include, with their types; None: they include none.
        rollout: whether the pipeline has a rollout.
        optional: the outputs that predictions may lack.
    """
    parts = {"outputs": _object(outputs, optional)}
    if included is not None:
        parts["event"] = _object({name: _included(dtype) for name, dtype in included.items()})
    properties = {}
    for field in ROLLOUT_PREDICTION.definition["fields"]:
        name, type_ = field["name"], field["type"]
        if name == "rollout":
            if rollout:
                properties[name] = {"description": field["doc"], **_rollout(type_[1])}
        elif isinstance(type_, dict) and type_["type"] == "map":
            if name in parts:
                properties[name] = {"description": field["doc"], **parts[name]}
        else:
            kind = type_["type"] if isinstance(type_, dict) else type_
            properties[name] = {"description": field["doc"], "type": _TYPES[kind]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": properties,
        # A replay's predictions have no rollout, and neither have those from before the pipeline had one.
        "required": [name for name in properties if name != "rollout"],
    }


def output_types(outputs: Outputs, *, allow_nan: bool) -> dict[str, JsonSchema]:
    """The type of each output. `outputs`: those of one event. `allow_nan`: whether a value may be NaN or infinite."""
    found = {}
    for name, values in outputs.items():
        item = _item(values, allow_nan=allow_nan)
        found[name] = item if values.shape[1:] in {(), (1,)} else {"type": "array", "items": item}
    return found


def _rollout(record: dict[str, Any]) -> JsonSchema:
    """The type of the field `rollout`; null while there is no rollout."""
    fields = {field["name"]: {"description": field["doc"], "type": _TYPES[field["type"]]} for field in record["fields"]}
    return {"anyOf": [_object(fields), {"type": "null"}]}


def _item(values: npt.NDArray[Any], *, allow_nan: bool) -> JsonSchema:
    if np.issubdtype(values.dtype, np.floating):
        return {"anyOf": [{"type": "number"}, _NOT_FINITE]} if allow_nan else {"type": "number"}
    kinds = {"i": "integer", "u": "integer", "b": "boolean"}
    return {"type": kinds.get(values.dtype.kind, "string")}


def _included(dtype: Dtype) -> JsonSchema:
    """The type of an event's field, or of the items of a list. It may be null."""
    if isinstance(dtype, ListOf):
        return {"type": ["array", "null"], "items": _included(dtype.items)}
    nullable = {"type": [_TYPES[str(dtype)], "null"]}
    return {"anyOf": [nullable, _NOT_FINITE]} if dtype in {"float32", "float64"} else nullable


def _object(properties: Mapping[str, JsonSchema], optional: Container[str] = ()) -> JsonSchema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}
