"""Compares the results of a compiled package with those of its program, before the first event."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.executors.torch_calls import Calls, Outputs
from millstream.inference.executors.torch_package import compile_again, package_place
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, blank
from millstream.inference.varying import length_buckets_of

log = logging.getLogger(__name__)

SAMPLE_EVENTS = 5  # different events, which larger batches repeat
TOLERANCE = 0.01  # of an output's largest value: compiled code rounds in another way
Arrays = Sequence[npt.NDArray[Any]]


def check_results(model: ModelVersion, package: Calls, program: Calls, sizes: Sequence[int]) -> None:
    """Run the package at each batch size, and compare each row with the program's.

    The longest of variable-length inputs run only the smallest batch, as in the warm-up.

    Args:
        model: whose package it is.
        package: the package.
        program: the exported program.
        sizes: batch sizes, ascending.

    Raises:
        ModelConfigError: the package takes no such batch, or gives other results.
        ExecutorUnavailable: the device fails.
    """
    events = min(max(sizes[0], SAMPLE_EVENTS), sizes[-1])
    for inputs in _lengths(model):
        sample = _sample(model, program, blank(inputs, events))
        if sample is not None:
            _compare(model, package, *sample, sizes)
        sizes = sizes[:1]


def _compare(model: ModelVersion, package: Calls, inputs: Tensors, expected: Arrays, sizes: Sequence[int]) -> None:
    for size in sizes:
        rows = np.arange(size) % rows_of(inputs)
        batch = {name: array[rows] for name, array in inputs.items()}
        shapes = ", ".join(f"`{name}` {list(array.shape)}" for name, array in batch.items())
        try:
            results = _arrays(package.run(batch))
        except Exception as error:
            failure = classify_error(error, model.place)
            if isinstance(failure, OutOfMemory):
                return  # the warm-up logs it
            if not isinstance(failure, ModelRejected):
                raise failure from error
            raise ModelConfigError(
                f"{package_place(model)} does not take {shapes}, but {model.file.name} does. {compile_again()} torch says: "
                f"{line_of(error)}"
            ) from None
        if not all(_are_rows(found, own, rows) for found, own in zip(results, expected, strict=True)):
            raise ModelConfigError(
                f"{package_place(model)} gives other outputs than {model.file.name} for {shapes}. {compile_again()}"
            )


def _lengths(model: ModelVersion) -> Iterator[Sequence[TensorInput]]:
    """The inputs; if their length varies, at the shortest and at the longest one."""
    longest = model.signature.max_length
    if longest is None:
        yield model.signature.inputs
        return
    buckets = length_buckets_of(model.length_buckets, longest)
    yield from (model.signature.at(length) for length in sorted({buckets[0], buckets[-1]}))


def _sample(model: ModelVersion, program: Calls, zeros: Tensors) -> tuple[Tensors, Arrays] | None:
    """Events, and the program's outputs. None: the program rejects them."""
    random = np.random.default_rng(0)
    for inputs in ({name: _filled(array, random) for name, array in zeros.items()}, zeros):
        try:
            return inputs, _arrays(program.run(inputs))
        except Exception as error:  # as in `TorchExecutor.run`
            why = line_of(error)
    log.warning(
        "%s is not compared with %s, which rejects sample events: %s", package_place(model), model.file.name, why
    )
    return None


def _filled(zeros: npt.NDArray[Any], random: np.random.Generator) -> npt.NDArray[Any]:
    if zeros.dtype.kind == "f":
        return random.random(zeros.shape).astype(zeros.dtype)
    # A mask has ones, and keeps them. Other whole numbers may be indices: 0 and 1 are within most ranges.
    return zeros if zeros.any() else random.integers(0, 2, zeros.shape).astype(zeros.dtype)


def _arrays(outputs: Outputs) -> Arrays:
    return outputs if isinstance(outputs, list) else list(outputs.values())


def _are_rows(found: npt.NDArray[Any], expected: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> bool:
    """Whether the results are these rows of what is expected. An output without an axis of events is not compared."""
    if expected.ndim == 0 or len(expected) <= rows.max():
        return True
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    same_shape = found.shape == expected[rows].shape
    return same_shape and np.allclose(found, expected[rows], rtol=0, atol=TOLERANCE * largest, equal_nan=True)
