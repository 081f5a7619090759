"""Compares the outputs of two versions of a model on the same events. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.inference.executors.interface import Tensors
from millstream.inference.signature import TensorOutput, class_name

Objects = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class NumberDifference:
    """How far the numbers of an output are from the original's. Pairs that are NaN or infinite in both don't count."""

    output: str
    low: float  # the original's smallest number
    high: float  # and its largest one
    max: float  # of the absolute differences
    mean: float
    p99: float
    lost: int  # events for which the new version answers NaN or infinity, and the original doesn't


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two versions answer the same."""

    output: str
    share: float  # of the events


def number_differences(old: Tensors, new: Tensors) -> list[NumberDifference]:
    """The differences of each output that holds fractions. Both have the same events, at least one, in the same order."""
    return [_difference(name, old[name], new[name]) for name in old if old[name].dtype.kind == "f"]


def _difference(name: str, old: npt.NDArray[np.floating], new: npt.NDArray[np.floating]) -> NumberDifference:
    before, after = (array.astype(np.float64).reshape(len(array), -1) for array in (old, new))
    lost = np.isfinite(before) & ~np.isfinite(after)
    both = np.isfinite(before) & np.isfinite(after)
    distances = np.abs(after[both] - before[both])
    finite = before[np.isfinite(before)]
    if not len(distances):
        distances = np.zeros(1)
    return NumberDifference(
        name,
        low=float(finite.min(initial=np.inf)) if len(finite) else np.nan,
        high=float(finite.max(initial=-np.inf)) if len(finite) else np.nan,
        max=float(distances.max()),
        mean=float(distances.mean()),
        p99=float(np.quantile(distances, 0.99)),
        lost=int(lost.any(axis=1).sum()),
    )


def agreements(old: Tensors, new: Tensors, outputs: Sequence[TensorOutput]) -> list[Agreement]:
    """How often the classes agree: answers that are no fractions, and the largest of several scores."""
    return [
        Agreement(output.name, float((before == after).mean()))
        for (output, before), (_, after) in zip(classes_of(old, outputs), classes_of(new, outputs), strict=True)
    ]


def classes_of(tensors: Tensors, outputs: Sequence[TensorOutput]) -> Iterator[tuple[TensorOutput, Objects]]:
    """Each output that tells a class, and the class of each event: its name, or its index.

    Of the best classes (`top`), it is the first one. Scores without names of classes count if there are several.
    """
    for output in outputs:
        array = tensors.get(output.name)
        if array is None:  # an output for each class
            scores = np.stack([tensors[class_name(output.name, each)] for each in output.classes], axis=1)
            yield output, np.array(output.classes, object)[scores.argmax(axis=1)]
        elif array.dtype.kind != "f":
            yield output, array.reshape(len(array), -1)[:, 0].astype(object)
        elif array.ndim == 2 and array.shape[1] > 1:
            yield output, array.argmax(axis=1).astype(object)
