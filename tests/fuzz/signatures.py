"""Model signatures from a seed, and the event fields that fill them."""

from __future__ import annotations

from dataclasses import asdict
from random import Random
from typing import Any

from millstream.inference.signature import DTYPES, Signature, TensorInput, TensorOutput
from millstream.schemas.store import AvroType

_FILLED_BY = {
    "float16": ["int", "long", "float", "double", "boolean"],
    "float32": ["int", "long", "float", "double", "boolean"],
    "float64": ["int", "long", "float", "double", "boolean"],
    "int32": ["int", "long"],
    "int64": ["int", "long"],
    "bool": ["boolean"],
    "string": ["string"],
}
"""Tensor's type -> the Avro types that fill it."""


def inputs_with_fields(rng: Random) -> tuple[list[dict[str, Any]], list[tuple[str, AvroType]]]:
    """The inputs of a model as JSON, and the event's fields that fill them."""
    inputs: list[dict[str, Any]] = []
    fields: list[tuple[str, AvroType]] = []
    longest = rng.choice([None, None, 1, 3, 6])
    for number in range(rng.randrange(1, 3)):
        dtype = rng.choice(list(DTYPES))
        varies = longest is not None and rng.random() < 0.6
        made = _array if varies or rng.random() < 0.5 else _scalars
        entry, own = made(f"t{number}", dtype, longest if varies else None, rng)
        inputs.append(asdict(entry))
        fields += own
    if any(entry["max_length"] for entry in inputs) and rng.random() < 0.5:
        assert longest is not None
        inputs.append(asdict(TensorInput("mask", (), True, "int64", (longest,), longest, mask=True)))
    return inputs, fields


def signature_of(inputs: list[dict[str, Any]]) -> Signature:
    """The signature that the JSON says."""
    return Signature(
        tuple(
            TensorInput(**{**entry, "fields": tuple(entry["fields"]), "shape": tuple(entry["shape"])})
            for entry in inputs
        ),
        (TensorOutput("y", "y"),),
    )


def _array(name: str, dtype: str, longest: int | None, rng: Random) -> tuple[TensorInput, list[tuple[str, AvroType]]]:
    items: Any = rng.choice(_FILLED_BY[dtype])
    of: Any = {"type": "array", "items": ["null", items] if rng.random() < 0.3 else items}
    shape = (longest,) if longest else rng.choice([(1,), (2,), (1, 2), (2, 2)])
    pad = "-" if dtype == "string" else 0
    return TensorInput(name, (name,), True, dtype, shape, longest, pad), [(name, _maybe_null(of, rng))]


def _scalars(name: str, dtype: str, _: int | None, rng: Random) -> tuple[TensorInput, list[tuple[str, AvroType]]]:
    fields = [
        (f"{name}_{place}", _maybe_null(rng.choice(_FILLED_BY[dtype]), rng)) for place in range(rng.randrange(1, 4))
    ]
    return TensorInput(name, tuple(field for field, _ in fields), False, dtype, (len(fields),)), fields


def _maybe_null(of: AvroType, rng: Random) -> AvroType:
    return ["null", of] if rng.random() < 0.3 else of
