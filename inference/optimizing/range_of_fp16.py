"""Finds out whether a model's numbers fit into 16 bits.

A run on this machine needn't show it: CPUs hardly compute with 16 bits, so ONNX Runtime computes with 32 there.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from millstream.inference.executors.interface import Tensors, rows_between
from millstream.inference.optimizing.onnx_package import onnx

LARGEST = float(np.finfo(np.float16).max)  # 65,504
_TRIED_EVENTS = 4
_TRIED_BYTES = 50_000_000  # of a model; numpy multiplies matrices of 16 bits slowly
_LOG_SEVERITY_FATAL = 4


def too_large_constants(model: Any) -> int:
    """The number of constants (`ModelProto`'s initializers of float32) with numbers that don't fit."""
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx().TensorProto.FLOAT]
    return sum(_exceeds(onnx().numpy_helper.to_array(tensor)) for tensor in floats)


def _exceeds(numbers: np.ndarray[Any, np.dtype[np.float32]]) -> bool:
    return bool((np.isfinite(numbers) & (np.abs(numbers) > LARGEST)).any())


def largest_activation(model: Any, batches: Sequence[Tensors], folder: Path) -> tuple[str, float]:
    """The tensor with the largest number that the model of 32 bits computes for these batches, and this number.

    Args:
        model: `ModelProto`.
        batches: inputs as the model takes them.
        folder: for a file.
    """
    names = _activations(model)
    session = _telling(model, names, folder / "telling.onnx")
    found = ("", 0.0)
    for batch in batches:
        for name, array in zip(names, session.run(names, batch), strict=True):
            most = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
            found = max(found, (name, most), key=lambda each: each[1])
    return found


def _activations(model: Any) -> list[str]:
    """The tensors of float32 between the model's operators."""
    inferred = onnx().shape_inference.infer_shapes(model)
    known = {entry.name: entry.type.tensor_type.elem_type for entry in inferred.graph.value_info}
    made = {name for node in model.graph.node for name in node.output if name}
    return sorted(name for name in made if known.get(name) == onnx().TensorProto.FLOAT)


def _telling(model: Any, names: Sequence[str], file: Path) -> ort.InferenceSession:
    """A session that also outputs these tensors."""
    telling = copy.deepcopy(model)
    float32 = onnx().TensorProto.FLOAT
    telling.graph.output.extend(onnx().helper.make_tensor_value_info(name, float32, None) for name in names)
    onnx().save(telling, str(file))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _LOG_SEVERITY_FATAL
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def lost_output(converted: Any, batch: Tensors) -> str | None:
    """An output in which the converted model answers NaN or infinity if each operator computes with 16 bits.

    It is tried with a few events. None: there is none, or the model is too large to try, or has operators that only ONNX
    Runtime has.
    """
    if converted.ByteSize() > _TRIED_BYTES:
        return None
    names = [entry.name for entry in converted.graph.output]
    try:
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

        with np.errstate(all="ignore"):
            outputs = ReferenceEvaluator(converted).run(None, dict(rows_between(batch, 0, _TRIED_EVENTS)))
    except Exception:  # the evaluator raises many kinds of errors for what it doesn't know
        return None
    return next(
        (
            name
            for name, array in zip(names, outputs, strict=True)
            if array.dtype.kind == "f" and not np.isfinite(array).all()
        ),
        None,
    )
