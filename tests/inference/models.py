"""Tiny ONNX models, written into a model repository."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from millstream.inference.repository import ModelVersion, load_version
from tests.inference.doubling import DOUBLING

ELEMENTS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "string": TensorProto.STRING,
}


def tensor(name: str, shape: Sequence[int | str], dtype: str = "float32") -> Any:
    """An input or output declaration; the first axis is the event."""
    return helper.make_tensor_value_info(name, ELEMENTS[dtype], list(shape))


def write_model(
    repository: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    config: str,
    constants: Sequence[Any] = (),
) -> ModelVersion:
    """Write model `m`, version 1, and load what the repository says of it."""
    folder = repository / "m" / "1"
    folder.mkdir(parents=True)
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "model.onnx")
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    return load_version(repository, "m")


def splitting_texts(*, locale: str, pattern: str = "[a-z]+") -> bytes:
    """The file of a model that makes texts lower case by the locale, and splits them, as converted text vectorizers do."""
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["lower"], case_change_action="LOWER", locale=locale),
        helper.make_node(
            "Tokenizer", ["lower"], ["y"], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#", tokenexp=pattern
        ),
    ]
    graph = helper.make_graph(nodes, "g", [tensor("x", ["N"], "string")], [tensor("y", ["N", "words"], "string")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def doubling(repository: Path, *, batch: int | str = "N", config: str = "") -> ModelVersion:
    """`y` = `x` + `x`, two floats an event."""
    return write_model(
        repository,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", [batch, 2])],
        [tensor("y", [batch, 2])],
        config=config or DOUBLING,
    )


def looking_up(repository: Path) -> ModelVersion:
    """`y` = a table of 3 at `x`: an event beyond it makes ONNX Runtime refuse the whole micro-batch."""
    return write_model(
        repository,
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        [tensor("x", ["N", 1], "int64")],
        [tensor("y", ["N", 1])],
        constants=[helper.make_tensor("table", TensorProto.FLOAT, [3], [10, 20, 30])],
        config="inputs: [{tensor: x, fields: [place], dtype: int64}]\noutputs: [{tensor: y, name: value}]\n",
    )
