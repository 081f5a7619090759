"""A model's signature: its inputs with the event fields that fill them, and its outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError
from millstream.inference.ragged import Ragged
from millstream.schemas.dtypes import Dtype, ListOf

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(object),
}
"""Tensor element types that event fields can fill: name in config.yaml -> numpy's type."""

_FILLED_BY = {
    **dict.fromkeys(("float32", "float64"), ("int32", "int64", "float32", "float64", "boolean")),
    **dict.fromkeys(("int32", "int64"), ("int32", "int64")),
    "bool": ("boolean",),
    "string": ("string",),
}
"""Tensor's type -> the fields' types that fill it without changing their meaning (precision may narrow)."""

_LEAVES = {
    **dict.fromkeys(("float32", "float64"), "float64"),
    **dict.fromkeys(("int32", "int64"), "int64"),
    "bool": "boolean",
    "string": "string",
}
"""Tensor's type -> the field's type in JSON without a schema."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor and the event fields that fill it."""

    tensor: str
    fields: tuple[str, ...]  # scalar fields, one column each; or the one array field
    array: bool  # True: the one field is an array
    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]  # of one event; for variable length, of the longest event
    max_length: int | None = None  # most items of an event; None: fixed length
    pad: float | str = 0  # the padding behind an event's own items, for variable length
    mask: bool = False  # not filled by a field: 1 for each item of the event's inputs of variable length, 0 for padding
    # The place in the pipeline file that names the fields; empty: config.yaml names them.
    mapped_at: str = field(default="", compare=False)

    @property
    def width(self) -> int:
        """The number of elements of one event."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """One output tensor and its name in the prediction."""

    tensor: str
    name: str


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs of a model."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[TensorOutput, ...]

    @property
    def fields(self) -> list[str]:
        """The event fields that the model needs, each once."""
        return list(dict.fromkeys(field for entry in self.inputs for field in entry.fields))

    @property
    def paths(self) -> dict[str, str]:
        """The event fields that the model needs -> their types in JSON without a schema."""
        return {field: _LEAVES[entry.dtype] for entry in self.inputs for field in entry.fields}

    @property
    def max_length(self) -> int | None:
        """The most items of an event, for inputs of variable length; None: there are none."""
        return next((entry.max_length for entry in self.inputs if entry.max_length is not None), None)

    def at(self, length: int) -> list[TensorInput]:
        """The inputs for events of this length."""
        return [
            replace(entry, shape=(length,), max_length=None) if entry.max_length else entry for entry in self.inputs
        ]


def merged_paths(signatures: Sequence[Signature]) -> dict[str, str]:
    """The event fields that the models need -> their types in JSON without a schema."""
    return {path: leaf for signature in reversed(signatures) for path, leaf in signature.paths.items()}


def blank(inputs: Sequence[TensorInput], events: int) -> dict[str, Any]:
    """Inputs of zeros and empty strings. Those of variable length have the greatest length, and are ragged."""
    filled = [entry for entry in inputs if entry.max_length is None or not entry.mask]
    return {entry.tensor: _blank(entry, events) for entry in filled}


def _blank(entry: TensorInput, events: int) -> npt.NDArray[Any] | Ragged:
    value = "" if entry.dtype == "string" else int(entry.mask)
    array = np.full((events, *entry.shape), value, DTYPES[entry.dtype])
    return (
        array if entry.max_length is None else Ragged.of_lengths(array.reshape(-1), np.full(events, entry.max_length))
    )


def check_fields(signature: Signature, columns: Mapping[str, Dtype], place: str, schema_name: str) -> None:
    """Check that the event's fields can fill the tensors.

    Raises:
        ModelConfigError: a field doesn't exist, or doesn't fit its tensor.
    """
    for entry in signature.inputs:
        for name in entry.fields:
            found = columns.get(name)
            problem = "has no such field" if found is None else _misfit(entry, found)
            if problem:
                count = f"up to {entry.max_length}" if entry.max_length else f"{entry.width}"
                expected = f"an array of {count} x {entry.dtype}" if entry.array else entry.dtype
                advice = (
                    "Name another field"
                    if entry.mapped_at
                    else "Change the mapping in the model's config.yaml (or `model.inputs` in the pipeline file)"
                )
                raise ModelConfigError(
                    f"{entry.mapped_at or place}: tensor `{entry.tensor}` takes {expected} from the event's field `{name}`, but "
                    f"schema `{schema_name}` {problem}. {advice}, or change the schema."
                )


def _misfit(entry: TensorInput, found: Dtype) -> str:
    if not entry.array:
        return "" if found in _FILLED_BY[entry.dtype] else f"has {found} there"
    if not isinstance(found, ListOf):
        return f"has {found} there"
    return "" if found.items in _FILLED_BY[entry.dtype] else f"has an array of {found.items} there"
