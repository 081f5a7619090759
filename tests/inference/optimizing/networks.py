"""A small neural network with float weights, written into a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper, numpy_helper

from millstream.inference.repository import ModelVersion
from tests.inference.models import tensor, write_model

WIDTH, HIDDEN = 8, 64
VOCABULARY = 100
CONFIG = f"""\
inputs:
  - {{tensor: x, fields: [{", ".join(f"f{number}" for number in range(WIDTH))}], dtype: float32, shape: [{WIDTH}]}}
outputs:
  - {{tensor: y, name: score}}
"""


def mlp(
    repository: Path, *, batch: int | str = "N", scale: float = 1.0, classes: int = 1, config: str = CONFIG
) -> ModelVersion:
    """`y` = the sigmoid (of several classes: the softmax) of two layers over `WIDTH` numbers.

    Args:
        repository: where to write it, as model `m`, version 1.
        batch: the only batch size that it takes; a name: any.
        scale: factor of the hidden numbers, which the second layer divides by. With 1e8, they are too large for 16
            bits; with 1e12, the weights are, too.
        classes: numbers that it gives for an event.
        config: its config.yaml.
    """
    random = np.random.default_rng(7)
    weights = {
        "w1": random.normal(size=(WIDTH, HIDDEN)).astype(np.float32) * np.float32(scale**0.5),
        "b1": random.normal(size=HIDDEN).astype(np.float32),
        "factor": np.array(scale**0.5, np.float32),
        "w2": (random.normal(size=(HIDDEN, classes)) / (HIDDEN**0.5 * scale)).astype(np.float32),
        "b2": np.zeros(classes, np.float32),
    }
    last = (
        helper.make_node("Sigmoid", ["z"], ["y"]) if classes == 1 else helper.make_node("Softmax", ["z"], ["y"], axis=1)
    )
    return write_model(
        repository,
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Mul", ["r", "factor"], ["m"]),
            helper.make_node("Gemm", ["m", "w2", "b2"], ["z"]),
            last,
        ],
        [tensor("x", [batch, WIDTH])],
        [tensor("y", [batch, classes])],
        constants=[numpy_helper.from_array(array, name) for name, array in weights.items()],
        config=config,
    )


def embedding(repository: Path) -> ModelVersion:
    """`y` = the sigmoid of a layer over the summed embeddings of up to 64 tokens, whose padding is token 0."""
    random = np.random.default_rng(8)
    table = random.normal(size=(VOCABULARY, HIDDEN)).astype(np.float32)
    table[0] = 0
    layer = random.normal(size=(HIDDEN, 1)).astype(np.float32) / 8
    weights: dict[str, npt.NDArray[Any]] = {"table": table, "w": layer, "axes": np.array([1])}
    return write_model(
        repository,
        [
            helper.make_node("Gather", ["table", "tokens"], ["e"]),
            helper.make_node("ReduceSum", ["e", "axes"], ["s"], keepdims=0),
            helper.make_node("MatMul", ["s", "w"], ["z"]),
            helper.make_node("Sigmoid", ["z"], ["y"]),
        ],
        [tensor("tokens", ["N", "L"], "int64")],
        [tensor("y", ["N", 1])],
        constants=[numpy_helper.from_array(array, name) for name, array in weights.items()],
        config="inputs: [{tensor: tokens, field: 'tokens[]', dtype: int64, max_length: 64}]\n"
        "outputs: [{tensor: y, name: score}]\n",
    )
