"""Batches of real events as an ONNX model takes them, from which a quantizer learns the ranges of its activations."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.executors.interface import Inputs, Tensors, rows_between, rows_of
from millstream.inference.repository import ModelVersion
from millstream.inference.varying import groups_of, length_buckets_of, lengths_in, padded_to

CALIBRATION_BATCH = 32  # events in a call


def calibration_batches(model: ModelVersion, events: Inputs, fixed: int | None) -> list[Tensors]:
    """The events as dense batches.

    Args:
        model: says how inputs of variable length are padded.
        events: the model's inputs; those of variable length are ragged.
        fixed: the only batch size that the model takes; None: it takes any.
    """
    size = fixed or CALIBRATION_BATCH
    return [
        batch if fixed is None else _filled_up(batch, fixed)
        for dense in _dense(model, events)
        for batch in _parts(dense, size)
    ]


def _dense(model: ModelVersion, events: Inputs) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The events, those of similar length together."""
    max_length = model.signature.max_length
    if max_length is None:
        yield dict(events)
        return
    buckets = length_buckets_of(model.length_buckets, max_length)
    for length, rows in groups_of(lengths_in(events), buckets, call=0.0):
        yield padded_to(model.signature.inputs, {name: tensor[rows] for name, tensor in events.items()}, length)


def _filled_up(events: Tensors, size: int) -> Tensors:
    """As many events as the model takes: the last one is repeated, so that it gets only real values."""
    rows = np.minimum(np.arange(size), rows_of(events) - 1)
    return {name: array[rows] for name, array in events.items()}


def _parts(events: Tensors, size: int) -> Iterator[Tensors]:
    for start in range(0, rows_of(events), size):
        yield rows_between(events, start, start + size)
