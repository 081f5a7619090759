"""Converts an ONNX model: simplifies its graph, and stores its numbers with fewer bits.

The inputs and outputs stay as they are, so the model's config.yaml stays valid.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnxruntime as ort

from millstream.inference.errors import ModelConfigError, NotOptimized
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.interface import Tensors
from millstream.inference.foreign_models import what_it_is
from millstream.inference.optimizing.node_order import sort_nodes
from millstream.inference.optimizing.onnx_package import onnx, runtime_tool, tools_importable
from millstream.inference.optimizing.range_of_fp16 import (
    LARGEST,
    largest_activation,
    lost_output,
    too_large_constants,
)

Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-static"]

DYNAMIC_OPERATORS = ("MatMul", "Gemm", "Conv", "LSTM", "Attention", "EmbedLayerNormalization", "Gather")
"""The operators whose weights `int8-dynamic` can store in 8 bits."""
STATIC_OPERATORS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Relu", "Clip", "MaxPool", "AveragePool", "Flatten")
"""The operators that `int8-static` can run in 8 bits: those that take the time, and those between them.

Others stay exact: the last operators, such as Sigmoid and Softmax, and those that join columns of different ranges.
"""
_WITH_WEIGHTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_QUANTIZED = {"DynamicQuantizeLinear", "DynamicQuantizeLSTM", "QuantizeLinear", "DequantizeLinear"}
_LARGEST_FILE = 2**31 - 1  # bytes; protobuf's limit
_LOG_SEVERITY_FATAL = 4
_CPU_FLAGS = Path("/proc/cpuinfo")


def convert(source: Path, precision: Precision, target: Path, batches: Sequence[Tensors] = ()) -> list[str]:
    """Write a converted model.

    Args:
        source: the model. Its external data, if it has some, are beside it.
        precision: of the numbers inside.
        target: the file to write. It holds all data itself.
        batches: inputs as the model takes them: `int8-static` learns ranges from them, and `fp16` checks that numbers fit.

    Returns:
        what a user should know of the conversion, a sentence each.

    Raises:
        ModelConfigError: the source can't be loaded.
        NotOptimized: the package onnx is missing, or the model can't be converted.
    """
    onnx()
    with TemporaryDirectory() as folder, _quiet(), tools_importable():
        simple = Path(folder) / "simple.onnx"
        _simplify(_in_one_file(source, Path(folder)), simple)
        try:
            return _CONVERSIONS[precision](simple, target, batches)
        except (NotOptimized, MemoryError):
            raise
        except Exception as error:  # the converters raise many kinds of errors for graphs that they can't convert
            raise NotOptimized(
                f"{source} can't be converted to {precision}: {line_of(error).rstrip('.') or type(error).__name__}. Try another "
                "`--precision`."
            ) from error


def _in_one_file(source: Path, folder: Path) -> Path:
    """The model, or a copy of it in the folder, which holds the data that the model has in other files.

    Raises:
        ModelConfigError: it can't be read.
    """
    try:
        if not external_data(source):
            return source
        whole = onnx().load(str(source))
    except Exception as error:  # protobuf's, and the package's own
        raise ModelConfigError(f"{source} can't be loaded: {what_it_is(source, error) or line_of(error)}") from None
    _save(whole, folder / "whole.onnx")
    return folder / "whole.onnx"


def external_data(model: Path) -> set[str]:
    """The names of the files beside the model that hold its weights."""
    graph = onnx().load(str(model), load_external_data=False).graph
    return {entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"}


def _simplify(source: Path, target: Path) -> None:
    """Fold constants and remove what does nothing. ONNX Runtime does the rest for the device on which it loads the model.

    Its further optimisations are not written: they may be for one kind of device only.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _LOG_SEVERITY_FATAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    try:
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
        raise ModelConfigError(f"{source} can't be loaded: {line_of(error)}") from None


def _fp32(simple: Path, target: Path, _: Sequence[Tensors]) -> list[str]:
    _save(onnx().load(str(simple)), target)
    return [
        "constants are folded; ONNX Runtime does so, too, whenever it loads the model, so mainly the loading is faster"
    ]


def _fp16(simple: Path, target: Path, batches: Sequence[Tensors]) -> list[str]:
    model = onnx().load(str(simple))
    steps = ["numbers have 16 bits inside; inputs and outputs keep 32. CPUs seldom run this faster, GPUs do"]
    if large := too_large_constants(model):
        steps.append(f"{large:,} constants have numbers beyond {LARGEST:,.0f}, which are cut off there")
    name, most = largest_activation(model, batches, simple.parent)
    converted = runtime_tool("transformers.float16").convert_float_to_float16(model, keep_io_types=True)
    sort_nodes(converted.graph)  # the converter puts its casts at the end
    if most > LARGEST:
        if output := lost_output(converted, batches[0]):
            raise NotOptimized(
                f"the new version answers NaN or infinity in `{output}`: tensor `{name}` reaches {most:.3g}, and "
                f"numbers of 16 bits end at {LARGEST:,.0f}. It isn't written; try another `--precision`."
            )
        steps.append(
            f"LOOK AT THIS: tensor {name} reaches {most:.3g} for these events, and numbers of 16 bits end at {LARGEST:,.0f}. "
            "On a GPU, answers may differ more than here"
        )
    _save(converted, target)
    return steps


def _int8_dynamic(simple: Path, target: Path, _: Sequence[Tensors]) -> list[str]:
    _check_operators(simple, DYNAMIC_OPERATORS, "int8-dynamic")
    narrow = not _has_vnni()
    tool = runtime_tool("quantization")
    tool.quantize_dynamic(_prepared(simple), target, weight_type=tool.QuantType.QInt8, reduce_range=narrow)
    _check_quantized(target, "int8-dynamic")
    return ["weights have 8 bits; activations are rounded to 8 bits in each call", *_about_range(narrow)]


def _int8_static(simple: Path, target: Path, calibration: Sequence[Tensors]) -> list[str]:
    _check_operators(simple, _WITH_WEIGHTS, "int8-static")
    narrow = not _has_vnni()
    tool = runtime_tool("quantization")
    tool.quantize_static(
        _prepared(simple),
        target,
        _Batches(calibration),
        op_types_to_quantize=list(STATIC_OPERATORS),
        activation_type=tool.QuantType.QUInt8,
        weight_type=tool.QuantType.QInt8,
        reduce_range=narrow,
        # A last layer's numbers, such as logits, would have only 256 values.
        extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
    )
    _check_quantized(target, "int8-static")
    return ["weights and activations have 8 bits, with ranges from the calibration events", *_about_range(narrow)]


_CONVERSIONS = {"fp32": _fp32, "fp16": _fp16, "int8-dynamic": _int8_dynamic, "int8-static": _int8_static}


class _Batches:
    """The calibration's batches, as ONNX Runtime takes them (`CalibrationDataReader`)."""

    def __init__(self, batches: Sequence[Tensors]) -> None:
        self._left: Iterator[Tensors] = iter(batches)

    def get_next(self) -> Tensors | None:
        """The next batch; None: that was the last one."""
        return next(self._left, None)


def _prepared(simple: Path) -> Path:
    """The model with the shapes of its tensors, which the quantizer needs."""
    prepared = simple.with_name("prepared.onnx")
    runtime_tool("quantization").quant_pre_process(simple, prepared, skip_optimization=True, skip_symbolic_shape=True)
    return prepared


def _check_operators(file: Path, wanted: Sequence[str], precision: str) -> None:
    """Check that there is something to quantize. Raises NotOptimized."""
    there = sorted({node.op_type for node in onnx().load(str(file), load_external_data=False).graph.node})
    if not set(there) & set(wanted):
        raise NotOptimized(
            f"the model has nothing to store in 8 bits: expected one of the operators {', '.join(wanted)}; it has "
            f"{', '.join(there) or 'none'}. {precision} is for neural networks."
        )


def _check_quantized(file: Path, precision: str) -> None:
    there = {node.op_type for node in onnx().load(str(file), load_external_data=False).graph.node}
    if not there & _QUANTIZED:
        raise NotOptimized(
            f"{precision} changed nothing: none of the model's operators has constant weights of float32. Try fp16."
        )


def _save(model: Any, target: Path) -> None:
    """Write the model with all its data. Raises NotOptimized if that is too much for one file."""
    if (size := model.ByteSize()) > _LARGEST_FILE:
        raise NotOptimized(
            f"the converted model has {size / 1e9:.1f} GB, and an ONNX file at most 2 GB. Try int8-dynamic."
        )
    onnx().save(model, str(target))


def _has_vnni() -> bool:
    """Whether this CPU adds products of 8 bits without an overflow. Elsewhere than on Linux on x86, that isn't known: yes."""
    try:
        text = _CPU_FLAGS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return not flags or "vnni" in flags


def _about_range(narrow: bool) -> list[str]:
    return ["weights use 7 of the 8 bits, because sums may overflow on this CPU (it has no VNNI)"] if narrow else []


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the quantizer logs: advice for those who call it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
