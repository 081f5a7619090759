"""Versions of the vector model whose predictions show which version made them: the score is the version's number."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
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


def number_model(number: int, weight_bytes: int = 0) -> onnx.ModelProto:
    """A model x float32 [batch, length] -> score float32 [batch, 1] = `number`, with so many bytes of weights."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "number"], ["score"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([1], np.int64), "axes"),
        numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        numpy_helper.from_array(np.array([number], np.float32), "number"),
    ]
    if weight_bytes:
        size = weight_bytes // 4 // VECTOR_LENGTH
        weights.append(
            numpy_helper.from_array(np.random.default_rng(number).random((VECTOR_LENGTH, size), np.float32), "w")
        )
        nodes[0] = helper.make_node("MatMul", ["x", "w"], ["wide"])
        nodes.insert(1, helper.make_node("ReduceSum", ["wide", "axes"], ["sum"], keepdims=1))
    graph = helper.make_graph(
        nodes,
        "number",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", VECTOR_LENGTH])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_version(models: Path, number: int, *, config: object = CONFIG, weight_bytes: int = 0) -> None:
    """Add a version in one step, as one should: a folder that is complete when it gets its name."""
    part = models / f"part-{number}"
    part.mkdir(parents=True)
    onnx.save(number_model(number, weight_bytes), str(part / "model.onnx"))
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
