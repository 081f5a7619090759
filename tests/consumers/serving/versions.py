"""Versions of the vector model whose predictions show which version made them: the score is the version's number."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

from benchmarks.load import VECTOR_LENGTH

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {
    "inputs": [{"tensor": "x", "field": "x", "dtype": "float32", "shape": [VECTOR_LENGTH]}],
    "outputs": [{"tensor": "score", "name": "score"}],
}


def number_model(number: int, weight_bytes: int = 4) -> onnx.ModelProto:
    """A model x float32 [batch, length] -> score float32 [batch, 1] = `number`, with so many bytes of weights."""
    table = np.zeros((max(weight_bytes // 4, 1), 1), np.float32)
    table[0] = number
    weights: dict[str, npt.NDArray[Any]] = {
        "axes": np.array([1], np.int64),
        "zero": np.zeros(1, np.float32),
        "table": table,
    }
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
            helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
            # The index depends on the event, or the table would be removed when the model is loaded.
            helper.make_node("Cast", ["nothing"], ["index"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "index"], ["score"]),
        ],
        "number",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", VECTOR_LENGTH])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_version(
    models: Path, number: int, *, config: object = CONFIG, weight_bytes: int = 4, content: bytes | None = None
) -> None:
    """Add a version in one step, as one should: a folder that is complete when it gets its name.

    `content`: of its model.onnx; None: that of `number_model`.
    """
    part = models / f"part-{number}"
    part.mkdir(parents=True)
    if content is None:
        content = number_model(number, weight_bytes).SerializeToString()
    (part / "model.onnx").write_bytes(content)
    (part / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    part.rename(models / str(number))


def name_alias(models: Path, **aliases: int) -> None:
    """Let aliases name these versions."""
    part = models / "aliases.part"
    part.write_text(json.dumps(aliases), encoding="utf-8")
    part.rename(models / "aliases.yaml")


def delete_version(models: Path, number: int) -> None:
    """Delete a version's folder."""
    shutil.rmtree(models / str(number))
