"""MLflow's file MLmodel is written by others, so anything may be in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import read_version

if TYPE_CHECKING:
    from pathlib import Path


def with_signature(inputs: str) -> str:
    return f"flavors: {{python_function: {{}}}}\nsignature: {{inputs: {json.dumps(inputs)}}}\n"


def with_tensor(spec: Any) -> str:
    return with_signature(json.dumps([{"type": "tensor", "name": "x", "tensor-spec": spec}]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (3000 * "[", "expected MLflow's description of a model, found something else"),
        ("date: 2024-13-01", "expected MLflow's description of a model, found something else"),
        (with_signature(100_000 * "["), r"signature\.inputs can't be read"),
        (with_tensor(5), "`tensor-spec` that can't be read"),
        (with_tensor({"dtype": "float32", "shape": 5}), "`tensor-spec` that can't be read"),
        (with_tensor({"dtype": "float32"}), "`tensor-spec` that can't be read"),
    ],
)
def test_description_that_is_none_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "MLmodel").write_text(text)
    with pytest.raises(ModelConfigError, match=said):
        read_version(tmp_path, "m", 1)


def test_tensor_is_read(tmp_path: Path) -> None:
    (tmp_path / "MLmodel").write_text(with_tensor({"dtype": "float64", "shape": [-1, 3]}))
    (entry,) = read_version(tmp_path, "m", 1).signature.inputs
    assert (entry.fields, entry.dtype, entry.shape) == (("x[]",), "float64", (3,))
