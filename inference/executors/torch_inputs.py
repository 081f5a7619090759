"""Checks config.yaml against the inputs of an exported program."""

import importlib
from collections.abc import Mapping
from typing import Any

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.axes import UNBOUNDED, Sizes, check_axes
from millstream.inference.executors.interface import write_dtype
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import DTYPES, TensorInput


def check_inputs(model: ModelVersion, program: Any) -> Sizes:
    """Check the types and the shapes. The names are right.

    Args:
        model: with its config.yaml.
        program: the exported program.

    Returns:
        how many events a call takes.

    Raises:
        ModelConfigError: config.yaml doesn't fit the program, or its inputs fit no batch.
    """
    own = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    batches = [
        _check_input(model, entry, own[entry.tensor], program.range_constraints) for entry in model.signature.inputs
    ]
    fixed = {batch for batch in batches if batch.is_fixed}
    if len(fixed) > 1:
        raise ModelConfigError(
            f"{model.place}: the model's inputs fix different batch sizes: {sorted(batch.least for batch in fixed)}."
        )
    if fixed:
        return fixed.pop()
    return Sizes(max(batch.least for batch in batches), min(batch.most for batch in batches))


def _check_input(model: ModelVersion, entry: TensorInput, own: Any, ranges: Mapping[Any, Any]) -> Sizes:
    """Check one input. Returns the sizes of its batch axis."""
    if not hasattr(own, "shape"):
        raise ModelConfigError(f"{model.place}: the model's input `{entry.tensor}` is no tensor.")
    dtype = str(own.dtype).removeprefix("torch.")
    if dtype != entry.dtype:
        raise ModelConfigError(
            f"{model.place_at(entry.line)}: tensor `{entry.tensor}` is {dtype} in the model, but config.yaml says "
            f"{entry.dtype}.{write_dtype(dtype if dtype in DTYPES else None)}"
        )
    axes = [_sizes(size, ranges) for size in own.shape]
    check_axes(model, entry, axes, [*map(str, axes)])
    return axes[0]


def _sizes(size: Any, ranges: Mapping[Any, Any]) -> Sizes:
    """The sizes of an axis. `size`: a number, or torch's expression of symbols. `ranges`: the bounds of the symbols."""
    if isinstance(size, int):
        return Sizes(size, size)
    bounds = importlib.import_module("torch.utils._sympy.value_ranges").bound_sympy(size.node.expr, ranges)
    return Sizes(max(1, int(bounds.lower)), int(bounds.upper) if bounds.upper < UNBOUNDED else UNBOUNDED)
